"""Answers the lines of one batch; interactive requests take precedence."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, BinaryIO, TypeVar

import pydantic_core
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Scope

from serving.errors import DeadlineExceededError, RequestError, ServingError
from serving.server.access.gate import Gatekeeper
from serving.server.http.access_log import CONTEXT, RequestContext
from serving.server.http.settings import Settings, variable
from serving.server.work.batches.answers import LineAnswers
from serving.server.work.batches.bucket import FileBucket
from serving.server.work.batches.folder import FileFolder
from serving.server.work.batches.lines import BatchLines, read_lines
from serving.server.work.batches.records import LOST, BatchFault, wishes_of
from serving.server.work.courtesy import FATAL, PASSING, Tries, attentive
from serving.store.records.job import JobState, KeptJob
from serving.store.records.key import NO_LIMITS, KeyLimits

_AT_ONCE = 8
"""Lines answered at the same time while no client waits."""
_LOOK_S = 0.2

Answering = Callable[[Request, RequestContext], Awaitable[Response]]
"""Answers the requests of a path; raises ServingError."""
Refuse = Callable[[Scope, ServingError], Response]
"""Builds the error response of a request."""

T = TypeVar("T", BinaryIO, LineAnswers)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stop:
    """The reason why the remaining lines get no answer."""

    state: JobState
    code: str
    message: str


CANCELLED = Stop("cancelled", "batch_cancelled", "the batch was cancelled before this line")
KEY_GONE = Stop("cancelled", "key_disabled", "the API key of the batch is not valid any more")
_GIVEN_UP = Stop("failed", LOST.code, LOST.message)
_EXPIRED = Stop(
    "expired",
    "batch_expired",
    "This request could not be executed before the completion window expired.",
)


@dataclass(frozen=True)
class BatchEnd:
    """The outcome of a batch, or of its current turn (`waiting`)."""

    state: JobState
    stop: Stop | None = None
    faults: tuple[BatchFault, ...] = ()


class BatchRun:
    """One run of a batch, from checking its lines to the last answer. Used on the event loop
    only."""

    def __init__(
        self,
        job: KeptJob,
        folder: FileFolder | FileBucket,
        settings: Settings,
        gatekeeper: Gatekeeper,
        answering: Mapping[str, Answering],
        refuse: Refuse,
    ) -> None:
        self._job, self._wishes, self._folder = job, wishes_of(job), folder
        self._settings, self._gatekeeper = settings, gatekeeper
        self._answering, self._refuse = answering, refuse
        self._lines: BatchLines | None = None
        self._answers: LineAnswers | None = None
        self.total = job.total
        """Number of lines. Until this run has read them, this is the value that an earlier run
        reported, as with `done` and `failed`. A smaller value would look like a step back, and
        reporting the old value again later would look like progress."""
        self.stop: Stop | None = _GIVEN_UP if job.given_up else None
        """Set from outside to end the batch."""
        self.pause = False
        """Set from outside to pause, so that another batch gets its turn."""
        self.answering_since: float | None = None
        """When answering started (monotonic); None until the lines and earlier answers have been
        read."""
        self.limits: KeyLimits = NO_LIMITS
        """Limits of the key that created the batch."""

    @property
    def done(self) -> int:
        """Number of lines with a successful answer."""
        return self._answers.done if self._answers else self._job.done

    @property
    def failed(self) -> int:
        """Number of lines whose answer is an error."""
        return self._answers.failed if self._answers else self._job.failed

    async def run(self) -> BatchEnd:
        """Answer the lines that have no answer yet. Raises OSError if the disk is full, and
        StoreUnavailableError if the object store does not respond."""
        try:
            file = await _opened(lambda: self._folder.opened(self._wishes.input_file))
        except FileNotFoundError:
            await self._kept()
            message = "the input file was deleted before the batch was done"
            fault = BatchFault("input_file_missing", message, param="input_file_id")
            return BatchEnd("failed", faults=(fault,))
        with file:  # open to the end, even if it is deleted meanwhile
            return await self._run(file)

    async def _kept(self) -> LineAnswers:
        """Load the answers of earlier runs; new answers are added to them."""
        given = (self._job.id, self._job.claim, self.total)
        self._answers = await _opened(lambda: self._folder.answers(*given))
        return self._answers

    async def _run(self, file: BinaryIO) -> BatchEnd:
        lines, faults = await asyncio.to_thread(
            read_lines, file, self._wishes.endpoint, self._settings
        )
        if faults:
            return BatchEnd("failed", faults=tuple(faults))
        self.total = len(lines.places)
        self._lines, answers = lines, await self._kept()
        self.answering_since = time.monotonic()
        stop = await self._answer(lines, answers)
        if stop is None and len(answers) < self.total:
            return BatchEnd("waiting")
        given_up = (LOST,) if stop is _GIVEN_UP else ()
        return BatchEnd(stop.state if stop else "done", stop, given_up)

    def write(self, end: BatchEnd, good: str, bad: str) -> tuple[int, int]:
        """Write the successful answers to file `good` and the errors to file `bad`. Returns the
        sizes of both in bytes, 0 if there is no file. Blocking; raises OSError and
        StoreUnavailableError."""
        if self._answers is None:
            return 0, 0
        missing = None if end.stop is None else self._missing(end.stop)
        sizes = []
        for id, lines_of in (
            (good, self._answers.lines(good=True)),
            (bad, self._answers.lines(good=False, missing=missing)),
        ):
            size = self._folder.write(id, lines_of)
            if not size:
                self._folder.remove(id)
            sizes.append(size)
        return sizes[0], sizes[1]

    def share(self) -> None:
        """Make the answers visible to other servers. Blocking."""
        if self._answers is not None:
            self._answers.share()

    def close(self) -> None:
        """Close the files of the answers; their content stays."""
        if self._answers is not None:
            self._answers.close()

    def _missing(self, stop: Stop) -> Callable[[int], bytes]:
        """A function that formats the record of a line without an answer."""
        assert self._lines is not None
        ids = self._lines.custom_ids
        error = json.dumps({"code": stop.code, "message": stop.message}).encode()
        return lambda number: _record(_line_id(), ids[number], b"null", error)

    async def _answer(self, lines: BatchLines, answers: LineAnswers) -> Stop | None:
        """Answer lines until all are done, or it is paused, or a reason to stop arises; returns
        that reason, or None."""
        left = iter([number for number in range(self.total) if number not in answers])
        running: set[asyncio.Task[None]] = set()
        try:
            while (stop := self._over(answers)) is None:
                most = 1 if attentive(self._gatekeeper.idle_s) else _AT_ONCE
                while not self.pause and len(running) < most:
                    if (number := next(left, None)) is None:
                        break
                    running.add(asyncio.create_task(self._line(lines, answers, number)))
                if not running:
                    return None
                ended, running = await asyncio.wait(
                    running, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED
                )
                for task in ended:
                    task.result()
            return stop
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _over(self, answers: LineAnswers) -> Stop | None:
        """The reason to stop now, or None."""
        if self.stop is not None:
            return self.stop
        if time.time() > self._job.deadline:
            return _EXPIRED
        limit = self._settings.max_file_bytes
        if answers.size > limit:
            message = (
                f"the answers of a batch must have at most {limit} bytes "
                f"({variable('max_file_bytes')}); divide it"
            )
            return Stop("done", "too_much_output", message)
        return None

    async def _line(self, lines: BatchLines, answers: LineAnswers, number: int) -> None:
        """Answer one line and store the answer."""
        body = await asyncio.to_thread(lines.body, number)
        id = _line_id()
        response = await self._answered(id, pydantic_core.to_json(body))
        if response is None:
            return
        # The body is copied unchanged, so that it equals the response over HTTP.
        outcome = b'{"status_code": %d, "request_id": "%s", "body": %s}' % (
            response.status_code,
            id.encode(),
            bytes(response.body),
        )
        record = _record(id, lines.custom_ids[number], outcome, b"null")
        good = response.status_code < HTTPStatus.BAD_REQUEST
        await asyncio.to_thread(answers.add, number, record, good=good)

    async def _answered(self, id: str, body: bytes) -> Response | None:
        """The response of the endpoint. After a temporary error the line is sent again; returns
        None if the batch is paused by then."""
        tries = Tries((DeadlineExceededError, *FATAL))
        while True:
            request, context = self._request(id, body)
            try:
                return await self._answering[self._wishes.endpoint](request, context)
            except PASSING as error:
                if not await tries.may_go_again(error):
                    return self._refuse(request.scope, error)
                if self.pause:
                    return None
            except RequestError as error:
                return self._refuse(request.scope, error)
            except ServingError as error:
                logger.warning("%s: %s", error.code, error, extra={"request_id": id})
                return self._refuse(request.scope, error)
            except Exception:
                logger.exception("unexpected error in a batch", extra={"request_id": id})
                failure = ServingError("the server failed; its log says why")
                return self._refuse(request.scope, failure)

    def _request(self, id: str, body: bytes) -> tuple[Request, RequestContext]:
        """The HTTP request that a line stands for; its client never disconnects."""
        context = RequestContext(
            id,
            client=self._wishes.client,
            key=self._job.owner,
            limits=self.limits,
            background=True,
        )
        scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "path": self._wishes.endpoint,
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
            CONTEXT: context,
        }
        sent = False

        async def receive() -> Message:
            nonlocal sent
            if sent:
                await asyncio.Event().wait()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        return Request(scope, receive), context


async def _opened(open_file: Callable[[], T]) -> T:
    """Open something in another thread with `open_file`; it is closed if this is cancelled
    meanwhile."""
    left = False
    files: list[T] = []

    def open_in_thread() -> T:
        files.append(open_file())
        if left:  # the second of the two sees what the other did
            files[0].close()
        return files[0]

    try:
        return await asyncio.to_thread(open_in_thread)
    except asyncio.CancelledError:
        left = True
        for file in files:
            file.close()
        raise


def _line_id() -> str:
    return f"batch_req_{uuid.uuid4().hex}"


def _record(id: str, custom_id: str, response: bytes, error: bytes) -> bytes:
    """One line of a result file; `response` and `error` are JSON."""
    return b'{"id": "%s", "custom_id": %s, "response": %s, "error": %s}' % (
        id.encode(),
        json.dumps(custom_id).encode(),
        response,
        error,
    )
