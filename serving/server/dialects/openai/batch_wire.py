"""Bodies of files and batches in OpenAI's dialect."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from serving.server.http.wire import Wire
from serving.server.work.batches.records import BatchStatus

FilePurpose = Literal["batch", "batch_output"]


class OpenAIFile(Wire):
    """A file's record; times are seconds since 1970."""

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
    """Confirms that a file was deleted."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


class ExpiresAfter(Wire):
    """The time after which results are deleted."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=3600, le=2_592_000)]
    """Seconds after their creation. The server may be set to delete files earlier."""


class BatchWebhook(Wire):
    """The URL to call when the batch ends (not in OpenAI's API)."""

    url: str
    """The URL. It receives a POST with OpenAI's event `batch.completed`, `.failed`, `.expired` or
    `.cancelled`."""
    secret: Annotated[str, Field(min_length=16, max_length=256)]
    """The key that signs the event: plain text, or base64 after `whsec_`."""


class BatchRequest(Wire):
    """A request to answer every line of a file."""

    input_file_id: str
    endpoint: str
    """The path that each line is a request of."""
    completion_window: Literal["24h"]
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None
    """Up to 16 texts of at most 512 characters, with names of at most 64 characters."""
    output_expires_after: ExpiresAfter | None = None
    webhook: BatchWebhook | None = None


class BatchCounts(Wire):
    """Numbers of lines, by their state."""

    total: int
    completed: int
    failed: int


class BatchFaultBody(Wire):
    """An error of one line or of the whole batch."""

    code: str
    message: str
    line: int | None
    param: str | None


class BatchFaults(Wire):
    """The errors of a batch."""

    object: Literal["list"] = "list"
    data: list[BatchFaultBody]


class OpenAIBatch(Wire):
    """A batch's record; times are seconds since 1970."""

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
