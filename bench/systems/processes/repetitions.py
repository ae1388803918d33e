"""Repetitions of one scenario, interleaved between the systems."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.errors import BenchError
from bench.subjects.scenarios import Scenario, Setting, System
from bench.systems.processes.worker import RepetitionTime, Worker

_SETTLE_SECONDS = 0.25
"""Threads of the system before spin for up to 200 ms after a call (OpenMP's default)."""
_CAPTURED_AFTER = 4
"""Calls after which the steps of a batch on a GPU are CUDA graphs: each is captured at its fourth
run."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """Repetitions of one system with one thread setting in one scenario."""

    system: System
    setting: Setting
    scenario: Scenario
    timings: list[RepetitionTime]

    @property
    def ms_per_sentence(self) -> list[float]:
        """Milliseconds per sentence, in each repetition."""
        return [1000 * t.seconds / t.sentences for t in self.timings]

    @property
    def median(self) -> float:
        """Milliseconds per sentence, the median over repetitions."""
        return statistics.median(self.ms_per_sentence)

    @property
    def tokens_per_second(self) -> float:
        """Generated target tokens per second, at the median time."""
        first = self.timings[0]
        return first.tokens / first.sentences / self.median * 1000

    @property
    def peak_memory(self) -> int:
        """Bytes, this scenario and the smaller ones before it."""
        return max(t.peak_memory for t in self.timings)


def repeat(
    scenario: Scenario,
    workers: Mapping[tuple[System, Setting], Worker],
    repetitions: int,
    rows: Sequence[int],
    max_length: int,
    progress: Progress,
    *,
    forced: bool,
) -> list[Measured]:
    """Run all repetitions of one scenario, system after system within each repetition.

    If lengths are `forced`, every output must have `max_length` tokens.
    """
    found = [Measured(system, setting, scenario, []) for system, setting in workers]
    for repetition in range(repetitions + 1):
        warm_up = repetition == 0
        progress(f"{scenario}: " + ("warming up" if warm_up else f"repetition {repetition}"))
        for measured in found:
            time.sleep(_SETTLE_SECONDS)
            # Compilation depends on the sizes: every row's sizes are run before times count.
            few = warm_up and measured.system.kind != "compiled"
            chosen = rows[: 2 * scenario.batch] if few else rows
            worker = workers[measured.system, measured.setting]
            if warm_up and measured.system.on_gpu:  # until each of its steps is captured
                for _ in range(_CAPTURED_AFTER):
                    worker.measure(scenario, max_length, chosen)
            timing = worker.measure(scenario, max_length, chosen)
            if forced:
                _check_length(measured.system, timing, max_length)
            if not warm_up:
                measured.timings.append(timing)
    return found


def best(found: Sequence[Measured], system: System, scenario: Scenario) -> Measured:
    """The fastest thread setting of a system."""
    own = [m for m in found if (m.system, m.scenario) == (system, scenario)]
    return min(own, key=lambda measured: measured.median)


def _check_length(system: System, timing: RepetitionTime, max_length: int) -> None:
    wanted = timing.sentences * max_length
    if timing.tokens != wanted:
        raise BenchError(
            f"{system.name} generated {timing.tokens} tokens in place of {wanted}, so its times "
            "cannot be compared; take another seed"
        )
