"""What goes over the wire for translation memories in the native dialect."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from serving.server.http.wire import Count, Wire


class MemorySegment(Wire):
    """A sentence and its translation."""

    source: str
    target: str


class NewMemory(Wire):
    """A translation memory to make."""

    name: str
    source: str
    """Language code of the sentences."""
    target: str
    """Language code of their translations."""
    segments: list[MemorySegment] = Field([])
    """What it has from the beginning."""


class MemorySegments(Wire):
    """Segments to add to a memory; of several with the same sentence the last one counts."""

    segments: Annotated[list[MemorySegment], Field(min_length=1)]


class MemoryPage(Wire):
    """Which memories are asked for."""

    after: str | None = None
    """The id of a memory; those behind it follow."""
    limit: Annotated[Count, Field(ge=1, le=1000)] = 100
    """How many at most."""


class SegmentPage(Wire):
    """Which segments of a memory are asked for."""

    after: Annotated[int, Field(ge=-1, le=2**31 - 1)] = -1
    """The number of a segment; those behind it follow."""
    limit: Annotated[Count, Field(ge=1, le=1000)] = 100
    """How many at most."""
    text: Annotated[str, Field(max_length=1000)] = ""
    """Only those that hold this in either language."""


class MemoryInfo(Wire):
    """What is known of a memory."""

    id: str
    name: str
    source: str
    target: str
    created: float
    """Seconds since 1970, in UTC, as the next."""
    updated: float
    segment_count: int


class MemoryList(Wire):
    """Memories of the key, the oldest first."""

    memories: list[MemoryInfo]
    next: str | None = None
    """What `after` must say for those that follow; left out where none do."""


class NumberedSegment(Wire):
    """A segment of a memory."""

    number: int
    """Its place in the memory, from 0."""
    source: str
    target: str


class SegmentList(Wire):
    """Segments of a memory, in the order in which they were added."""

    segments: list[NumberedSegment]
    next: int | None = None
    """What `after` must say for those that follow; left out where none do."""


class MemoryFileRead(Wire):
    """What has come of a file that was read into a memory."""

    memory: MemoryInfo
    added: int
    skipped: int
    """Units without a text in one of the two languages, or with one that is too long."""
