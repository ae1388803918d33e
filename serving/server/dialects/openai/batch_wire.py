"""What goes over the wire of files and batches in OpenAI's dialect."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from serving.server.http.wire import Wire
from serving.server.work.batches.records import BatchStatus

FilePurpose = Literal["batch", "batch_output"]


class OpenAIFile(Wire):
    """What is known of a file."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: FilePurpose
    status: Literal["processed"] = "processed"


class OpenAIFiles(Wire):
    """A page of files."""

    object: Literal["list"] = "list"
    data: list[OpenAIFile]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedFile(Wire):
    """A file that is there no more."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


class ExpiresAfter(Wire):
    """When results are to be deleted."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=3600, le=2_592_000)]
    """After they were made; no later than the server deletes all."""


class BatchWebhook(Wire):
    """The address that is called at the end of the batch (not in OpenAI's API)."""

    url: str
    """Gets a POST with OpenAI's event `batch.completed`, `.failed`, `.expired` or `.cancelled`."""
    secret: Annotated[str, Field(min_length=16, max_length=256)]
    """Signs the event; as it is, or in base64 behind `whsec_`."""


class BatchRequest(Wire):
    """A file whose lines are to be answered."""

    input_file_id: str
    endpoint: str
    """Path that each line is for."""
    completion_window: Literal["24h"]
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None
    """Up to 16 texts of at most 512 characters, under names of at most 64."""
    output_expires_after: ExpiresAfter | None = None
    webhook: BatchWebhook | None = None


class BatchCounts(Wire):
    """Lines, by what became of them."""

    total: int
    completed: int
    failed: int


class BatchFaultBody(Wire):
    """What is wrong with a line, or with the batch."""

    code: str
    message: str
    line: int | None
    param: str | None


class BatchFaults(Wire):
    """What is wrong with a batch."""

    object: Literal["list"] = "list"
    data: list[BatchFaultBody]


class OpenAIBatch(Wire):
    """What is known of a batch; times are seconds since 1970."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    errors: BatchFaults | None
    input_file_id: str
    completion_window: Literal["24h"] = "24h"
    status: BatchStatus
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: BatchCounts
    metadata: dict[str, str] | None


class OpenAIBatches(Wire):
    """A page of batches."""

    object: Literal["list"] = "list"
    data: list[OpenAIBatch]
    first_id: str | None
    last_id: str | None
    has_more: bool
