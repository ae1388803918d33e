"""`python -m bench translate`: whole processes that translate a file, from start to end, beside
CTranslate2."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import serving
from bench.errors import BenchError
from bench.machine.processor import child_environment
from bench.machine.stopwatch import ProcessUsage, time_process
from bench.reports.report import Machine, head_lines, table_head, table_line, written_change
from bench.subjects.materials import DecodedModel, folder_name, write_materials
from bench.subjects.scenarios import MAX_LENGTH, OUR_INT8, PEER_INT8, Setting, System, settings
from bench.systems.processes.repetitions import Progress
from export.comparison.significance import bleu_change
from export.graphs.writing import TOKENIZER_FILE
from serving.lines import decode_lines
from training.metrics.bleu import measure_quality

SYSTEMS = (OUR_INT8, PEER_INT8)
BEAM = 5
PEER_BATCHES = (("examples", 32), ("examples", 64), ("tokens", 1024))
"""Batch types and sizes to try for CTranslate2."""
_SYSTEMS = f"{str(__package__).removesuffix('.runs.decoding')}.systems.files"
_ENDED = "ended"
_MIB = 2**20


@dataclass(frozen=True)
class TranslatePlan:
    """The settings of `bench translate`: the number of runs of each process, and the number of
    cores."""

    repetitions: int
    cores: int


@dataclass(frozen=True)
class Stage:
    """A stage of a process."""

    name: str
    seconds: float
    cpu_seconds: float
    rss: int | None
    """Resident memory in bytes at the stage's end; None if the process has ended."""
    peak_rss: int
    """Peak in bytes up to then."""


@dataclass(frozen=True)
class TimedTranslation:
    """The results of one system with one thread setting."""

    system: System
    setting: Setting
    batches: tuple[str, int] | None = None
    """The batches of CTranslate2; this engine chooses its own."""
    usages: list[ProcessUsage] = field(default_factory=list)
    """Usage of the system's processes, one entry per repetition."""
    lines: list[str] = field(default_factory=list)
    """The translations of the last process."""
    stages: list[list[Stage]] = field(default_factory=list)
    """A list per repetition; only for the best setting."""

    @property
    def seconds(self) -> float:
        """Duration of a process from start to end, the median over repetitions."""
        return statistics.median(usage.seconds for usage in self.usages)


def run_translate(
    subject: DecodedModel, plan: TranslatePlan, progress: Progress
) -> list[TimedTranslation]:
    """Measure both systems, each at its fastest setting."""
    with tempfile.TemporaryDirectory(prefix="macaron-bench-") as name:
        folder = Path(name)
        progress("exporting and converting the model")
        write_materials(subject, SYSTEMS, folder)
        content = "".join(f"{line}\n" for line in subject.sources)
        (folder / "source").write_text(content, encoding="utf-8")
        tried = [
            TimedTranslation(system, setting, batches)
            for system in SYSTEMS
            for setting in _settings(system, len(subject.sources), plan.cores)
            for batches in (PEER_BATCHES if system == PEER_INT8 else (None,))
        ]
        warm = []
        for each in tried:
            progress(f"warming up: {_label(each)}")
            warm.append(_run(each, folder, len(subject.sources)).seconds)
        tried = fastest_batches(tried, warm)
        for repetition in range(plan.repetitions):
            for each in tried:
                progress(f"repetition {repetition + 1}: {_label(each)}")
                each.usages.append(_run(each, folder, len(subject.sources)))
        best = [
            min((t for t in tried if t.system == system), key=lambda each: each.seconds)
            for system in SYSTEMS
        ]
        for repetition in range(plan.repetitions):
            for each in best:
                progress(f"stages, repetition {repetition + 1}: {each.system.name}")
                each.stages.append(_run_staged(each, folder))
    return best


def translate_markdown(
    command: str,
    machine: Machine,
    subject_line: str,
    subject: DecodedModel,
    found: list[TimedTranslation],
) -> str:
    """The tables: whole processes, then their stages."""
    columns = ["system", "workers x threads", "seconds (min-max)", "CPU seconds", "sentences/s"]
    columns += ["peak RSS, MiB", "speed / CTranslate2 int8", "BLEU"]
    lines = [*head_lines(command, machine, subject_line), ""]
    lines += table_head(columns)
    rival = next(each for each in found if each.system == PEER_INT8)
    signature = ""
    for each in found:
        quality = measure_quality(each.lines, subject.references)
        signature = quality.bleu_signature
        times = [usage.seconds for usage in each.usages]
        cells = [
            each.system.name,
            str(each.setting),
            f"{each.seconds:.2f} ({min(times):.2f}-{max(times):.2f})",
            f"{statistics.median(usage.cpu_seconds for usage in each.usages):.2f}",
            f"{len(subject.sources) / each.seconds:.0f}",
            f"{max(usage.peak_rss for usage in each.usages) / _MIB:.0f}",
            f"{rival.seconds / each.seconds:.2f}",
            f"{quality.bleu:.2f}",
        ]
        lines.append(table_line(cells))
    (ours,) = (each for each in found if each.system == OUR_INT8)
    change = bleu_change(rival.lines, ours.lines, subject.references)
    same = sum(len(set(outputs)) == 1 for outputs in zip(*(t.lines for t in found), strict=True))
    lines += [
        "",
        "Medians of whole processes, from start to end, each at its fastest thread setting; the "
        f"text is on stdin, the files have been read before. BLEU: {signature}.",
        *(
            f"{each.system.name} has batches of {each.batches[1]} {each.batches[0]}, the fastest "
            "of those tried."
            for each in found
            if each.batches
        ),
        f"Same translations: {same} of {len(subject.sources)}; BLEU beside CTranslate2's, with the "
        f"95 % interval of the paired bootstrap over sentences: {written_change(change)}.",
        "",
        *_stage_lines(found),
    ]
    return "\n".join(lines)


