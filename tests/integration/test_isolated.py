"""Decoding in processes of their own: the same results, and what happens when one of them ends."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from serving.errors import (
    BundleError,
    CancelledError,
    DecodingError,
    InvalidOptionError,
)
from serving.search.options import SearchOptions
from serving.server.metrics import Metrics, State
from serving.text.terms import Terms
from serving.translation.decoder_process import portable, serve
from serving.translation.isolated import IsolatedEngine, IsolatedTranslator, Order
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Completed, PartialTranslation, Request
from serving.translation.translator import Translator
from tests.integration.demo import MODELS, TEXTS, alone
from tests.unit.serving.echo import POISON, EchoTranslator, wait_until

BUNDLE = MODELS / "macaron-de-en"
LONG = " ".join(TEXTS * 3)
PATIENT = 60.0


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator(BUNDLE, threads=1)


class TwoProcesses(IsolatedTranslator):
    """Remembers the engines that it has handed out."""

    def __init__(self) -> None:
        super().__init__(BUNDLE, workers=2)
        self.handed_out: list[IsolatedEngine] = []

    def engine(self) -> IsolatedEngine:
        self.handed_out.append(super().engine())
        return self.handed_out[-1]

    @property
    def pids(self) -> list[int]:
        return [engine.pid for engine in self.handed_out]


@pytest.fixture
def processes() -> TwoProcesses:
    return TwoProcesses()


@pytest.fixture
def scheduler(processes: TwoProcesses) -> Iterator[TranslationScheduler]:
    scheduler = TranslationScheduler(processes, workers=2)
    yield scheduler
    scheduler.close(PATIENT)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_results_are_those_of_the_translator_to_the_bit(
    translator: Translator, scheduler: TranslationScheduler
) -> None:
    options = dataclasses.replace(translator.default_options, num_hypotheses=2)
    choices = dataclasses.replace(options, return_alternatives=True)
    terms = Terms(required=("building",), forbidden=("old",), glossary=(("Zeit", "hour"),))
    requests = [
        *(Request(text=text, options=options) for text in TEXTS),
        Request(text=TEXTS[0], options=options, terms=terms),
        Request(text=TEXTS[2], options=options, alignments=True, stream=True),
        Request(text=TEXTS[3], options=choices, target_prefix="Where", alignments=True),
    ]
    wanted = [alone(translator, request) for request in requests]
    found = [ticket.result(PATIENT) for ticket in scheduler.submit_all(requests)]
    assert [completed.translation for completed in found] == wanted
    for completed in found:
        assert completed.timing.queue_s >= 0
        assert completed.timing.encode_s > 0
        assert completed.timing.decode_s > 0
        assert 1 <= completed.timing.batch_size <= len(requests)


def test_a_stream_tells_ever_more_of_the_result(scheduler: TranslationScheduler) -> None:
    async def follow() -> tuple[list[str], Completed]:
        ticket = scheduler.submit(Request(text=TEXTS[4], stream=True))
        told = []
        async for event in ticket.events():
            if isinstance(event, PartialTranslation):
                told.append(event.text)
            else:
                return told, event
        raise AssertionError

    told, completed = asyncio.run(follow())
    assert told
    for text, longer in zip(told, [*told[1:], completed.translation.text], strict=True):
        assert longer.startswith(text)


def test_a_sentence_that_fails_keeps_its_error_and_spares_its_neighbours() -> None:
    own, other = socket.socketpair()
    parent, echo = Connection(own.detach()), EchoTranslator()
    process = threading.Thread(
        target=serve, args=(echo.engine(), Connection(other.detach())), daemon=True
    )
    process.start()
    texts = [POISON, "abc", "defghi"]
    sentences = {n: echo.texts.prepare(text, echo.default_options) for n, text in enumerate(texts)}
    parent.send(Order(sentences=sentences))  # type: ignore[arg-type]
    outcomes, failed = {}, {}
    while len(outcomes) + len(failed) < len(texts):
        progress = parent.recv()
        outcomes |= dict(progress.outcomes)
        failed |= dict(progress.failed)
    assert isinstance(failed[0], DecodingError)
    assert any("complete" in note for note in failed[0].__notes__)
    assert [outcomes[number].translation.text for number in (1, 2)] == texts[1:]
    parent.close()
    process.join(PATIENT)
    assert not process.is_alive()


def test_a_cancelled_sentence_makes_room(scheduler: TranslationScheduler) -> None:
    tickets = [scheduler.submit(Request(text=f"{LONG} {n}")) for n in range(20)]
    wait_until(lambda: scheduler.num_held > 0)
    for ticket in tickets:
        ticket.cancel()
    wait_until(lambda: scheduler.num_held == 0)
    with pytest.raises(CancelledError):
        tickets[0].result(0)
    assert scheduler.submit(Request(text=TEXTS[3])).result(PATIENT).translation.text


def test_a_cancelled_sentence_leaves_though_nothing_else_happens(
    scheduler: TranslationScheduler, processes: TwoProcesses
) -> None:
    (pid,) = processes.pids[:1]
    options = SearchOptions(beam_size=5, min_length=1999, max_length=2000)
    ticket = scheduler.submit(Request(text=TEXTS[4], options=options))
    wait_until(lambda: scheduler.num_held == 1)
    ticket.cancel()
    wait_until(lambda: scheduler.num_held == 0, 5)
    scheduler.close(5)  # or else it would go on for minutes
    assert not alive(pid)


def test_what_a_process_decodes_is_decoded_elsewhere_when_it_dies() -> None:
    metrics = Metrics(lambda: State(ready=True, models=[]))
    processes = TwoProcesses()
    scheduler = TranslationScheduler(processes, workers=2, observer=metrics.observer("m"))
    before = processes.pids
    tickets = [scheduler.submit(Request(text=f"{LONG} {n}")) for n in range(200)]
    wait_until(lambda: scheduler.num_held > 32)  # more than one of them can hold
    os.kill(before[0], signal.SIGKILL)
    for ticket in tickets:
        assert ticket.result(PATIENT).translation.text
    wait_until(lambda: processes.pids[0] != before[0] and scheduler.num_held == 0)
    assert processes.pids[1] == before[1]
    assert b'macaron_decoders_lost_total{model="m"} 1.0' in metrics.text()
    scheduler.close(PATIENT)


def test_nothing_is_lost_with_an_idle_process(
    scheduler: TranslationScheduler, processes: TwoProcesses
) -> None:
    before = processes.pids
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: all(engine.lost for engine in processes.handed_out))
    tickets = [scheduler.submit(Request(text=text)) for text in TEXTS]
    for ticket in tickets:
        assert ticket.result(PATIENT).translation.text


def test_processes_end_with_the_scheduler_after_their_work() -> None:
    processes = TwoProcesses()
    scheduler = TranslationScheduler(processes, workers=2)
    ended = processes.pids
    assert scheduler.resident_bytes > 2 * 20e6
    tickets = [scheduler.submit(Request(text=text)) for text in TEXTS]
    scheduler.close(PATIENT)
    assert all(ticket.result(0).translation.text for ticket in tickets)
    assert not any(map(alive, ended))


def test_processes_end_with_a_parent_that_is_killed() -> None:
    program = (
        "import time; from pathlib import Path\n"
        "from serving.translation.isolated import IsolatedTranslator\n"
        f"translator = IsolatedTranslator(Path({str(BUNDLE)!r}), workers=2)\n"
        "print(*(translator.engine().pid for _ in range(2)), flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=BUNDLE.parents[1], text=True
    ) as parent:
        assert parent.stdout is not None
        children = [int(word) for word in parent.stdout.readline().split()]
        assert len(children) == 2
        parent.kill()
    wait_until(lambda: not any(map(alive, children)))


def test_signals_to_end_are_left_to_the_server(
    scheduler: TranslationScheduler, processes: TwoProcesses
) -> None:
    for pid in processes.pids:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(pid, number)
    before = processes.pids
    assert scheduler.submit(Request(text=TEXTS[3])).result(PATIENT).translation.text
    assert processes.pids == before


def test_a_bundle_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    for file in BUNDLE.iterdir():
        (tmp_path / file.name).symlink_to(file)
    step = tmp_path / "step.onnx"
    assert step.exists()
    step.unlink()
    step.write_bytes(b"no graph")
    with pytest.raises(BundleError, match=r"step\.onnx"):
        IsolatedTranslator(tmp_path)


def test_one_worker_finds_its_number_of_threads() -> None:
    scheduler = TranslationScheduler(IsolatedTranslator(BUNDLE, threads=2, tune=True))
    assert scheduler.submit(Request(text=TEXTS[3])).result(PATIENT).translation.text
    scheduler.close(PATIENT)


def test_errors_survive_the_way() -> None:
    class LocalError(Exception):  # no other process knows it
        pass

    def fail(error: Exception) -> Exception:
        try:
            raise error
        except Exception as raised:
            return portable(raised)

    found = pickle.loads(pickle.dumps(fail(LocalError("what happened"))))
    assert str(found) == "LocalError: what happened"
    assert any("in fail" in note for note in found.__notes__)
    known = InvalidOptionError("beam_size")
    known.index = 3
    found = pickle.loads(pickle.dumps(fail(known)))
    assert (type(found), str(found), found.index) == (InvalidOptionError, "beam_size", 3)


def test_a_process_that_does_not_start_is_tried_again(
    scheduler: TranslationScheduler, processes: TwoProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.queue.decoder._RETRY_S", 0.1)
    engine = processes.handed_out[0]
    start, failures = engine._start, [OSError("no memory"), RuntimeError("MemoryError")]  # type: ignore[attr-defined]

    def restart() -> None:
        if failures:
            raise failures.pop()
        start()

    monkeypatch.setattr(engine, "_start", restart)
    os.kill(processes.pids[0], signal.SIGKILL)
    wait_until(lambda: engine.lost)
    begin = time.monotonic()
    while failures or engine.lost:
        assert scheduler.submit(Request(text=f"{len(failures)} Tom")).result(PATIENT)
        assert time.monotonic() - begin < PATIENT
    assert processes.pids[0] > 0
