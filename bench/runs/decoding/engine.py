"""`python -m bench engine`: interleaved repetitions, then agreement, BLEU and slots.

After each scenario, the int8 products of our int8 engine are timed without the rest.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.errors import BenchError
from bench.runs.decoding.gpu_work import GpuWork, work_of
from bench.subjects.job import SystemOutput
from bench.subjects.materials import DecodedModel, job_for, write_materials
from bench.subjects.scenarios import (
    COMPILED_PAIRS,
    LEAST_IDENTICAL,
    MAY_BE_MISSING,
    OUR_INT8,
    Scenario,
    Setting,
    System,
    sentences_per_repetition,
    settings,
    spread_rows,
)
from bench.systems.processes.repetitions import Measured, Progress, best, repeat
from bench.systems.processes.worker import SlotCount, Worker

TIE = 1e-3
"""Largest difference between the scores of two different outputs that count as a tie."""
SLOT_SENTENCES = 32
_Key = tuple[System, Setting]


@dataclass(frozen=True)
class EnginePlan:
    """The scenarios of `bench engine`, and the number of repetitions."""

    scenarios: Sequence[Scenario]
    repetitions: int
    cores: int
    materials: Path | None = None
    """The folder that keeps the files of each system; None uses a temporary folder."""


@dataclass(frozen=True)
class Agreement:
    """A system's fp32 outputs compared with those of a rival, on the same weights."""

    system: System
    rival: System
    beam_size: int
    sentences: int
    identical: int
    ties: int
    """Number of different outputs whose scores are within `TIE`."""
    score_difference: float
    """Largest difference of scores between identical outputs."""

    @property
    def whose(self) -> str:
        """The system's name in a sentence; empty for this engine."""
        return "" if self.system.engine == OUR_INT8.engine else f" of {self.system.engine}"

    @property
    def other(self) -> int:
        """Number of different outputs that are not ties."""
        return self.sentences - self.identical - self.ties


@dataclass(frozen=True)
class Roofline:
    """The time of only the int8 products in one scenario, beside whole calls of our int8 engine."""

    whole: Measured
    """The whole calls at the fastest thread setting, which the products use too."""
    ms_per_sentence: list[float]
    """Time of the products, one entry per repetition."""

    @property
    def median(self) -> float:
        """Median milliseconds of the products per sentence."""
        return statistics.median(self.ms_per_sentence)

    @property
    def share(self) -> float:
        """Share of the whole calls' time; 1 is the speed of the processor's int8 products."""
        return self.median / self.whole.median


@dataclass
class Result:
    """All results of a run."""

    measured: list[Measured] = field(default_factory=list)
    agreements: list[Agreement] = field(default_factory=list)
    translations: dict[tuple[System, int], list[str]] = field(default_factory=dict)
    """Texts by system and beam size; empty for a random model."""
    rooflines: list[Roofline] = field(default_factory=list)
    """The rooflines, one per scenario; empty for real sentences, whose batches shrink."""
    work: dict[Scenario, GpuWork] = field(default_factory=dict)
    """The work of the calls of one batch by scenario; only on a GPU with outputs of equal
    length."""
    left_out: dict[System, str] = field(default_factory=dict)
    """Systems that could not be loaded on this machine, with the reason."""
    slots: dict[int, list[SlotCount]] = field(default_factory=dict)
    """Slots that caches needed, by number of steps."""

    def best(self, system: System, scenario: Scenario) -> Measured:
        """The fastest thread setting of a system."""
        return best(self.measured, system, scenario)

    def speed_over(self, rival: System, measured: Measured) -> float:
        """Speed relative to another system, each at its fastest thread setting."""
        return self.best(rival, measured.scenario).median / measured.median


def run_engine(subject: DecodedModel, plan: EnginePlan, progress: Progress) -> Result:
    """Measure every system on one subject."""
    result = Result()
    with ExitStack() as stack:
        folder = plan.materials
        if folder is None:
            scratch = tempfile.TemporaryDirectory(prefix="macaron-bench-")
            folder = Path(stack.enter_context(scratch))
        progress("exporting and converting the model")
        result.left_out |= write_materials(subject, subject.systems, folder)
        workers: dict[_Key, Worker] = {}
        keys = [key for scenario in plan.scenarios for key in _settings(subject, plan, scenario)]
        for system, setting in dict.fromkeys(keys):
            if system in result.left_out:
                continue
            label = f"{system.name}, {setting} threads"
            progress(f"loading {label}")
            job = job_for(system, setting, subject, folder)
            try:
                worker = Worker(label, job, subject.sources)
            except BenchError as error:
                if system not in MAY_BE_MISSING:
                    raise
                result.left_out[system] = str(error)
                continue
            workers[system, setting] = stack.enter_context(worker)
        for scenario in plan.scenarios:
            keys = [key for key in _settings(subject, plan, scenario) if key in workers]
            result.measured += repeat(
                scenario,
                {key: workers[key] for key in keys},
                plan.repetitions,
                _rows(subject, scenario),
                subject.max_length,
                progress,
                forced=subject.forced,
            )
            progress(f"{scenario}: {_medians(result.measured, scenario)}")
            if subject.forced and subject.device == "cuda":
                result.work[scenario] = _work(subject, scenario)
            elif subject.forced:
                whole = result.best(OUR_INT8, scenario)
                result.rooflines.append(_time_products(subject, plan, whole, folder, progress))
        _compare(subject, plan, workers, result, progress)
        progress("counting cache slots")
        rows, ours = spread_rows(SLOT_SENTENCES, len(subject.sources)), subject.comparison.ours
        setting = result.best(ours, plan.scenarios[-1]).setting
        result.slots = workers[ours, setting].slots(rows)
    return result


