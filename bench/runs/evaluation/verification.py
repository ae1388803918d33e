"""Measures which faults the comparison of translations with their sources finds and repairs, and
the time that it costs."""

from __future__ import annotations

import json
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from bench.errors import BenchError
from serving.checking.invariants import faults, is_noteworthy
from serving.translation.results import Translation
from serving.translation.translator import ModelTranslator
from training.corpora.pairs import Pair

_CHUNK = 32
"""Number of texts per turn. With short turns the machine's state is about the same in all turns."""
_MINUTE = 60


@dataclass(frozen=True)
class VerificationPlan:
    """The sample of sentences to translate, and the limit on time."""

    sample: int
    """Largest number of sentences of either kind."""
    repetitions: int
    seed: int
    """The seed of the sample."""
    minutes: float
    """Limit in minutes; after it no further sentences of either kind are started."""


@dataclass(frozen=True)
class Changed:
    """A translation that was repaired, or that still has a fault."""

    source: str
    reference: str
    before: str
    after: str
    faults: list[str]
    """Faults of the translation before repair."""
    by: Sequence[str]
    """The means of repair; empty if nothing helped."""


@dataclass(frozen=True)
class VerificationResult:
    """The results of one direction on one sample."""

    name: str
    sentences: int
    """Number of sentences with figures, other scripts, codes or tags."""
    wrong_before: int
    wrong_after: int
    changed: list[Changed]
    false_alarms: list[Changed]
    """Number of translations that were changed although the text passed as a whole, or that had the
    digits of the reference and lost them."""
    references: int
    """Number of references that do not pass the checks: free or wrong ones, and false alarms."""
    cost: float
    """Time with `verify` over the time without it, minus 1, for those sentences."""
    plain_sentences: int
    plain_cost: float
    """The same for sentences that have nothing to check."""

    @property
    def repaired(self) -> dict[str, int]:
        """Number of repaired translations by means of repair."""
        return Counter(by for each in self.changed for by in set(each.by))


@dataclass
class _Turns:
    """The results of sentences translated without and with `verify`."""

    pairs: list[Pair] = field(default_factory=list)
    before: list[Translation] = field(default_factory=list)
    after: list[Translation] = field(default_factory=list)
    seconds: list[list[float]] = field(default_factory=list)
    """Seconds without and with `verify`, one entry per repetition."""

    @property
    def cost(self) -> float:
        """The median over the repetitions."""
        return statistics.median(with_it / without for without, with_it in self.seconds) - 1


def measure_verification(
    translator: ModelTranslator,
    languages: tuple[str, str],
    pairs: Sequence[Pair],
    plan: VerificationPlan,
    progress: Callable[[str], None],
) -> VerificationResult:
    """Translate a sample of either kind of pairs, without and with `verify` in turns. Costs are
    medians over the repetitions. Raises BenchError if there are no pairs of one kind."""
    chosen = list(pairs)
    random.Random(plan.seed).shuffle(chosen)
    name = "-".join(languages)
    noteworthy = [pair for pair in chosen if is_noteworthy(pair[0], languages)][: plan.sample]
    plain = [pair for pair in chosen if not is_noteworthy(pair[0], languages)][: plan.sample]
    for kind, of_kind in (("with", noteworthy), ("without", plain)):
        if not of_kind:
            raise BenchError(f"--source must have sentences {kind} figures or codes, got none")

    def tell(done: int) -> None:
        progress(f"{name}: {done} sentences")

    found = _in_turns(translator, languages, noteworthy, plan, tell)
    others = _in_turns(translator, languages, plain, plan, tell)
    changed, false_alarms = [], []
    wrong_before = wrong_after = 0
    for (source, reference), old, new in zip(found.pairs, found.before, found.after, strict=True):
        wrong = faults(source, old.text, languages)
        wrong_before += bool(wrong)
        wrong_after += bool(faults(source, new.text, languages))
        what = [f"{fault.kind} {fault.what}" for fault in wrong]
        by = [repair.by for repair in new.repaired]
        each = Changed(source, reference, old.text, new.text, what, by)
        if wrong or old.text != new.text:
            changed.append(each)
        if old.text != new.text and (not wrong or _leaves_reference(each)):
            false_alarms.append(each)
    return VerificationResult(
        name=name,
        sentences=len(found.pairs),
        wrong_before=wrong_before,
        wrong_after=wrong_after,
        changed=changed,
        false_alarms=false_alarms,
        references=sum(bool(faults(*pair, languages)) for pair in found.pairs),
        cost=found.cost,
        plain_sentences=len(others.pairs),
        plain_cost=others.cost,
    )


def verification_markdown(results: Sequence[VerificationResult]) -> str:
    """A table with a row per direction."""
    lines = [
        "| direction | sentences | right before | right after | by another hypothesis, a second "
        "search, the source's form | false alarms | references flagged | cost "
        "| cost of plain sentences (number) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        before, after = (100 * (1 - n / r.sentences) for n in (r.wrong_before, r.wrong_after))
        by = ", ".join(str(r.repaired.get(by, 0)) for by in ("hypothesis", "search", "source"))
        lines.append(
            f"| {r.name} | {r.sentences:,} | {before:.1f} % | {after:.1f} % | {by} "
            f"| {len(r.false_alarms)} | {r.references} | {100 * r.cost:+.1f} % "
            f"| {100 * r.plain_cost:+.1f} % ({r.plain_sentences:,}) |"
        )
    return "\n".join(lines)


def write_verification(path: Path, results: Sequence[VerificationResult]) -> None:
    """Write the record with every changed translation, for human readers."""
    record = json.dumps([asdict(result) for result in results], ensure_ascii=False, indent=1)
    path.write_text(record + "\n", encoding="utf-8")


def _leaves_reference(each: Changed) -> bool:
    """Whether a translation had the digits of the human one and lost them."""
    before, after, wanted = (_digits(text) for text in (each.before, each.after, each.reference))
    return before == wanted != after


def _digits(text: str) -> list[str]:
    return sorted(re.findall(r"[0-9]+", text))


def _chunks(pairs: Sequence[Pair]) -> Iterator[Sequence[Pair]]:
    return (pairs[at : at + _CHUNK] for at in range(0, len(pairs), _CHUNK))


def _in_turns(
    translator: ModelTranslator,
    languages: tuple[str, str],
    pairs: Sequence[Pair],
    plan: VerificationPlan,
    progress: Callable[[int], None],
) -> _Turns:
    """Translate each chunk without and with `verify`, in alternating order."""
    source, target = languages
    found = _Turns(seconds=[[0.0, 0.0] for _ in range(plan.repetitions)])
    end = time.monotonic() + plan.minutes * _MINUTE
    for number, chunk in enumerate(_chunks(pairs)):
        if number and time.monotonic() > end:
            break
        texts = [pair[0] for pair in chunk]
        turns: dict[bool, list[Translation]] = {}
        for repetition in range(plan.repetitions):
            first = bool((number + repetition) % 2)
            for verify in (first, not first):
                options = replace(translator.default_options, verify=verify)
                began = time.process_time()  # processor time, so that other processes do not count
                turns[verify] = translator.translate(texts, options, source=source, target=target)
                found.seconds[repetition][verify] += time.process_time() - began
        found.pairs += chunk
        found.before += turns[False]
        found.after += turns[True]
        progress(len(found.pairs))
    return found
