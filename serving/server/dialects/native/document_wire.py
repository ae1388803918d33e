"""Bodies of the routes for documents in the native dialect."""

from __future__ import annotations

from typing import Literal

from serving.server.http.wire import Wire


class DocumentState(Wire):
    """The state of a document's translation."""

    id: str
    name: str
    """Name of the uploaded file."""
    output_name: str
    """Name of the translated file."""
    format: str
    """Kind of file, such as `docx`; empty until the file has been read."""
    source: str
    """Language code, or `auto` until it has been detected."""
    target: str
    state: Literal["queued", "translating", "done", "failed"]
    done: int
    """Number of paragraphs, cells and messages translated so far; equal ones count once."""
    total: int
    """Number of paragraphs, cells and messages in the document."""
    characters: int
    """Number of characters translated so far."""
    seconds: float
    """Seconds since the translation began."""
    seconds_left: float | None = None
    """Estimated seconds to the end, during the translation."""
    warnings: list[str]
    """The parts that could not be kept or translated."""
    error: str = ""
    """The reason if it failed."""
    pictures: bool = False
    """Whether there are pictures of the first page, before and after the translation."""
