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
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from serving.errors import (
    BundleError,
    CancelledError,
    DecoderLostError,
    DecodingError,
    InvalidOptionError,
)
from serving.processes.group import ProcessGroup
from serving.processes.isolated import IsolatedEngine
from serving.processes.loop import DecodingLoop, portable
from serving.processes.orders import Order
from serving.processes.translator import IsolatedTranslator
from serving.search.options import SearchOptions
from serving.server.http.metrics import Metrics, State
from serving.text.terms import Terms
from serving.translation.results import Translation
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Completed, PartialTranslation, Request, TranslationTicket
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
        self.processes = ProcessGroup(2, forks=True)
        super().__init__(BUNDLE, processes=self.processes)
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
    loop = DecodingLoop([(echo.engine(), Connection(other.detach()))])  # type: ignore[list-item]
    process = threading.Thread(target=loop.run, daemon=True)
    process.start()
    texts = [POISON, "abc", "defghi"]
    sentences = {
        n: echo.texts.prepare(Request(text=text, options=echo.default_options))
        for n, text in enumerate(texts)
    }
    parent.send(Order(tasks=sentences))  # type: ignore[arg-type]
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
    tickets = [scheduler.submit(Request(text=f"{TEXTS[4]} {n}")) for n in range(80)]
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
    tickets = [scheduler.submit(Request(text=text)) for text in TEXTS]
    scheduler.close(PATIENT)
    assert all(ticket.result(0).translation.text for ticket in tickets)
    assert not any(map(alive, ended))


def test_processes_end_with_a_parent_that_is_killed() -> None:
    program = (
        "import time; from pathlib import Path\n"
        "from serving.processes.translator import IsolatedTranslator\n"
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
    engine = processes.handed_out[0]
    group = processes.processes
    revive, failures = group.revive, [OSError("no memory"), RuntimeError("MemoryError")]

    def fail_first(place: int) -> None:
        if failures:
            raise failures.pop()
        revive(place)

    monkeypatch.setattr(group, "revive", fail_first)
    os.kill(processes.pids[0], signal.SIGKILL)
    wait_until(lambda: engine.lost)
    begin = time.monotonic()
    while failures or engine.lost:
        assert scheduler.submit(Request(text=f"{len(failures)} Tom")).result(PATIENT)
        assert time.monotonic() - begin < PATIENT
    assert processes.pids[0] > 0


ENGLISH = ["This is a house.", "Where is the harbour?", "He has a dog.", "It rains."]


class TwoModels:
    """Two models in the same two processes."""

    def __init__(self) -> None:
        self.group = ProcessGroup(2, forks=True)
        loaded = [
            IsolatedTranslator(MODELS / name, processes=self.group)
            for name in ("macaron-de-en", "macaron-en-de")
        ]
        self.german, self.english = (TranslationScheduler(each, workers=2) for each in loaded)

    def close(self) -> None:
        for scheduler in (self.german, self.english):
            scheduler.close(PATIENT)

    @property
    def pids(self) -> set[int]:
        return self.group.decoder_pids


@pytest.fixture
def models() -> Iterator[TwoModels]:
    models = TwoModels()
    yield models
    models.close()


def translations(tickets: Sequence[TranslationTicket]) -> list[Translation]:
    return [ticket.result(PATIENT).translation for ticket in tickets]


def test_two_models_share_processes_and_neither_changes_the_other(
    translator: Translator, models: TwoModels
) -> None:
    other = Translator(MODELS / "macaron-en-de", threads=1)
    assert len(models.pids) == 2
    german = [Request(text=text) for text in TEXTS] * 3
    english = [Request(text=text) for text in ENGLISH] * 3
    wanted = [alone(translator, request) for request in german]
    wanted_too = [alone(other, request) for request in english]
    found = models.german.submit_all(german), models.english.submit_all(english)
    assert translations(found[0]) == wanted
    assert translations(found[1]) == wanted_too


def test_a_model_that_is_loaded_later_is_shared_and_loses_nothing(models: TwoModels) -> None:
    before = models.pids
    running = models.german.submit_all([Request(text=f"{TEXTS[4]} {n}") for n in range(20)])
    wait_until(lambda: models.german.num_held > 0)
    late = IsolatedTranslator(MODELS / "joint-fast-de-en", processes=models.group)
    scheduler = TranslationScheduler(late, workers=2)
    assert not models.pids & before  # all decode in processes that know the new one
    assert scheduler.submit(Request(text=TEXTS[3])).result(PATIENT).translation.text
    assert all(translation.text for translation in translations(running))
    wait_until(lambda: not any(map(alive, before)))  # and those that do not have ended
    with_it = models.pids
    scheduler.close(PATIENT)
    assert not models.pids & with_it  # nor does what has left keep its memory
    assert models.english.submit(Request(text=ENGLISH[0])).result(PATIENT).translation.text


def test_only_what_kills_its_process_fails(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sentence on which every process dies, in company of one model and of another."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal\n"
        "from serving.translation.running import RunningBatches\n"
        "advance = RunningBatches.advance\n"
        "def die(self):\n"
        "    advance(self)\n"
        "    for batch in self._batches.values():\n"
        "        if any(s.options.max_length == 77 for s in batch.sentences.values()):\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "RunningBatches.advance = die\n"
    )
    paths = [str(MODELS.parent), str(tmp_path)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    models = TwoModels()
    german = [Request(text=f"{TEXTS[n % len(TEXTS)]} {n}") for n in range(24)]
    english = [Request(text=f"{text} {LONG}") for text in ENGLISH]
    options = dataclasses.replace(translator.default_options, max_length=77)
    innocent = models.german.submit_all(german), models.english.submit_all(english)
    poison = models.german.submit(Request(text=TEXTS[0], options=options))
    with pytest.raises(DecoderLostError, match="try again"):
        poison.result(PATIENT)
    wanted = [alone(translator, request) for request in german]
    assert translations(innocent[0]) == wanted
    assert all(translation.text for translation in translations(innocent[1]))
    models.close()


def test_a_loading_process_that_dies_is_replaced_when_it_is_needed(models: TwoModels) -> None:
    (loader,) = models.group.loader_pids
    os.kill(loader, signal.SIGKILL)
    wait_until(lambda: psutil.Process(loader).status() == psutil.STATUS_ZOMBIE)
    assert models.german.submit(Request(text=TEXTS[3])).result(PATIENT).translation.text
    before = models.pids
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    assert models.english.submit(Request(text=ENGLISH[0])).result(PATIENT).translation.text
    wait_until(lambda: not models.pids & before)  # the other decoder has noticed too
