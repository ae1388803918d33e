"""What a stored translation memory is, and what may be kept of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from serving.errors import RequestError, TooLongError
from serving.text.memory.segments import Segment

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""What neither a database nor XML holds."""


@dataclass(frozen=True)
class MemoryLimits:
    """What an owner may keep; each number is a setting of the server."""

    memories: int
    segments: int
    """Of one memory."""
    segment_chars: int
    """Of a sentence, and of its translation."""


@dataclass(frozen=True)
class StoredMemory:
    """What is known of a memory."""

    id: str
    name: str
    source: str
    """Language code, in small letters, as the next."""
    target: str
    created: float
    """Seconds since 1970, as the next."""
    updated: float
    segment_count: int


class StoredSegment(NamedTuple):
    """A segment, and its number within its memory, ascending."""

    number: int
    source: str
    target: str
    created: float
    """Seconds since 1970."""


MemoryJobState = Literal["waiting", "reading", "done", "failed"]
"""Of a file: it is to come, it is being read, it has been read or may be fetched, it cannot be
read."""


@dataclass(frozen=True)
class MemoryJob:
    """A file that is to be read into a new memory, or the file of a memory that may be fetched."""

    id: str
    token: str
    """A secret: who knows it may send the file, or fetch it."""
    memory_id: str | None
    """None until the file has been read."""
    name: str
    """Of the new memory; empty where a file is fetched."""
    content_length: int
    """Bytes of the file as they were told beforehand."""
    created: float
    """Seconds since 1970, as the next."""
    updated: float
    state: MemoryJobState
    error: str
    """Why the file could not be read; empty where it could."""
    skipped: int
    """Units of the file that were left out."""


def checked_segments(segments: Iterable[Segment], limits: MemoryLimits) -> Iterator[Segment]:
    """The segments without the spaces around them; raises RequestError for one that is blank or
    holds control characters, TooLongError for one that is too long."""
    for number, segment in enumerate(segments, 1):
        for text in segment:
            if len(text) > limits.segment_chars:
                raise TooLongError(
                    f"a segment must have at most {limits.segment_chars} characters "
                    f"(MACARON_MAX_SEGMENT_CHARS), got {len(text)} in segment {number}",
                    parameter="segments",
                )
            if not text.strip() or _CONTROL.search(text):
                raise RequestError(
                    "segments must be texts without control characters, got "
                    f"{text[:100]!r} in segment {number}",
                    parameter="segments",
                )
        yield Segment(segment.source.strip(), segment.target.strip())


def is_usable(segment: Segment, limits: MemoryLimits) -> bool:
    """Whether `checked_segments` lets a segment pass."""
    return all(
        text.strip() and len(text) <= limits.segment_chars and not _CONTROL.search(text)
        for text in segment
    )
