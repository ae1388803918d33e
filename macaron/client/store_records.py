"""What a server keeps in its store, as values of a client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

_ENDED = ("completed", "failed", "expired", "cancelled")


class RemoteDictionary(NamedTuple):
    """What is known of a glossary's entries for a language pair."""

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
    """What has come of a TMX file that was read into a memory."""

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
    """`batch` of what was sent, `batch_output` of answers."""
    num_bytes: int
    created: int
    """Seconds since 1970, in UTC, as the next."""
    expires: int


@dataclass(frozen=True)
class RemoteBatch:
    """Requests of a file, which are answered beside others."""

    id: str
    endpoint: str
    """The path that each line is for."""
    status: str
    """`validating`, `in_progress`, `finalizing`, `cancelling`; at the end `completed`, `failed`,
    `expired` or `cancelled`."""
    input_file_id: str
    output_file_id: str | None
    """Of the lines that were answered; None where none was, or not yet."""
    error_file_id: str | None
    """Of the lines that were refused, or not begun; likewise."""
    total: int
    """Lines, as the next two."""
    completed: int
    failed: int
    errors: Sequence[str]
    """What is wrong with the file, where the status is `failed`."""
    metadata: Mapping[str, str]

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.status in _ENDED

    @property
    def outputs(self) -> Sequence[str]:
        """The ids of the files that hold answers and errors, those that there are."""
        return [id for id in (self.output_file_id, self.error_file_id) if id]


@dataclass(frozen=True)
class RemoteAnswer:
    """What one request of a batch was answered."""

    status: int
    """The HTTP status; 0 where it was not begun."""
    body: Mapping[str, Any]
    """The answer as the endpoint gives it, or its error."""

    @property
    def ok(self) -> bool:
        """Whether the server has done what was asked."""
        return 200 <= self.status < 300


@dataclass(frozen=True)
class BatchWebhookAddress:
    """Whom the server tells that a batch has ended."""

    url: str
    secret: str
    """16 to 256 characters, with which the message is signed."""
