"""The parameters and the result of a batch, as its job stores them."""

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
"""Kind of the jobs that are batches."""
STATUSES: Mapping[JobState, BatchStatus] = {
    "waiting": "validating",
    "running": "in_progress",
    "done": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "expired": "expired",
}
"""The states of a batch under the names of the API."""


class UnknownFileError(RequestError):
    """The file does not exist or belongs to another key."""

    status = 404
    code = "unknown_file"


class UnknownBatchError(RequestError):
    """The batch does not exist or belongs to another key."""

    status = 404
    code = "unknown_batch"


@dataclass(frozen=True, kw_only=True)
class BatchWishes:
    """Parameters of a batch."""

    endpoint: str
    """Path that each line is for."""
    input_file: str
    """Id of the input file."""
    metadata: Mapping[str, str] | None = None
    output_s: float | None = None
    """Seconds for which results are kept, if less than the default."""
    client: str = ""
    """Client name to which the characters per minute are charged."""
    webhook: Webhook | None = None
    """Webhook that is called at the end."""


@dataclass(frozen=True)
class BatchFault:
    """The reason why a batch has failed as a whole."""

    code: str
    message: str
    line: int | None = None
    """Line of the input file, from 1, if a line is at fault."""
    param: str | None = None
    """Field of that line."""


@dataclass(frozen=True)
class BatchResult:
    """Result of a batch."""

    output_file: str | None = None
    error_file: str | None = None
    faults: tuple[BatchFault, ...] = ()


LOST = BatchFault("job_lost", "the server ended several times while it began with this batch")
"""Set if the batch was given up."""


def written(record: BatchWishes | BatchResult) -> str:
    """A record as JSON."""
    return json.dumps(dataclasses.asdict(record))


def wishes_of(job: KeptJob) -> BatchWishes:
    """The parameters of a job's batch."""
    fields = json.loads(job.wishes)
    webhook = fields.pop("webhook")
    return BatchWishes(**fields, webhook=Webhook(**webhook) if webhook else None)


def result_of(job: KeptJob) -> BatchResult:
    """The result of a job's batch, so far."""
    if not job.result:
        return BatchResult(faults=(LOST,)) if job.state == "failed" else BatchResult()
    fields = json.loads(job.result)
    faults = tuple(BatchFault(**fault) for fault in fields.pop("faults"))
    return BatchResult(**fields, faults=faults)
