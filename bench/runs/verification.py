"""What comparing translations with their sources finds and repairs, and what it costs."""

from __future__ import annotations

import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from serving.checking.invariants import faults, is_noteworthy
from serving.translation.results import Translation
from serving.translation.translator import ModelTranslator
from training.corpora.pairs import Pair


@dataclass(frozen=True)
class Changed:
    """A translation that was put right, or that has a fault still."""

    source: str
    reference: str
    before: str
    after: str
    faults: list[str]
    """Of the translation before."""
    by: Sequence[str]
    """What put it right; empty where nothing did."""


@dataclass(frozen=True)
class VerificationResult:
    """One direction on one sample."""

    name: str
    sentences: int
    """With figures, other letters, codes or tags."""
    wrong_before: int
    wrong_after: int
    changed: list[Changed]
    references: int
    """References that the invariants would not pass: free or wrong ones, and false alarms."""
    cost: float
    """Seconds with over seconds without, less 1, for those sentences."""
    plain_cost: float
    """The same for as many sentences without any such thing."""

    @property
    def repaired(self) -> dict[str, int]:
        """How many translations were put right by each means."""
        return Counter(by for each in self.changed for by in set(each.by))


def measure_verification(
    translator: ModelTranslator,
    languages: tuple[str, str],
    pairs: Sequence[Pair],
    sample: int,
    repetitions: int,
    progress: Callable[[str], None],
) -> VerificationResult:
    """Translate a sample of the pairs of either sort, with and without `verify` in turns; costs are
    medians over the repetitions."""
    chosen = list(pairs)
    random.Random(1).shuffle(chosen)
    noteworthy = [pair for pair in chosen if is_noteworthy(pair[0])][:sample]
    plain = [pair for pair in chosen if not is_noteworthy(pair[0])][:sample]
    name = "-".join(languages)
    progress(f"{name}: {len(noteworthy)} noteworthy sentences of {len(pairs)}")
    cost, before, after = _in_turns(translator, languages, noteworthy, repetitions)
    plain_cost, _, _ = _in_turns(translator, languages, plain, repetitions)
    changed = []
    wrong_before = wrong_after = 0
    for (source, reference), old, new in zip(noteworthy, before, after, strict=True):
        found = faults(source, old.text, languages)
        wrong_before += bool(found)
        wrong_after += bool(faults(source, new.text, languages))
        if found or old.text != new.text:
            what = [f"{fault.kind} {fault.what}" for fault in found]
            by = [repair.by for repair in new.repaired]
            changed.append(Changed(source, reference, old.text, new.text, what, by))
    references = sum(bool(faults(*pair, languages)) for pair in noteworthy)
    sizes = len(noteworthy), wrong_before, wrong_after
    return VerificationResult(name, *sizes, changed, references, cost, plain_cost)


def verification_markdown(results: Sequence[VerificationResult]) -> str:
    """A table with a row for each direction."""
    lines = [
        "| direction | sentences | right before | right after | by another hypothesis, a second "
        "search, the source's form | references flagged | cost | cost of plain sentences |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        before, after = (100 * (1 - n / r.sentences) for n in (r.wrong_before, r.wrong_after))
        by = ", ".join(str(r.repaired.get(by, 0)) for by in ("hypothesis", "search", "source"))
        lines.append(
            f"| {r.name} | {r.sentences} | {before:.1f} % | {after:.1f} % | {by} | {r.references} "
            f"| {100 * r.cost:+.1f} % | {100 * r.plain_cost:+.1f} % |"
        )
    return "\n".join(lines)


def write_verification(path: Path, results: Sequence[VerificationResult]) -> None:
    """Write the record with every changed translation, for people to look at."""
    record = json.dumps([asdict(result) for result in results], ensure_ascii=False, indent=1)
    path.write_text(record + "\n", encoding="utf-8")


def _in_turns(
    translator: ModelTranslator, languages: tuple[str, str], pairs: Sequence[Pair], repetitions: int
) -> tuple[float, list[Translation], list[Translation]]:
    """What `verify` costs, and the translations without and with it."""
    source, target = languages
    texts = [pair[0] for pair in pairs]
    found: list[list[Translation]] = [[], []]
    ratios = []
    for _ in range(repetitions):
        seconds = []
        for verify in (False, True):
            options = replace(translator.default_options, verify=verify)
            began = time.process_time()  # other work of the machine does not count
            found[verify] = translator.translate(texts, options, source=source, target=target)
            seconds.append(time.process_time() - began)
        ratios.append(seconds[1] / seconds[0])
    return statistics.median(ratios) - 1, found[False], found[True]
