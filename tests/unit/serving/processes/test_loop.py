"""Models that are added to a loop of decoding while it runs."""

from __future__ import annotations

import threading
from multiprocessing import Pipe

from serving.processes.loop import DecodingLoop
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
