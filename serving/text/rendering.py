"""A passage's translation as text or HTML, and where its parts went."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from serving.text.passage import Passage
from serving.text.placement import Placed

_ESCAPED = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_TABLE = str.maketrans(_ESCAPED)


@dataclass
class Rendered:
    """A translation as it is written."""

    parts: list[str]
    starts: list[int]
    ends: list[int]
    """Where each character of the target begins and ends in the text."""
    length: int = 0

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.parts)

    def write(self, text: str) -> None:
        """Append."""
        self.parts.append(text)
        self.length += len(text)


def escaped(text: str) -> str:
    """As text of HTML, outside of attributes."""
    return text.translate(_TABLE)


def render(passage: Passage, placed: Placed) -> Rendered:
    """Write the translation with its markup."""
    length = len(placed.target)
    rendered = Rendered([], [0] * length, [0] * length)
    marks = deque(placed.marks)
    skipped = 0  # characters up to here are replaced
    for piece in placed.pieces:
        begin, end = piece.target
        for index in range(begin, end):
            while marks and marks[0][0] <= index:
                rendered.write(marks.popleft()[1])
            if index < skipped:
                rendered.starts[index] = rendered.starts[index - 1]
                rendered.ends[index] = rendered.ends[index - 1]
                continue
            rendered.starts[index] = rendered.length
            if index in placed.replaced:
                skipped, text = placed.replaced[index]
            elif piece.translated is None:
                text = passage.written(piece.source[0] + index - begin)
            else:
                text = placed.target[index]
                text = _ESCAPED.get(text, text) if passage.escaped else text
            rendered.write(text)
            rendered.ends[index] = rendered.length
    for _, mark in marks:
        rendered.write(mark)
    return rendered
