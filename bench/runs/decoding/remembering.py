"""`python -m bench translation-memory`: size and speed of a translation memory's index, and whether
a lookup finds the best segment.

The segments are in this process, so that the times are those of the index and of the comparison; a
server also fetches the few compared segments from its database.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from bench.errors import BenchError
from bench.machine.memory import current_rss
from bench.reports.report import Machine, head_lines, table_head, table_line
from bench.systems.processes.repetitions import Progress
from serving.text.memory.index import SegmentIndex
from serving.text.memory.lookup import lookup
from serving.text.memory.segments import Segment, key_of

SAME, CHANGED, OTHER = "in the memory", "with another word", "not in the memory"
_LANGUAGES = "en", "de"
"""Languages of the memory; they decide how numbers are written in a translation, and do not affect
the measurement."""
_LEAST_WORDS = 4
"""Least number of words of a sentence of which one word is changed; in a shorter sentence one word
would be too large a part."""
_TOLD_EVERY = 100


@dataclass(frozen=True)
class RecallPlan:
    """The parameters of a measurement of lookups in a translation memory."""

    segments: int
    lookups: int
    """Number of lookups for each kind of sentence."""
    threshold: float
    """Percentage of similarity from which on a segment counts."""
    seed: int
    """Draws segments, sentences and words."""


@dataclass
class RecallTimes:
    """Lookups of one kind of sentence, one at a time on one thread."""

    kind: str
    processor_ms: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)
    existing: int = 0
    """Sentences for which a comparison with every segment finds one that reaches the threshold."""
    best: int = 0
    """Number of the sentences in `existing` for which the index finds a segment as similar as the
    best one."""


@dataclass(frozen=True)
class RecallFigures:
    """The results: size and time of the index, and times of lookups."""

    characters: float
    """Mean number of characters of a segment."""
    index_bytes: int
    """Size of the index by its own count."""
    grown_bytes: int
    """Growth of the process's memory while the index was made."""
    seconds: float
    processor_seconds: float
    """Processor time of making the index."""
    times: Sequence[RecallTimes]


def measure_recall(texts: Iterable[str], plan: RecallPlan, progress: Progress) -> RecallFigures:
    """Index the first of shuffled texts. Then look up some of them, some of them with a word
    changed, and as many of the other texts.

    Raises BenchError if there are not enough different texts.
    """
    drawn = random.Random(plan.seed)
    distinct = sorted({text.strip() for text in texts} - {""})
    wanted = plan.segments + plan.lookups
    if len(distinct) < wanted:
        raise BenchError(
            f"--texts must have {wanted:,} different lines (--segments and --lookups), got "
            f"{len(distinct):,}; give more files, or fewer --segments"
        )
    drawn.shuffle(distinct)
    segments, others = distinct[: plan.segments], distinct[plan.segments : wanted]
    del distinct
    progress(f"making the index of {len(segments):,} segments")
    before, begun, begin = current_rss(), time.process_time(), time.perf_counter()
    index = SegmentIndex(map(key_of, segments))
    processor_s, wall_s = time.process_time() - begun, time.perf_counter() - begin
    grown = current_rss() - before
    times = _looked_up(index, segments, _sentences(segments, others, plan, drawn), plan, progress)
    return RecallFigures(
        characters=sum(map(len, segments)) / len(segments),
        index_bytes=index.num_bytes,
        grown_bytes=grown,
        seconds=wall_s,
        processor_seconds=processor_s,
        times=times,
    )


def _sentences(
    segments: Sequence[str], others: Sequence[str], plan: RecallPlan, drawn: random.Random
) -> dict[str, Sequence[str]]:
    """The sentences to look up, by kind."""
    long = [text for text in segments if len(text.split()) >= _LEAST_WORDS]
    if not long:
        raise BenchError(f"--texts must have lines of at least {_LEAST_WORDS} words, got none")
    return {
        SAME: drawn.choices(segments, k=plan.lookups),
        CHANGED: [_changed(text, long, drawn) for text in drawn.choices(long, k=plan.lookups)],
        OTHER: others,
    }


def _changed(text: str, texts: Sequence[str], drawn: random.Random) -> str:
    """A sentence in which one word is replaced by a word of another sentence."""
    words = text.split()
    words[drawn.randrange(len(words))] = drawn.choice(drawn.choice(texts).split())
    return " ".join(words)


def _looked_up(
    index: SegmentIndex,
    segments: Sequence[str],
    sentences: dict[str, Sequence[str]],
    plan: RecallPlan,
    progress: Progress,
) -> list[RecallTimes]:
    """Time all kinds of sentences in turns, then check the segments that were found by comparing
    with every segment."""
    found = {kind: RecallTimes(kind) for kind in sentences}

    def fetch(numbers: Iterable[int]) -> dict[int, Segment]:
        return {number: Segment(segments[number], segments[number]) for number in numbers}

    for number in range(plan.lookups):
        for kind, own in sentences.items():
            begun, begin = time.process_time(), time.perf_counter()
            lookup(index, fetch, [own[number]], plan.threshold, _LANGUAGES)
            found[kind].processor_ms.append(1000 * (time.process_time() - begun))
            found[kind].wall_ms.append(1000 * (time.perf_counter() - begin))
    keys = list(map(key_of, segments))
    for kind, own in sentences.items():
        for number, sentence in enumerate(own):
            if number % _TOLD_EVERY == 0:
                progress(f"comparing with every segment: {kind}, {number} of {plan.lookups}")
            _compare(index, keys, key_of(sentence), plan.threshold, found[kind])
    return list(found.values())


def _compare(
    index: SegmentIndex, keys: Sequence[str], key: str, threshold: float, times: RecallTimes
) -> None:
    """Count whether a segment reaches the threshold, and whether the index finds the best."""
    similarity = Levenshtein.normalized_similarity
    best = process.extractOne(key, keys, scorer=similarity, score_cutoff=threshold / 100)
    if best is None:
        return
    times.existing += 1
    own = index.similar(key, threshold, 1)
    reached = 1.0 if index.exact(key, 1) else own[0][0] / 100 if own else 0.0
    times.best += reached >= best[1] - 1e-9


def recall_markdown(command: str, machine: Machine, plan: RecallPlan, found: RecallFigures) -> str:
    """The index in a sentence, and a row for each kind of sentence."""
    text = (
        f"{plan.segments:,} segments of {found.characters:.0f} characters on average. Their index "
        f"has {found.index_bytes / 1e6:.0f} MB and was made in {found.seconds:.1f} s "
        f"({found.processor_seconds:.1f} s of a processor), with which the process has grown by "
        f"{found.grown_bytes / 1e6:.0f} MB. {plan.lookups:,} lookups of each kind, "
        f"from {plan.threshold:g} % on, one at a time."
    )
    lines = [*head_lines(command, machine, text), ""]
    measures = ("mean", "median", "99 %")
    head = ["a sentence", *(f"processor, ms: {each}" for each in measures)]
    head += [*(f"clock, ms: {each}" for each in measures), "best one found, where there is one"]
    lines += table_head(head)
    for each in found.times:
        cells = [each.kind, *_spread(each.processor_ms), *_spread(each.wall_ms)]
        lines.append(table_line([*cells, f"{each.best:,} of {each.existing:,}"]))
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> list[str]:
    """Mean, median and the value that 99 of 100 do not exceed."""
    found = np.mean(values), *np.percentile(values, [50, 99])
    return [f"{value:.2f}" for value in found]
