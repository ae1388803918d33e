"""Bodies of the routes for translation memories in the native dialect."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from serving.server.http.wire import Count, Wire


class MemorySegment(Wire):
    """A sentence and its translation."""

    source: str
    target: str


class NewMemory(Wire):
    """A translation memory to create."""

    name: str
    source: str
    """Language code of the sentences."""
    target: str
    """Language code of the translations."""
    segments: list[MemorySegment] = Field([])
    """The first segments."""


class MemorySegments(Wire):
    """Segments to add to a memory. If several have the same sentence, the last one is kept."""

    segments: Annotated[list[MemorySegment], Field(min_length=1)]


class MemoryPage(Wire):
    """Selects a page of memories."""

    after: str | None = None
    """Start after the memory with this id."""
    limit: Annotated[Count, Field(ge=1, le=1000)] = 100
    """Largest number of entries on a page."""


class SegmentPage(Wire):
    """Selects a page of a memory's segments."""

    after: Annotated[int, Field(ge=-1, le=2**31 - 1)] = -1
    """Start after the segment with this number."""
    limit: Annotated[Count, Field(ge=1, le=1000)] = 100
    """Largest number of entries on a page."""
    text: Annotated[str, Field(max_length=1000)] = ""
    """Only segments that contain this text in either language."""


class MemoryInfo(Wire):
    """A memory's record."""

    id: str
    name: str
    source: str
    target: str
    created: float
    """Time in seconds since 1970, UTC, as the next."""
    updated: float
    segment_count: int


class MemoryList(Wire):
    """The memories of the caller's key, oldest first."""

    memories: list[MemoryInfo]
    next: str | None = None
    """`after` of the next page; omitted on the last page."""


class NumberedSegment(Wire):
    """A segment of a memory."""

    number: int
    """Position in the memory, from 0."""
    source: str
    target: str


class SegmentList(Wire):
    """Segments of a memory, in the order in which they were added."""

    segments: list[NumberedSegment]
    next: int | None = None
    """`after` of the next page; omitted on the last page."""


class MemoryFileRead(Wire):
    """The result of reading a file into a memory."""

    memory: MemoryInfo
    added: int
    skipped: int
    """Number of units that lack a text in one of the two languages, or have one that is too
    long."""
