"""Writes a passage's translation as text or markup, and maps its characters to the output."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from serving.text.alignment import Link
from serving.text.passages.passage import CDATA, Passage, escaped
from serving.text.placing.placement import Placed

_END_OF_CDATA = "]]>"


@dataclass
class Rendered:
    """A written translation."""

    parts: list[str]
    starts: list[int]
    ends: list[int]
    """Begin and end of each target character in the output."""
    length: int = 0
    text: str = ""
    """The whole output, once it is complete."""

    def ends_with(self, text: str) -> bool:
        """Whether the output ends with this text."""
        return "".join(self.parts[-len(text) :]).endswith(text)

    def write(self, text: str) -> None:
        """Append text to the output."""
        self.parts.append(text)
        self.length += len(text)


def as_it_was(passage: Passage) -> Rendered:
    """The passage as in the source, if its translation is the same."""
    begin, end = passage.span
    starts, ends = zip(*passage.origins, strict=True)
    return Rendered(
        [passage.source[begin:end]],
        [start - begin for start in starts],
        [last - begin for last in ends],
        end - begin,
        passage.source[begin:end],
    )


def render(passage: Passage, placed: Placed) -> Rendered:
    """Write a translation with its markup."""
    length = len(placed.target)
    rendered = Rendered([], [0] * length, [0] * length)
    marks = deque(placed.marks)
    skipped = 0  # end of the last replaced span
    markup = passage.markup
    for piece in placed.pieces:
        begin, end = piece.target
        stays = piece.translated is None or (
            not passage.inlines and piece.translated.text == passage.text[slice(*piece.source)]
        )
        for index in range(begin, end):
            while marks and marks[0][0] <= index:
                mark = marks.popleft()[1]
                rendered.write(mark)
                if mark == CDATA:
                    markup = "cdata"
                elif mark == _END_OF_CDATA:
                    markup = passage.markup
            if index < skipped:
                rendered.starts[index] = rendered.starts[index - 1]
                rendered.ends[index] = rendered.ends[index - 1]
                continue
            rendered.starts[index] = rendered.length
            if index in placed.replaced:
                skipped, text = placed.replaced[index]
            elif stays:
                text = passage.written(piece.source[0] + index - begin)
            else:
                text = placed.target[index]
                if markup != "text" or passage.quotes:
                    text = escaped(text, markup, passage.quotes)
            if markup == "cdata" and text == ">" and rendered.ends_with("]]"):
                text = f"{_END_OF_CDATA}{CDATA}>"
            rendered.write(text)
            rendered.ends[index] = rendered.length
    for _, mark in marks:
        rendered.write(mark)
    rendered.text = "".join(rendered.parts)
    return rendered


def links_of(passage: Passage, placed: Placed, rendered: Rendered, offset: int) -> Iterator[Link]:
    """The word links of a passage; `offset` characters of the output precede it."""
    for piece in placed.pieces:
        for link in piece.translated.links if piece.translated else ():
            begin, end = (piece.target[0] + place for place in link.target)
            source = (piece.source[0] + link.source[0], piece.source[0] + link.source[1])
            target = (offset + rendered.starts[begin], offset + rendered.ends[end - 1])
            yield replace(link, source=passage.origin(source), target=target)
