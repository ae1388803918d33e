"""Models in a loop of decoding: added while it runs, and failing."""

from __future__ import annotations

import threading
from multiprocessing import Pipe

import pytest

from serving.errors import DeviceLostError, DeviceMemoryError
from serving.processes.loop import DecodingLoop
from serving.processes.orders import Order
from serving.search.beams.sentence import Sentence
from serving.search.ids import EOS_ID
from serving.translation.running import RunningBatches
from tests.unit.serving.echo import EchoTranslator


class Adding(RunningBatches):
    """Has another model added while it is asked whether it has anything to do."""

    def __init__(self, loop: DecodingLoop) -> None:
        translator = EchoTranslator()
        super().__init__(translator.texts, translator.steppers)
        self._loop, self.others = loop, 3

    @property
    def busy(self) -> bool:
        if self.others:
            self.others -= 1
            translator = EchoTranslator()
            engine = RunningBatches(translator.texts, translator.steppers)
            self._loop.add(engine, Pipe()[0])
        return False


def test_a_model_may_be_added_while_the_others_are_looked_at() -> None:
    loop = DecodingLoop(lasting=True)
    adding = Adding(loop)
    loop.add(adding, Pipe()[0])
    threading.Timer(0.2, loop.end).start()
    loop.run()
    assert adding.others < 3


class Failing(RunningBatches):
    """Fails at its first step, as a whole."""

    def __init__(self) -> None:
        translator = EchoTranslator()
        super().__init__(translator.texts, translator.steppers)
        self.failures = 1

    def advance(self) -> None:
        if self.failures:
            self.failures -= 1
            raise DeviceMemoryError("no room")
        super().advance()


def test_a_model_that_fails_as_a_whole_says_why_and_goes_on() -> None:
    own, other = Pipe()
    loop = DecodingLoop([(Failing(), other)])
    threading.Thread(target=loop.run, daemon=True).start()
    own.send(Order(tasks={1: Sentence([5, 6, EOS_ID])}))
    error = own.recv()
    assert isinstance(error, DeviceMemoryError)
    assert str(error) == "no room"
    own.send(Order(cancelled=(1,), tasks={2: Sentence([7, EOS_ID])}))
    numbers: list[int] = []
    while not numbers:
        numbers = [number for number, _ in own.recv().outcomes]
    assert numbers == [2]  # what had failed is gone
    own.close()


class Lost(RunningBatches):
    """Loses the GPU at its second step: as a whole, or at one of its texts."""

    def __init__(self, *, whole: bool) -> None:
        translator = EchoTranslator()
        super().__init__(translator.texts, translator.steppers)
        self._whole, self._steps = whole, 0

    def advance(self) -> None:
        self._steps += 1
        if self._steps == 1:
            super().advance()
            return
        error = DeviceLostError("the GPU has failed (CUDA failure 700)")
        if self._whole:
            raise error
        self.progress.failed.append((1, error))


@pytest.mark.parametrize("whole", [True, False])
def test_without_its_gpu_a_loop_ends_and_tells_nothing(whole: bool) -> None:
    own, other = Pipe()
    loop = DecodingLoop([(Lost(whole=whole), other)])
    own.send(Order(tasks={1: Sentence([5, 6, 7, 8, EOS_ID])}))
    late = threading.Timer(10.0, loop.end)
    late.start()
    with pytest.raises(DeviceLostError, match="CUDA failure 700"):
        loop.run()
    late.cancel()
    while own.poll():
        assert own.recv().failed == []