def _stage_lines(found: list[TimedTranslation]) -> list[str]:
    columns = ["system", "stage", "seconds", "CPU seconds", "RSS after, MiB", "peak RSS, MiB"]
    lines = table_head(columns, texts=2)
    for each in found:
        for stages in zip(*each.stages, strict=True):
            held = [stage.rss for stage in stages if stage.rss is not None]
            cells = [
                each.system.name,
                stages[0].name,
                f"{statistics.median(stage.seconds for stage in stages):.3f}",
                f"{statistics.median(stage.cpu_seconds for stage in stages):.3f}",
                f"{statistics.median(held) / _MIB:.0f}" if held else "",
                f"{statistics.median(stage.peak_rss for stage in stages) / _MIB:.0f}",
            ]
            lines.append(table_line(cells))
    return [*lines, "", "Stages are those of further runs of the same commands, medians as well."]


def _settings(system: System, sentences: int, cores: int) -> list[Setting]:
    """Settings that use all cores; `serving translate` has a worker per thread."""
    tried = [s for s in settings(system.kind, sentences, cores) if s.workers * s.threads == cores]
    return [s for s in tried if s.threads == 1] if system == OUR_INT8 else tried


def _words(each: TimedTranslation, folder: Path) -> list[str]:
    """Arguments of a system's own command, with equal search options."""
    place, setting = str(folder / folder_name(each.system)), each.setting
    if each.system == OUR_INT8:
        options = [f"beam_size={BEAM}", f"max_length={MAX_LENGTH}"]
        options += ["loop_guard=false", "verify=false"]
        words = ["translate", place, "--no-split", "--threads", str(setting.workers)]
        return words + [word for option in options for word in ("--option", option)]
    assert each.batches is not None
    kind, size = each.batches
    given: dict[str, object] = {
        "workers": setting.workers,
        "threads": setting.threads,
        "beam": BEAM,
    }
    given |= {"batch-type": kind, "batch-size": size}
    words = [place, str(folder / TOKENIZER_FILE)]
    return words + [word for name, value in given.items() for word in (f"--{name}", str(value))]


def fastest_batches(tried: list[TimedTranslation], seconds: list[float]) -> list[TimedTranslation]:
    """The fastest of the translations that differ only in their batches."""
    fastest: dict[tuple[System, Setting], tuple[float, TimedTranslation]] = {}
    for each, taken in zip(tried, seconds, strict=True):
        key = (each.system, each.setting)
        if key not in fastest or taken < fastest[key][0]:
            fastest[key] = (taken, each)
    return [each for _, each in fastest.values()]


def _label(each: TimedTranslation) -> str:
    batches = f", batches of {each.batches[1]} {each.batches[0]}" if each.batches else ""
    return f"{each.system.name}, {each.setting} threads{batches}"


def _run(each: TimedTranslation, folder: Path, sentences: int) -> ProcessUsage:
    """Run a process; its output becomes the system's lines."""
    module = serving.__name__ if each.system == OUR_INT8 else f"{_SYSTEMS}.peer_translate"
    usage = _time(each, folder, [module, *_words(each, folder)])
    each.lines[:] = decode_lines((folder / "output").read_bytes())
    if len(each.lines) != sentences:
        raise BenchError(
            f"{each.system.name} wrote {len(each.lines)} lines for {sentences}, so its times "
            "cannot be compared"
        )
    return usage


def _run_staged(each: TimedTranslation, folder: Path) -> list[Stage]:
    """Run a process and record its stages."""
    file = folder / "stages"
    words = [f"{_SYSTEMS}.stages", str(file), each.system.kind, *_words(each, folder)]
    usage = _time(each, folder, words)
    stages, at, cpu = [], usage.started, 0.0
    for note in json.loads(file.read_text()):
        seconds, cpu_seconds = note["at"] - at, note["cpu_seconds"] - cpu
        stages.append(Stage(note["stage"], seconds, cpu_seconds, note["rss"], note["peak_rss"]))
        at, cpu = note["at"], note["cpu_seconds"]
    seconds, cpu_seconds = usage.started + usage.seconds - at, usage.cpu_seconds - cpu
    return [*stages, Stage(_ENDED, seconds, cpu_seconds, None, usage.peak_rss)]


def _time(each: TimedTranslation, folder: Path, words: Sequence[str]) -> ProcessUsage:
    command = [sys.executable, "-m", *words]
    env = child_environment(each.system.precision)
    return time_process(each.system.name, command, folder / "source", folder / "output", env)
