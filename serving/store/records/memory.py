"""Records of translation memories, and the rules for what they may contain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from serving.errors import RequestError, TooLongError
from serving.text.memory.segments import Segment

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that databases or XML cannot store."""


@dataclass(frozen=True)
class MemoryLimits:
    """Limits of an owner; each is a setting of the server."""

    memories: int
    segments: int
    """Segments of one memory."""
    segment_chars: int
    """Characters of a sentence, and of its translation."""


@dataclass(frozen=True)
class StoredMemory:
    """Metadata of a memory."""

    id: str
    name: str
    source: str
    """Language code in small letters, like `target`."""
    target: str
    created: float
    """Seconds since 1970, as the next field."""
    updated: float
    segment_count: int


class StoredSegment(NamedTuple):
    """A segment with its number within the memory, ascending."""

    number: int
    source: str
    target: str
    created: float
    """Seconds since 1970."""


MemoryJobState = Literal["waiting", "reading", "done", "failed"]
"""State of the file: expected, being read, read (or ready for download), or unreadable."""


@dataclass(frozen=True)
class MemoryJob:
    """An upload that becomes a new memory, or a download of a memory."""

    id: str
    token: str
    """A secret: its holder may upload or download the file."""
    memory_id: str | None
    """None until the file has been read."""
    name: str
    """Name of the new memory; empty for a download."""
    content_length: int
    """Announced size of the file in bytes."""
    created: float
    """Seconds since 1970, as the next field."""
    updated: float
    state: MemoryJobState
    error: str
    """The reason why the file could not be read; empty if it could."""
    skipped: int
    """Number of units that were skipped."""


def checked_segments(segments: Iterable[Segment], limits: MemoryLimits) -> Iterator[Segment]:
    """Segments without surrounding spaces. Raises RequestError for a blank segment or one with
    control characters, TooLongError for one that is too long."""
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
    """Whether `checked_segments` accepts a segment."""
    return all(
        text.strip() and len(text) <= limits.segment_chars and not _CONTROL.search(text)
        for text in segment
    )
