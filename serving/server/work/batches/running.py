"""Answers the lines of one batch, so that what clients wait for comes between them."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, BinaryIO

import pydantic_core
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Scope

from serving.errors import (
    DeadlineExceededError,
    DecoderLostError,
    DeviceMemoryError,
    OverloadedError,
    RateLimitedError,
    RequestError,
    ServingError,
    StoreUnavailableError,
)
from serving.server.http.access_log import CONTEXT, RequestContext
from serving.server.http.gate import Gatekeeper
from serving.server.http.settings import Settings, variable
from serving.server.work.batches.answers import LineAnswers
from serving.server.work.batches.bucket import FileBucket
from serving.server.work.batches.folder import FileFolder
from serving.server.work.batches.lines import BatchLines, read_lines
from serving.server.work.batches.records import LOST, BatchFault, wishes_of
from serving.server.work.courtesy import attentive, rest_s
from serving.store.records.job import JobState, KeptJob
from serving.store.records.key import NO_LIMITS, KeyLimits

_AT_ONCE = 8
"""Lines that are answered at one time while no client waits."""
_LOOK_S = 0.2
_PAUSE_S = 1.0
"""Before a line that was refused is sent again, where the error does not say."""
_LONGEST_PAUSE_S = 30.0
_TRIES = 3
_PASSING = (
    OverloadedError,
    RateLimitedError,
    DeadlineExceededError,
    DecoderLostError,
    StoreUnavailableError,
)
"""Errors after which a line is sent again."""
_PERHAPS_ITS_OWN = (DeadlineExceededError, DecoderLostError, DeviceMemoryError)
"""Those that a line may be the reason of: it is sent so many times."""

Answering = Callable[[Request, RequestContext], Awaitable[Response]]
"""What answers the requests of a path; raises ServingError."""
Refuse = Callable[[Scope, ServingError], Response]
"""Makes the answer that tells of an error."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stop:
    """Why the lines that have no answer get none."""

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
    """How a batch has come to its end, or to that of its turn (`waiting`)."""

    state: JobState
    stop: Stop | None = None
    faults: tuple[BatchFault, ...] = ()


class BatchRun:
    """One batch, from the check of its lines to the last answer. Belongs to the event loop."""

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
        """Lines; what an earlier run has told until this one has read them, as `done` and `failed`:
        fewer would be told as a step back, and the same again as progress."""
        self.stop: Stop | None = _GIVEN_UP if job.given_up else None
        """Set by whoever wants it to end."""
        self.pause = False
        """Set by whoever wants it to rest, so that another has its turn."""
        self.answering_since: float | None = None
        """By the monotonic clock; None until its lines and earlier answers have been read."""
        self.limits: KeyLimits = NO_LIMITS
        """Of the key that asked for it."""

    @property
    def done(self) -> int:
        """Lines that were answered well."""
        return self._answers.done if self._answers else self._job.done

    @property
    def failed(self) -> int:
        """Lines whose answer is an error."""
        return self._answers.failed if self._answers else self._job.failed

    async def run(self) -> BatchEnd:
        """Answer the lines that have no answer yet; raises OSError where the disk does not hold
        the answers, StoreUnavailableError where the store of files does not answer."""
        try:
            file = await asyncio.to_thread(self._folder.opened, self._wishes.input_file)
        except FileNotFoundError:
            await self._kept()
            message = "the input file was deleted before the batch was done"
            fault = BatchFault("input_file_missing", message, param="input_file_id")
            return BatchEnd("failed", faults=(fault,))
        with file:  # open to the end, whoever deletes it meanwhile
            return await self._run(file)

    async def _kept(self) -> LineAnswers:
        """The answers of earlier runs, for more of them."""
        given = (self._job.id, self._job.claim, self.total)
        self._answers = await asyncio.to_thread(self._folder.answers, *given)
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
        """Write the answers into the files of those ids; gives the sizes of both, 0 where there is
        none. For a thread; raises OSError, StoreUnavailableError."""
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
        """Have another server find the answers; for a thread."""
        if self._answers is not None:
            self._answers.share()

    def close(self) -> None:
        """Close the files of the answers; what is in them stays."""
        if self._answers is not None:
            self._answers.close()

    def _missing(self, stop: Stop) -> Callable[[int], bytes]:
        """Makes what stands in the place of an answer that there is none of."""
        assert self._lines is not None
        ids = self._lines.custom_ids
        error = json.dumps({"code": stop.code, "message": stop.message}).encode()
        return lambda number: _record(_line_id(), ids[number], b"null", error)

    async def _answer(self, lines: BatchLines, answers: LineAnswers) -> Stop | None:
        """Answer lines until all are, or it is to rest, or something stops that; gives what."""
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
        """Why nothing more is to be answered."""
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
        """Answer a line and keep that; while clients ask for something else, a rest follows."""
        body = await asyncio.to_thread(lines.body, number)
        start = time.monotonic()
        id = _line_id()
        response = await self._answered(id, pydantic_core.to_json(body))
        if response is None:
            return
        # As it is, so that it is what a client would have got.
        told = b'{"status_code": %d, "request_id": "%s", "body": %s}' % (
            response.status_code,
            id.encode(),
            bytes(response.body),
        )
        record = _record(id, lines.custom_ids[number], told, b"null")
        good = response.status_code < HTTPStatus.BAD_REQUEST
        await asyncio.to_thread(answers.add, number, record, good=good)
        if attentive(self._gatekeeper.idle_s):
            await asyncio.sleep(rest_s(time.monotonic() - start))

    async def _answered(self, id: str, body: bytes) -> Response | None:
        """The answer of the endpoint, which gets the line again after an error that passes; None
        where the batch rests by then."""
        tries = 0
        while True:
            request, context = self._request(id, body)
            try:
                return await self._answering[self._wishes.endpoint](request, context)
            except _PASSING as error:
                tries += isinstance(error, _PERHAPS_ITS_OWN)
                if tries == _TRIES:
                    return self._refuse(request.scope, error)
                await asyncio.sleep(min(error.retry_after_s or _PAUSE_S, _LONGEST_PAUSE_S))
                if self.pause:
                    return None
            except RequestError as error:
                return self._refuse(request.scope, error)
            except ServingError as error:
                logger.warning("%s: %s", error.code, error, extra={"request_id": id})
                return self._refuse(request.scope, error)
            except Exception:
                logger.exception("unforeseen error in a batch", extra={"request_id": id})
                failure = ServingError("the server failed; its log says why")
                return self._refuse(request.scope, failure)

    def _request(self, id: str, body: bytes) -> tuple[Request, RequestContext]:
        """A line as the request that it stands for; its client never leaves."""
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


def _line_id() -> str:
    return f"batch_req_{uuid.uuid4().hex}"


def _record(id: str, custom_id: str, response: bytes, error: bytes) -> bytes:
    """A line of a file of results; what came of the request is JSON already."""
    return b'{"id": "%s", "custom_id": %s, "response": %s, "error": %s}' % (
        id.encode(),
        json.dumps(custom_id).encode(),
        response,
        error,
    )
