"""Claims batches one at a time, runs them, and stores their results."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.concurrency import run_in_threadpool

from serving.errors import StoreUnavailableError
from serving.server.access.gate import Gatekeeper
from serving.server.http.settings import Settings
from serving.server.work.batches.bucket import FileBucket
from serving.server.work.batches.folder import FileFolder
from serving.server.work.batches.records import (
    KIND,
    STATUSES,
    BatchFault,
    BatchResult,
    wishes_of,
    written,
)
from serving.server.work.batches.running import (
    CANCELLED,
    KEY_GONE,
    Answering,
    BatchRun,
    Refuse,
)
from serving.server.work.batches.webhooks import WebhookSender, webhook_job
from serving.store.records.job import JobState, KeptFile, KeptJob

if TYPE_CHECKING:
    from serving.store.store import Store

RESULT_PURPOSE = "batch_output"
LEASE_S = 60.0
"""Seconds without a heartbeat after which another server may claim a batch."""
_TURN_S = 30.0
"""Seconds of one turn: then another waiting batch gets its turn, so that long batches and slow
lines do not delay the others."""
_BEAT_S = 1.0
_LOOK_S = 2.0
_SWEEP_S = 60.0
_FULL_DISK_S = 30.0
"""Seconds before a batch is retried after the disk was full."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


def kept_s(settings: Settings, wanted_s: float | None) -> float:
    """Seconds for which something is kept: `wanted_s`, but at most what the settings allow."""
    longest = settings.document_hours * 3600
    return longest if wanted_s is None else min(wanted_s, longest)


