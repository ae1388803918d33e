"""What goes over the wire of documents in the native dialect."""

from __future__ import annotations

from typing import Literal

from serving.server.http.wire import Wire


class DocumentState(Wire):
    """What is known of a document."""

    id: str
    name: str
    """Of the file that was sent."""
    output_name: str
    """Of the translated file."""
    format: str
    """Kind of file, such as `docx`; empty until it has been read."""
    source: str
    """Language code, or `auto` until it has been detected."""
    target: str
    state: Literal["queued", "translating", "done", "failed"]
    done: int
    """Paragraphs, cells and messages that are translated; equal ones count once."""
    total: int
    characters: int
    """Of what has been translated."""
    seconds: float
    """Since the translation began."""
    seconds_left: float | None = None
    """Likely time to its end, while it is translated."""
    warnings: list[str]
    """What could not be kept or translated."""
    error: str = ""
    """Why it failed."""
    pictures: bool = False
    """Whether there are pictures of its first page, before and after."""
