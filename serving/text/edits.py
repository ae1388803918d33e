"""Edits of a translation, which its word links survive."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from serving.text.alignment import Link, Span


@dataclass(frozen=True)
class Edit:
    """A span of a translation and its replacement."""

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
    moved = []
    for link in links:
        begin, end = link.target
        target = _moved(begin, edits, at_end=False), _moved(end, edits, at_end=True)
        moved.append(dataclasses.replace(link, target=target))
    return tuple(moved)


def _moved(place: int, edits: Sequence[Edit], *, at_end: bool) -> int:
    """Position after the edits. A position within an edit moves to the begin, or with `at_end` to
    the end, of the replacement."""
    by = 0
    for edit in edits:
        begin, end = edit.span
        if place >= end:
            by += len(edit.text) - (end - begin)
        elif place > begin:
            return begin + by + len(edit.text) * at_end
    return place + by
