"""Batches that go on: after a process was killed, a store that went away, a disk that was full; and
those that end because their key is gone or their answers are too many."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from serving.errors import (
    DecoderLostError,
    OverloadedError,
    RequestError,
    ServingError,
    StoreUnavailableError,
)
from serving.server.access.gate import Gatekeeper
from serving.server.http.access_log import RequestContext
from serving.server.http.settings import Settings
from serving.server.http.wire import error_response
from serving.server.work.batches import answers as answers_module
from serving.server.work.batches import running as running_module
from serving.server.work.batches import worker as worker_module
from serving.server.work.batches.answers import LineAnswers
from serving.server.work.batches.folder import FileFolder
from serving.server.work.batches.records import KIND, BatchWishes, result_of, written
from serving.server.work.batches.worker import BatchWorker
from serving.store.records.job import KeptFile, KeptJob
from serving.store.records.key import NO_LIMITS
from serving.store.store import Store
from tests.unit.serving.echo import wait_until

LINES = 60
SERVERS = multiprocessing.get_context("forkserver")
"""Makes processes that have imported this module already."""
SERVERS.set_forkserver_preload([__name__])
Answer = Callable[[int], Awaitable[Response]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(f"sqlite:///{tmp_path / 'store.db'}", tmp_path)
    yield store
    store.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats, looks and pauses are short."""
    make_quick(monkeypatch.setattr)


def make_quick(put: Callable[[object, str, float], None]) -> None:
    for name in ("_BEAT_S", "_LOOK_S", "_FULL_DISK_S", "_SWEEP_S"):
        put(worker_module, name, 0.05)
    put(worker_module, "LEASE_S", 1.5)


def put_batch(store: Store, folder: Path, lines: int = LINES, **others: Any) -> str:
    """Keep a batch whose lines have numbers; gives its id."""
    FileFolder(folder).write("file-in", (_line(number) for number in range(lines)))
    moment = time.time()
    fields = {"id": "batch_1", "owner": "", "deadline": moment + 3600, **others}
    file = KeptFile(
        id="file-in",
        owner=fields["owner"],
        purpose="batch",
        name="in",
        size=1,
        created=moment,
        expires=moment + 3600,
    )
    store.files.put(file)
    wishes = written(BatchWishes(endpoint="/x", input_file="file-in"))
    store.jobs.add(KeptJob(kind=KIND, wishes=wishes, created=moment, **fields), 10, 10)
    return str(fields["id"])


def _line(number: int) -> bytes:
    line = {"custom_id": f"n{number}", "method": "POST", "url": "/x", "body": {"number": number}}
    return json.dumps(line).encode() + b"\n"


def made(store: Store, folder: Path, answer: Answer, **settings: Any) -> BatchWorker:
    """A worker whose lines `answer` answers by their numbers."""

    async def answered(request: Request, context: RequestContext) -> Response:
        assert context.background
        return await answer((await request.json())["number"])

    def refuse(_: Scope, error: ServingError) -> Response:
        return error_response(error)

    own = Settings(**settings)
    return BatchWorker(store, FileFolder(folder), own, Gatekeeper(own), {"/x": answered}, refuse)


def done(store: Store, worker: Callable[[], BatchWorker], owner: str = "") -> KeptJob:
    """The only batch at its end."""

    async def work() -> KeptJob:
        own = worker()
        own.start()
        try:
            async with asyncio.timeout(30):
                while True:
                    job = store.jobs.get(owner, "batch_1")
                    if job is not None and job.ended is not None:
                        return job
                    await asyncio.sleep(0.02)
        finally:
            await own.close()

    return asyncio.run(work())


def results(folder: Path, id: str | None) -> list[Any]:
    return [json.loads(line) for line in (folder / str(id)).read_text().splitlines()]


async def echo(number: int) -> Response:
    return Response(json.dumps({"got": number}))


def _serve(url: str, folder: str, log: str) -> None:
    """A server process that answers slowly, and notes each answer before it gives it."""
    make_quick(setattr)
    store = Store(url, Path("/nowhere"))

    async def slow(number: int) -> Response:
        await asyncio.sleep(0.05)
        with open(log, "a") as file:
            file.write(f"{number}\n")
        return await echo(number)

    async def work() -> None:
        made(store, Path(folder), slow).start()
        await asyncio.Event().wait()

    asyncio.run(work())


