"""Edits of a sentence or of its translation, which the word links survive."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from serving.text.alignment import Link, Span


@dataclass(frozen=True)
class Edit:
    """A span of a text and its replacement."""

    span: Span
    text: str


def edited(text: str, edits: Sequence[Edit]) -> str:
    """Apply edits, which are in order and do not overlap."""
    parts, done = [], 0
    for edit in edits:
        parts += [text[done : edit.span[0]], edit.text]
        done = edit.span[1]
    return "".join([*parts, text[done:]])


def edited_links(links: Sequence[Link], edits: Sequence[Edit]) -> tuple[Link, ...]:
    """Links with their targets moved to the edited text; a replaced word keeps its link."""
    return tuple(dataclasses.replace(link, target=moved_span(link.target, edits)) for link in links)


def moved_span(span: Span, edits: Sequence[Edit]) -> Span:
    """A span of a text in the edited text; it takes all of a replacement that it touches."""
    return _moved(span[0], edits, at_end=False), _moved(span[1], edits, at_end=True)


def undone(text: str, edits: Sequence[Edit]) -> list[Edit]:
    """The edits that make the text again of its edited form."""
    found, by = list[Edit](), 0
    for edit in edits:
        begin, end = edit.span
        found.append(Edit((begin + by, begin + by + len(edit.text)), text[begin:end]))
        by += len(edit.text) - (end - begin)
    return found


def _moved(place: int, edits: Sequence[Edit], *, at_end: bool) -> int:
    """Position after the edits. A position within an edit moves to the begin, or with `at_end` to
    the end, of the replacement. An end stays before what is inserted there."""
    by = 0
    for edit in edits:
        begin, end = edit.span
        if at_end and begin == end == place:
            continue
        if place >= end:
            by += len(edit.text) - (end - begin)
        elif place > begin:
            return begin + by + len(edit.text) * at_end
    return place + by