class BatchWorker:
    """Runs the batches of a store; used on the event loop only."""

    def __init__(
        self,
        store: Store,
        folder: FileFolder | FileBucket,
        settings: Settings,
        gatekeeper: Gatekeeper,
        answering: Mapping[str, Answering],
        refuse: Refuse,
    ) -> None:
        self._store, self._folder, self._settings = store, folder, settings
        self._gatekeeper, self._answering, self._refuse = gatekeeper, answering, refuse
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the background tasks."""
        sender = WebhookSender(self._store, self._settings)
        parts = (self._work(), self._sweep(), sender.run())
        self._tasks = [asyncio.create_task(part) for part in parts]

    def wake(self) -> None:
        """Look for a batch now rather than at the next interval."""
        self._wake.set()

    async def close(self) -> None:
        """Release the current batch and stop."""
        await _stopped(*self._tasks)

    async def _work(self) -> None:
        while True:
            self._wake.clear()
            pause = 0.0
            try:
                job = await run_in_threadpool(self._store.jobs.claim, KIND, LEASE_S)
                if job is not None:
                    await self._run(job)
                    continue
            except StoreUnavailableError as error:
                logger.warning("batches wait: %s", error)
                pause = error.retry_after_s
            except OSError as error:
                logger.warning("batches wait: %s", error)
                pause = _FULL_DISK_S
            except Exception:
                logger.exception("unexpected error among the batches")
                pause = _SWEEP_S
            await asyncio.sleep(pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _LOOK_S)

    async def _run(self, job: KeptJob) -> None:
        """Run the rest of a batch, until another server takes it or this one stops. Raises OSError
        if the disk is full, and StoreUnavailableError if the object store does not respond."""
        run = BatchRun(
            job,
            self._folder,
            self._settings,
            self._gatekeeper,
            self._answering,
            self._refuse,
        )
        work = asyncio.create_task(self._whole(job, run))
        heart = asyncio.create_task(self._beats(job, run))
        try:
            await asyncio.wait((work, heart), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
                return
            logger.warning("another server has taken over the batch", extra={"request_id": job.id})
        except asyncio.CancelledError:
            await _stopped(work, heart)
            await self._give_back(job, run)
            raise
        except StoreUnavailableError:
            await self._give_back(job, run)
            raise
        except OSError as error:
            if time.time() < job.deadline:
                await self._give_back(job, run)
                raise
            fault = BatchFault("storage", f"the answers cannot be kept ({error.strerror})")
            result = BatchResult(faults=(fault,))
            await _insistent(lambda: self._note(job, run, "failed", result))
        finally:
            await _stopped(work, heart)
            run.close()

    async def _whole(self, job: KeptJob, run: BatchRun) -> None:
        """Answer the lines, store the results and record the end. Waits for the store as long as
        this server holds the batch. Raises OSError as `_run` does, and StoreUnavailableError if the
        input cannot be read."""
        await _insistent(lambda: self._look(job, run))
        end = await run.run()
        if end.state == "waiting":
            await self._give_back(job, run)
            return
        good, bad = (_result_id(job, kind) for kind in ("output", "error"))
        sizes = await _insistent(lambda: run.write(end, good, bad))

        def note() -> None:
            result = BatchResult(
                output_file=self._kept(job, good, "output", sizes[0]),
                error_file=self._kept(job, bad, "error", sizes[1]),
                faults=end.faults,
            )
            self._note(job, run, end.state, result)

        await _insistent(note)

    async def _give_back(self, job: KeptJob, run: BatchRun) -> None:
        """Release the batch to another server, and record its progress: at once, or when the lease
        expires if the store does not respond. An error here must not hide the one that ended the
        batch."""
        try:
            await run_in_threadpool(run.share)
            counts = (run.done, run.failed, run.total)
            await run_in_threadpool(self._store.jobs.give_back, job, *counts)
        except StoreUnavailableError as error:
            logger.warning("a batch could not be released: %s", error, extra={"request_id": job.id})

    async def _beats(self, job: KeptJob, run: BatchRun) -> None:
        """Send heartbeats, and check whether the batch should continue. Returns when another server
        has, or may have, claimed it."""
        beaten = time.monotonic()
        while time.monotonic() - beaten < LEASE_S:
            counts = (run.done, run.failed, run.total)
            try:
                now = await run_in_threadpool(self._store.jobs.beat, job, LEASE_S, *counts)
                if now is None:
                    return
                beaten = time.monotonic()
                await run_in_threadpool(self._look, now, run)
                if run.answering_since is not None and beaten - run.answering_since > _TURN_S:
                    waiting = self._store.jobs.is_waiting
                    run.pause = await run_in_threadpool(waiting, KIND, LEASE_S)
            except StoreUnavailableError as error:
                logger.warning("a batch continues without its store: %s", error)
            await asyncio.sleep(_BEAT_S)

    def _look(self, job: KeptJob, run: BatchRun) -> None:
        """Stop a batch that was cancelled, or whose key is no longer valid."""
        if job.cancelling is not None:
            run.stop = CANCELLED
        if not job.owner or job.owner in self._gatekeeper.keys.owners:
            return
        key = self._store.keys.get(job.owner)
        if key is None or key.disabled is not None:
            run.stop = KEY_GONE
        else:
            run.limits = key.limits

    def _kept(self, job: KeptJob, id: str, kind: str, size: int) -> str | None:
        """Record a result file if it is not empty; returns its id."""
        if not size:
            return None
        now = time.time()
        file = KeptFile(
            id=id,
            owner=job.owner,
            purpose=RESULT_PURPOSE,
            name=f"{job.id}_{kind}.jsonl",
            size=size,
            created=now,
            expires=now + kept_s(self._settings, wishes_of(job).output_s),
        )
        self._store.files.put(file)
        return id

    def _note(self, job: KeptJob, run: BatchRun, state: JobState, result: BatchResult) -> None:
        """Record the end of a batch if this server still holds it."""
        failed = run.total - run.done if run.total else 0
        ended = dataclasses.replace(job, done=run.done, failed=failed, total=run.total)
        keep_s = kept_s(self._settings, None)
        webhook, then = wishes_of(job).webhook, None
        if webhook is not None:
            type = f"batch.{STATUSES[state]}"
            then = webhook_job(webhook, job.owner, type, {"id": job.id})
        if self._store.jobs.finish(ended, state, written(result), keep_s, then):
            run.close()  # even if this server ends now, nothing more is shared
            self._folder.remove_answers(job.id)
            logger.info("a batch has ended: %s", state, extra={"request_id": job.id})

    async def _sweep(self) -> None:
        """Delete expired jobs and files, and files that belong to nothing, periodically."""
        while True:
            try:
                await run_in_threadpool(self._remove_old)
            except (StoreUnavailableError, OSError) as error:
                logger.warning("old files could not be deleted: %s", error)
            await asyncio.sleep(_SWEEP_S)

    def _remove_old(self) -> None:
        for id in self._store.jobs.remove_expired():
            self._folder.remove_answers(id)
        for id in self._store.files.remove_expired():
            self._folder.remove(id)
        self._folder.sweep(self._store.files.known, self._store.jobs.unended)


def _result_id(job: KeptJob, kind: str) -> str:
    """The id of a result file; it is the same if the file is written again after a failure."""
    return f"file-{uuid.uuid5(uuid.NAMESPACE_OID, f'{job.id}/{kind}').hex}"


async def _insistent(ask: Callable[[], T]) -> T:
    """Call a blocking function of the store in a thread, again until the store responds."""
    while True:
        try:
            return await run_in_threadpool(ask)
        except StoreUnavailableError as error:
            logger.warning("a batch waits for its store: %s", error)
            await asyncio.sleep(_BEAT_S)


async def _stopped(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