def _medians(measured: Sequence[Measured], scenario: Scenario) -> str:
    """The results of a scenario in one line, in case the run is interrupted later."""
    found = [each for each in measured if each.scenario == scenario]
    return ", ".join(
        f"{each.system.name} {each.setting} {each.median:.2f} ms a sentence" for each in found
    )


def failures(result: Result, *, forced: bool) -> list[str]:
    """Results that must not occur, one line each."""
    found = []
    for agreement in result.agreements:
        share = agreement.identical / agreement.sentences
        if not forced and share < LEAST_IDENTICAL and not agreement.system.on_gpu:
            rival = agreement.rival
            found.append(
                f"beam {agreement.beam_size}: {share:.2%} of the sentences{agreement.whose} come "
                f"out as {rival.engine}'s {rival.precision}, at least {LEAST_IDENTICAL:.0%} must"
            )
    return found


def compare(
    system: System,
    rival: System,
    beam_size: int,
    ours: Sequence[SystemOutput],
    theirs: Sequence[SystemOutput],
) -> Agreement:
    """Count identical outputs and ties."""
    pairs = list(zip(ours, theirs, strict=True))
    same = [(a, b) for a, b in pairs if a.tokens == b.tokens]
    differing = [(a, b) for a, b in pairs if a.tokens != b.tokens]
    return Agreement(
        system=system,
        rival=rival,
        beam_size=beam_size,
        sentences=len(pairs),
        identical=len(same),
        ties=sum(abs(a.score - b.score) <= TIE for a, b in differing),
        score_difference=max((abs(a.score - b.score) for a, b in same), default=0.0),
    )


def _settings(subject: DecodedModel, plan: EnginePlan, scenario: Scenario) -> list[_Key]:
    return [
        (system, setting)
        for system in subject.systems
        for setting in (
            [Setting(1, 1)] if system.on_gpu else settings(system.kind, scenario.batch, plan.cores)
        )
    ]


def _rows(subject: DecodedModel, scenario: Scenario) -> list[int]:
    """The sentences of one repetition."""
    count = sentences_per_repetition(scenario.batch, forced=subject.forced)
    return spread_rows(count, len(subject.sources))


def _work(subject: DecodedModel, scenario: Scenario) -> GpuWork:
    rows = spread_rows(scenario.batch, len(subject.sources))
    batch = [subject.ids(subject.sources[row]) for row in rows]
    return work_of(subject.model, batch, scenario.beam_size, subject.max_length)


def _time_products(
    subject: DecodedModel, plan: EnginePlan, whole: Measured, folder: Path, progress: Progress
) -> Roofline:
    """Time the products in a separate process, so that its memory is not counted as the
    engine's."""
    progress(f"{whole.scenario}: int8 products alone")
    rows = _rows(subject, whole.scenario)
    job = job_for(OUR_INT8, whole.setting, subject, folder)
    with Worker("int8 products", job, subject.sources) as worker:
        seconds = worker.products(whole.scenario, subject.max_length, rows, plan.repetitions)
    return Roofline(whole, [1000 * each / len(rows) for each in seconds])


def _compare(
    subject: DecodedModel,
    plan: EnginePlan,
    workers: dict[_Key, Worker],
    result: Result,
    progress: Progress,
) -> None:
    """Decode everything again with scores, at the largest batch and each beam size."""
    pairs = [(subject.comparison.ours, subject.comparison.rival)]
    pairs += [pair for pair in COMPILED_PAIRS if pair[0] in subject.systems]
    compared = tuple(dict.fromkeys(system for pair in pairs for system in pair))
    measured = [system for system in subject.systems if system not in result.left_out]
    systems = compared if subject.forced else measured
    batch = max(scenario.batch for scenario in plan.scenarios)
    for beam_size in sorted({scenario.beam_size for scenario in plan.scenarios}):
        scenario = Scenario(batch, beam_size)
        outputs: dict[System, list[SystemOutput]] = {}
        for system in systems:
            progress(f"outputs of {system.name}, beam {beam_size}")
            worker = workers[system, result.best(system, scenario).setting]
            outputs[system] = worker.outputs(scenario, subject.max_length)
            if not subject.forced:
                texts = [output.text for output in outputs[system]]
                result.translations[system, beam_size] = texts
        result.agreements += [
            compare(system, rival, beam_size, outputs[system], outputs[rival])
            for system, rival in pairs
        ]