def test_a_server_that_is_killed_costs_no_batch_and_no_finished_line_is_done_again(
    url: str, tmp_path: Path
) -> None:
    store, folder, log = Store(url, tmp_path), tmp_path / "files", tmp_path / "log"
    log.touch()
    put_batch(store, folder)
    for kept in (10, 30, LINES):
        process = SERVERS.Process(target=_serve, args=(url, str(folder), str(log)), daemon=True)
        process.start()
        if kept < LINES:
            wait_until(lambda kept=kept: _kept(folder) >= kept, 60)  # type: ignore[misc]
        else:
            wait_until(lambda: _job(store).ended is not None, 60)
            wait_until(lambda: not (folder / "progress" / "batch_1").exists(), 60)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(20)
    job = _job(store)
    assert (job.state, job.done, job.failed, job.total) == ("done", LINES, 0, LINES)
    good = results(folder, result_of(job).output_file)
    assert [each["custom_id"] for each in good] == [f"n{n}" for n in range(LINES)]
    assert [each["response"]["body"]["got"] for each in good] == list(range(LINES))
    answered = [int(number) for number in log.read_text().split()]
    assert set(answered) == set(range(LINES))
    assert len(answered) - LINES <= 2 * 8  # what was in flight at two kills
    store.close()


def _kept(folder: Path) -> int:
    """Lines whose answers are on the disk."""
    found = 0
    for path in folder.glob("progress/*/*"):
        with contextlib.suppress(FileNotFoundError):  # the server ends meanwhile
            found += path.read_bytes().count(b"\n")
    return found


def _job(store: Store) -> KeptJob:
    job = store.jobs.get("", "batch_1")
    assert job is not None
    return job


def test_two_servers_do_one_batch_once(url: str, tmp_path: Path) -> None:
    store, folder, log = Store(url, tmp_path), tmp_path / "files", tmp_path / "log"
    put_batch(store, folder)
    processes = [
        SERVERS.Process(target=_serve, args=(url, str(folder), str(log)), daemon=True)
        for _ in range(2)
    ]
    for process in processes:
        process.start()
    wait_until(lambda: _job(store).ended is not None, 60)
    for process in processes:
        process.kill()
        process.join(20)
    assert sorted(map(int, log.read_text().split())) == list(range(LINES))
    store.close()


def test_batches_take_turns_and_no_line_is_answered_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, seen = tmp_path / "files", []
    monkeypatch.setattr(worker_module, "_TURN_S", 0.1)
    for id in ("batch_long", "batch_1"):
        put_batch(store, folder, 40, id=id)

    async def slow(number: int) -> Response:
        seen.append(number)
        await asyncio.sleep(0.1)
        return await echo(number)

    def long() -> KeptJob:
        job = store.jobs.get("", "batch_long")
        assert job is not None
        return job

    async def both() -> None:
        worker = made(store, folder, slow)
        worker.start()
        async with asyncio.timeout(60):
            while _job(store).done == 0:
                await asyncio.sleep(0.01)
            assert 0 < long().done < 40
            while _job(store).ended is None or long().ended is None:
                await asyncio.sleep(0.02)
        await worker.close()

    asyncio.run(both())
    assert (_job(store).done, long().done) == (40, 40)
    assert sorted(seen) == sorted([*range(40)] * 2)
    assert (_job(store).attempts, long().attempts) == (1, 1)


