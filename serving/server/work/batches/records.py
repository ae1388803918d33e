"""What is asked of a batch and what comes of it, as it stands in its job."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from serving.errors import RequestError
from serving.server.work.batches.webhooks import Webhook
from serving.store.records.job import JobState, KeptJob

BatchStatus = Literal[
    "validating", "failed", "in_progress", "completed", "expired", "cancelling", "cancelled"
]

KIND = "batch"
"""Of the jobs that are batches."""
STATUSES: Mapping[JobState, BatchStatus] = {
    "waiting": "validating",
    "running": "in_progress",
    "done": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "expired": "expired",
}
"""The names that clients know of the states of a batch."""


class UnknownFileError(RequestError):
    """There is no such file, or it is somebody else's."""

    status = 404
    code = "unknown_file"


class UnknownBatchError(RequestError):
    """There is no such batch, or it is somebody else's."""

    status = 404
    code = "unknown_batch"


@dataclass(frozen=True, kw_only=True)
class BatchWishes:
    """What is asked of a batch."""

    endpoint: str
    """Path that each line is for."""
    input_file: str
    """Id of the file with the lines."""
    metadata: Mapping[str, str] | None = None
    output_s: float | None = None
    """Seconds for which the results are to be kept, where less than usual."""
    client: str = ""
    """Under which its characters of a minute are counted."""
    webhook: Webhook | None = None
    """Where its end is to be told."""


@dataclass(frozen=True)
class BatchFault:
    """Why a batch has failed as a whole."""

    code: str
    message: str
    line: int | None = None
    """Of the file, counted from 1, where one is at fault."""
    param: str | None = None
    """The field of the line that is."""


@dataclass(frozen=True)
class BatchResult:
    """What came of a batch."""

    output_file: str | None = None
    error_file: str | None = None
    faults: tuple[BatchFault, ...] = ()


LOST = BatchFault("job_lost", "the server ended several times while it began with this batch")
"""Of a batch that is given up."""


def written(record: BatchWishes | BatchResult) -> str:
    """A record as JSON."""
    return json.dumps(dataclasses.asdict(record))


def wishes_of(job: KeptJob) -> BatchWishes:
    """What is asked of the batch of a job."""
    fields = json.loads(job.wishes)
    webhook = fields.pop("webhook")
    return BatchWishes(**fields, webhook=Webhook(**webhook) if webhook else None)


def result_of(job: KeptJob) -> BatchResult:
    """What came of the batch of a job, so far."""
    if not job.result:
        return BatchResult(faults=(LOST,)) if job.state == "failed" else BatchResult()
    fields = json.loads(job.result)
    faults = tuple(BatchFault(**fault) for fault in fields.pop("faults"))
    return BatchResult(**fields, faults=faults)
