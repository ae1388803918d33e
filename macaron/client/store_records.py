"""Records of a server's store, as values of the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

_ENDED = ("completed", "failed", "expired", "cancelled")


class RemoteDictionary(NamedTuple):
    """Metadata of a glossary's entries for a language pair."""

    source: str
    target: str
    entry_count: int


@dataclass(frozen=True)
class RemoteGlossary:
    """A glossary on a server."""

    id: str
    name: str
    created: float
    """Seconds since 1970, in UTC."""
    dictionaries: Sequence[RemoteDictionary]


@dataclass(frozen=True)
class RemoteMemory:
    """A translation memory on a server."""

    id: str
    name: str
    source: str
    target: str
    created: float
    """Seconds since 1970, in UTC, as the next."""
    updated: float
    segment_count: int


@dataclass(frozen=True)
class RemoteSegment:
    """A sentence of a memory and its translation."""

    number: int
    """Its place in the memory, from 0."""
    source: str
    target: str


@dataclass(frozen=True)
class RemoteFileRead:
    """Result of reading a TMX file into a memory."""

    memory: RemoteMemory
    added: int
    skipped: int
    """Units without a text in one of the two languages, or with one that is too long."""


@dataclass(frozen=True)
class BatchFile:
    """A file of requests or of answers."""

    id: str
    name: str
    purpose: str
    """`batch` for an uploaded file, `batch_output` for answers."""
    num_bytes: int
    created: int
    """Seconds since 1970, in UTC, as the next."""
    expires: int


@dataclass(frozen=True)
class RemoteBatch:
    """A file of requests that is answered in the background."""

    id: str
    endpoint: str
    """The path that each line is for."""
    status: str
    """`validating`, `in_progress`, `finalizing`, `cancelling`; at the end `completed`, `failed`,
    `expired` or `cancelled`."""
    input_file_id: str
    output_file_id: str | None
    """File of the answered lines; None if there is none yet."""
    error_file_id: str | None
    """File of the lines that were refused or not started; None likewise."""
    total: int
    """Number of lines, as the next two."""
    completed: int
    failed: int
    errors: Sequence[str]
    """Faults of the file, if the status is `failed`."""
    metadata: Mapping[str, str]

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.status in _ENDED

    @property
    def outputs(self) -> Sequence[str]:
        """The ids of the existing files of answers and errors."""
        return [id for id in (self.output_file_id, self.error_file_id) if id]


@dataclass(frozen=True)
class RemoteAnswer:
    """The answer to one request of a batch."""

    status: int
    """The HTTP status; 0 if the request was not started."""
    body: Mapping[str, Any]
    """The answer of the endpoint, or its error."""

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
        return 200 <= self.status < 300


@dataclass(frozen=True)
class BatchWebhookAddress:
    """Address that the server notifies when a batch has ended."""

    url: str
    secret: str
    """Secret of 16 to 256 characters that signs the notification."""