def test_a_batch_that_is_long_opened_has_its_turn_after_that(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read = tmp_path / "files", running_module.read_lines
    monkeypatch.setattr(worker_module, "_TURN_S", 0.1)

    def slowly(*given: Any) -> Any:
        time.sleep(0.4)
        return read(*given)

    monkeypatch.setattr(running_module, "read_lines", slowly)
    for id in ("batch_other", "batch_1"):
        put_batch(store, folder, 3, id=id)
    assert done(store, lambda: made(store, folder, echo)).done == 3


def test_a_batch_whose_lines_are_refused_for_now_holds_up_no_other(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a key whose minute is used up are."""
    folder = tmp_path / "files"
    monkeypatch.setattr(worker_module, "_TURN_S", 0.1)
    put_batch(store, folder, 9, id="batch_stuck")
    put_batch(store, folder, 3)

    async def stuck(number: int) -> Response:
        job = store.jobs.get("", "batch_stuck")
        if job is not None and job.state == "running":
            error = OverloadedError("full")
            error.retry_after_s = 0.05
            raise error
        return await echo(number)

    assert done(store, lambda: made(store, folder, stuck)).done == 3


@pytest.mark.parametrize("opens", ["opened", "answers"])
def test_a_file_that_is_opened_while_the_server_ends_is_closed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opens: str
) -> None:
    folder = tmp_path / "files"
    put_batch(store, folder, 3)
    opening, ended = threading.Event(), threading.Event()
    closed = list[bool]()
    open_file = getattr(FileFolder, opens)

    def slowly(*given: Any) -> Any:
        opening.set()
        ended.wait(10)
        file = open_file(*given)
        close = file.close

        def noting() -> None:
            close()
            closed.append(True)

        monkeypatch.setattr(file, "close", noting)
        return file

    monkeypatch.setattr(FileFolder, opens, slowly)

    async def begin() -> None:
        worker = made(store, folder, echo)
        worker.start()
        await asyncio.to_thread(opening.wait, 10)
        await worker.close()
        ended.set()

    asyncio.run(begin())
    assert closed == [True]


def test_a_batch_is_given_back_when_the_server_ends(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    put_batch(store, folder, 20)
    seen = []

    async def first_ten(number: int) -> Response:
        seen.append(number)
        if number >= 10:
            await asyncio.Event().wait()
        return await echo(number)

    async def begin() -> None:
        worker = made(store, folder, first_ten)
        worker.start()
        while _kept(folder) < 10:
            await asyncio.sleep(0.01)
        await worker.close()

    asyncio.run(begin())
    assert (_job(store).state, _job(store).attempts) == ("waiting", 0)
    seen.clear()

    async def rest(number: int) -> Response:
        seen.append(number)
        return await echo(number)

    assert done(store, lambda: made(store, folder, rest)).done == 20
    assert sorted(seen) == list(range(10, 20))


def test_a_batch_that_is_gone_on_with_does_not_come_further_by_what_was_there(
    store: Store, tmp_path: Path
) -> None:
    """Otherwise a line that ends its servers would be tried for ever."""
    folder = tmp_path / "files"
    put_batch(store, folder, 9)
    first = store.jobs.claim(KIND, -1)  # its lease is over
    assert first is not None
    answers = FileFolder(folder).answers(first.id, "before", 9)
    for number in range(8):
        answers.add(number, b"{}", good=True)
    answers.close()
    store.jobs.beat(first, -1, 8, 0, 9)
    told: list[tuple[int, ...]] = []
    beat = store.jobs.beat

    def noted(job: KeptJob, lease_s: float, *counts: int) -> KeptJob | None:
        told.append(counts)
        return beat(job, lease_s, *counts)

    async def begin() -> None:
        async def never(number: int) -> Response:
            await asyncio.Event().wait()
            return await echo(number)

        worker = made(store, folder, never)
        worker.start()
        while len(told) < 4:
            await asyncio.sleep(0.01)
        assert _job(store).attempts == 2
        await worker.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.jobs, "beat", noted)
        asyncio.run(begin())
    assert set(told) == {(8, 0, 9)}


def test_a_batch_that_is_given_up_keeps_its_answers(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    put_batch(store, folder, 3)
    for _ in range(3):
        job = store.jobs.claim(KIND, -1)  # its lease is over
        assert job is not None
    answers = FileFolder(folder).answers("batch_1", "before", 3)
    answers.add(1, b'{"custom_id": "n1"}', good=True)
    answers.close()
    job = done(store, lambda: made(store, folder, echo))
    result = result_of(job)
    assert (job.state, job.done, job.failed) == ("failed", 1, 2)
    assert [fault.code for fault in result.faults] == ["job_lost"]
    assert results(folder, result.output_file) == [{"custom_id": "n1"}]
    errors = results(folder, result.error_file)
    assert [(each["custom_id"], each["error"]["code"]) for each in errors] == [
        ("n0", "job_lost"),
        ("n2", "job_lost"),
    ]


def test_a_server_ends_though_its_store_is_away(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "files"
    put_batch(store, folder, 2)

    def gone(_: KeptJob, *counts: int) -> bool:
        raise StoreUnavailableError("gone")

    async def begin() -> None:
        begun = asyncio.Event()

        async def never(number: int) -> Response:
            begun.set()
            await asyncio.Event().wait()
            return await echo(number)

        worker = made(store, folder, never)
        worker.start()
        await begun.wait()
        monkeypatch.setattr(store.jobs, "give_back", gone)
        async with asyncio.timeout(5):
            await worker.close()

    asyncio.run(begin())


def test_a_line_is_sent_again_after_errors_that_pass_and_fails_with_others(
    store: Store, tmp_path: Path
) -> None:
    folder, tries = tmp_path / "files", dict.fromkeys(range(5), 0)
    put_batch(store, folder, 5)

    async def faulty(number: int) -> Response:
        tries[number] += 1
        error: Exception
        if number == 0 and tries[0] < 6:  # as long as the queue is full
            error = OverloadedError("full")
            error.retry_after_s = 0.01
        elif number == 1:  # its own fault, perhaps
            error = DecoderLostError("lost")
            error.retry_after_s = 0.01
        elif number == 2:
            error = RequestError("no")
        elif number == 3:
            error = ZeroDivisionError()
        else:
            return await echo(number)
        raise error

    job = done(store, lambda: made(store, folder, faulty))
    assert (job.done, job.failed) == (2, 3)
    assert tries == {0: 6, 1: 3, 2: 1, 3: 1, 4: 1}
    errors = results(folder, result_of(job).error_file)
    assert [each["response"]["status_code"] for each in errors] == [503, 400, 500]


def test_a_full_disk_and_a_store_that_goes_away_are_waited_for(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "files"
    put_batch(store, folder, 30)
    keep, beat, finish = LineAnswers.add, store.jobs.beat, store.jobs.finish
    faults = {"disk": 3, "store": 3, "finish": 3}

    def on_a_full_disk(self: LineAnswers, number: int, answer: bytes, *, good: bool) -> None:
        if number == 20 and faults["disk"]:
            faults["disk"] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        keep(self, number, answer, good=good)

    def without_a_store(*given: Any) -> KeptJob | None:
        if faults["store"]:
            faults["store"] -= 1
            raise StoreUnavailableError("gone")
        return beat(*given)

    def without_an_end(*given: Any) -> bool:
        if faults["finish"]:
            faults["finish"] -= 1
            raise StoreUnavailableError("gone")
        return finish(*given)

    monkeypatch.setattr(LineAnswers, "add", on_a_full_disk)
    monkeypatch.setattr(store.jobs, "finish", without_an_end)
    monkeypatch.setattr(worker_module, "LEASE_S", 60)  # it is not claimed again
    monkeypatch.setattr(store.jobs, "beat", without_a_store)
    job = done(store, lambda: made(store, folder, echo))
    assert (job.state, job.done, faults) == ("done", 30, {"disk": 0, "store": 0, "finish": 0})
    assert job.attempts == 1


def test_answers_that_are_too_many_end_a_batch(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    put_batch(store, folder, 40)

    async def long(number: int) -> Response:
        return Response(json.dumps({"got": "x" * 500}))

    job = done(store, lambda: made(store, folder, long, max_file_bytes=5000))
    assert job.state == "done"
    assert (job.done + job.failed, job.done < 30) == (40, True)
    errors = results(folder, result_of(job).error_file)
    assert {each["error"]["code"] for each in errors} == {"too_much_output"}


@pytest.mark.parametrize("gone", ["deleted", "disabled"])
def test_a_batch_ends_with_its_key(store: Store, tmp_path: Path, gone: str) -> None:
    folder = tmp_path / "files"
    key, _ = store.keys.create("mine", NO_LIMITS, "", 10)
    put_batch(store, folder, 20, owner=key.id)

    async def until_it_is_gone(number: int) -> Response:
        if number == 12:
            if gone == "deleted":
                await asyncio.to_thread(store.keys.delete, key.id, "")
            else:
                disabled = lambda old: type(old)(  # noqa: E731
                    old.id, old.label, old.created, 1.0, old.limits
                )
                await asyncio.to_thread(store.keys.change, key.id, disabled, "")
            await asyncio.Event().wait()
        return await echo(number)

    job = done(store, lambda: made(store, folder, until_it_is_gone), key.id)
    assert job.state == "cancelled"
    errors = results(folder, result_of(job).error_file)
    assert {each["error"]["code"] for each in errors} == {"key_disabled"}


def test_a_line_is_sent_no_longer_than_it_is(store: Store, tmp_path: Path) -> None:
    """Otherwise a line that the limit of bodies allows would be refused."""
    folder, body = tmp_path / "files", '{"number":0,"text":"Grüße, 東京"}'.encode()
    put_batch(store, folder, 1)
    line = b'{"custom_id":"n0","method":"POST","url":"/x","body":%s}\n' % body
    FileFolder(folder).write("file-in", [line])
    bodies = []

    async def answered(request: Request, _: RequestContext) -> Response:
        bodies.append(await request.body())
        return await echo(0)

    own, refuse = Settings(), lambda _, error: error_response(error)
    folder_of = FileFolder(folder)
    done(
        store,
        lambda: BatchWorker(store, folder_of, own, Gatekeeper(own), {"/x": answered}, refuse),
    )
    assert bodies == [body]


def test_an_input_that_was_deleted_fails_in_plain_words(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    put_batch(store, folder, 20)
    (folder / "file-in").unlink()
    job = done(store, lambda: made(store, folder, echo))
    assert (job.state, result_of(job).faults[0].code) == ("failed", "input_file_missing")


def test_an_input_that_is_deleted_meanwhile_costs_no_answer(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    put_batch(store, folder, 20)

    async def deleted(number: int) -> Response:
        (folder / "file-in").unlink(missing_ok=True)
        return await echo(number)

    assert done(store, lambda: made(store, folder, deleted)).done == 20


def test_an_input_that_was_deleted_between_two_runs_leaves_the_answers(
    store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    put_batch(store, folder, 20, total=20)
    answers = FileFolder(folder).answers("batch_1", "before", 20)
    answers.add(1, b'{"custom_id": "n1"}', good=True)
    answers.close()
    (folder / "file-in").unlink()
    job = done(store, lambda: made(store, folder, echo))
    assert (job.state, job.done) == ("failed", 1)
    assert results(folder, result_of(job).output_file) == [{"custom_id": "n1"}]


def test_what_belongs_to_nothing_is_swept_and_what_has_expired_and_nothing_of_others(
    store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    put_batch(store, folder, 3)
    lost, new = (f"file-{digit * 32}" for digit in "01")
    for name in (lost, f"{lost}.part", new, "store.db"):  # the last is somebody else's
        FileFolder(folder).write(name, [b"x"])
    for name in (lost, f"{lost}.part", "store.db", "file-in"):
        os.utime(folder / name, (1, 1))
    job = done(store, lambda: made(store, folder, echo, document_hours=0.0001))

    async def sweep() -> None:
        worker = made(store, folder, echo)
        worker.start()
        while (folder / str(result_of(job).output_file)).exists() or store.jobs.get("", job.id):
            await asyncio.sleep(0.02)
        await worker.close()

    asyncio.run(asyncio.wait_for(sweep(), 20))
    left = sorted(path.name for path in folder.iterdir())
    assert left == [new, "file-in", "progress", "store.db"]


def test_lines_that_were_cut_off_or_written_twice_count_once(tmp_path: Path) -> None:
    """As a server leaves them that was killed, and one that has lost its claim."""
    for claim, content in (
        ("a", b'0 1 {"a": 0}\n1 0 {"a": 1}\n2 1 {"a"'),
        ("b", b'2 1 {"b": 2}\n0 1 {"b": 0}\n'),
    ):
        (tmp_path / "progress/job").mkdir(parents=True, exist_ok=True)
        (tmp_path / "progress/job" / claim).write_bytes(content)
    answers = FileFolder(tmp_path).answers("job", "c", 4)
    assert (answers.done, answers.failed, 3 in answers) == (2, 1, False)
    answers.add(3, b'{"c": 3}', good=True)
    assert list(answers.lines(good=True)) == [b'{"a": 0}\n', b'{"b": 2}\n', b'{"c": 3}\n']
    assert list(answers.lines(good=False)) == [b'{"a": 1}\n']
    answers.close()
    again = FileFolder(tmp_path).answers("job", "d", 4)
    assert (again.done, again.failed, len(again)) == (3, 1, 4)
    again.close()
    assert [path.name for path in (tmp_path / "progress/job").iterdir()] == ["d"]


def test_all_answers_are_shared_whoever_writes_meanwhile(tmp_path: Path) -> None:
    """A file tells of what it holds back as well."""
    parts: list[bytes] = []

    class Late(io.FileIO):
        def write(self, content: Any) -> int:
            time.sleep(0.001)
            return super().write(content) or 0

    own = io.BufferedRandom(Late(tmp_path / "own", "w+"))
    answers = LineAnswers(cast(BinaryIO, own), 200, parts.append)
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(8) as pool:
        patch.setattr(answers_module, "_SHARE_S", 0.0)
        list(pool.map(lambda n: answers.add(n, b"{}", good=True), range(200)))
    answers.share()
    answers.close()
    assert b"".join(parts) == (tmp_path / "own").read_bytes()
    assert len(b"".join(parts).splitlines()) == 200
