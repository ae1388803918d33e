"""CUDA graphs under mixed traffic on a recorded device: what was captured goes on being run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.runtime.gpu import cuda_session
from serving.search.beams.sentence import Sentence
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions
from serving.translation.running import RunningBatches
from tests.integration.gpu.test_cuda_graphs import write
from tests.integration.gpu.test_cuda_session import stepper_of
from tests.recorded_device import Recorded, recorded_gpu
from tests.unit.serving.echo import EchoTranslator

pytestmark = pytest.mark.usefixtures("traced_once")

LENGTHS = [4, 8, 10, 14, 20, 27, 35, 50]
LOADS = [1, 1, 2, 3, 5, 8, 12, 20]


@pytest.fixture
def gpu() -> Iterator[Recorded]:
    with recorded_gpu() as recorded:
        yield recorded


class Traffic:
    """Sentences of many lengths that come and go, few or many of them at a time."""

    def __init__(self, engine: RunningBatches) -> None:
        self._engine, self._rng = engine, random.Random(1)
        self._running: set[int] = set()
        self._begun = self._load = 0

    def run(self, steps: int) -> None:
        """Do that many steps."""
        for step in range(steps):
            if step % 60 == 0:
                self._load = self._rng.choice(LOADS)
            if step % 2 == 0 and len(self._running) < self._load:
                self._engine.join(self._next(self._load - len(self._running)))
            progress = self._engine.step()
            assert not progress.failed
            self._running -= {number for number, _ in progress.outcomes}

    def _next(self, count: int) -> dict[int, Sentence]:
        """New sentences by number."""
        found = {}
        for number in range(self._begun, self._begun + count):
            length = self._rng.choice(LENGTHS)
            source = [*(self._rng.randrange(5, 40) for _ in range(length)), EOS_ID]
            most = length + self._rng.randrange(6)
            options = SearchOptions(
                beam_size=4, max_length=most, min_length=max(1, most - 3), loop_guard=False
            )
            found[number] = Sentence(source, options)
        self._begun += count
        self._running |= found.keys()
        return found


def test_captured_graphs_go_on_being_run_under_mixed_traffic(
    tmp_path: Path, gpu: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_session, "MOST_GRAPHS", 48)
    stepper = stepper_of(write(tmp_path, "macaron", "cuda", "fp16"), "cuda")
    traffic = Traffic(EchoTranslator(stepper=stepper).engine())
    traffic.run(1400)
    captures = gpu.captures.values()
    before = sum(capture.runs for capture in captures)
    traffic.run(400)
    alive = {serial for serial, _ in gpu.live.values()}
    assert [capture for capture in captures if not capture.serials <= alive] == []
    share = (sum(capture.runs for capture in captures) - before) / 400
    assert share > 0.5
