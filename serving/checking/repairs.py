"""What is done about a translation with faults, from the least to the most: another hypothesis,
words that a second search must or must not write, and the source's own form at its place."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from serving.checking.invariants import Fault, FaultKind, Languages, faults
from serving.checking.letters import has_similar
from serving.text.alignment import Link, Span

RepairedBy = Literal["hypothesis", "search", "source"]


@dataclass(frozen=True)
class Repair:
    """What was wrong with the translation of a sentence, and how it was put right."""

    kind: FaultKind
    what: str
    """The part of the source that was missing, or of the output that was too much."""
    by: RepairedBy
    """`hypothesis`: the next best that has no fault; `search`: it was decoded again; `source`: what
    was missing was put at its place."""


@dataclass(frozen=True)
class SecondSearch:
    """What a second search for a translation has to hold to."""

    required: tuple[str, ...]
    forbidden: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.required or self.forbidden)


@dataclass(frozen=True)
class Edit:
    """A part of a translation, and what is to stand in its place."""

    span: Span
    text: str


def repairs(found: Sequence[Fault], by: RepairedBy) -> tuple[Repair, ...]:
    """One for each thing that was wrong."""
    return tuple(dict.fromkeys(Repair(fault.kind, fault.what, by) for fault in found))


def left_of(wrong: Sequence[Fault], source: str, output: str, languages: Languages) -> list[Fault]:
    """The faults of another output, and those of the first, `wrong`, that it has as well: a word
    that stood there in broken characters may be missing without any trace."""
    found = faults(source, output, languages)
    lost = (fault for fault in wrong if fault.kind == "letters" and fault.wanted)
    return found + [
        fault
        for fault in lost
        if fault not in found and not (fault.what in output or has_similar(fault.what, output))
    ]


def first_without_faults(
    source: str, outputs: Sequence[str], languages: Languages, wrong: Sequence[Fault]
) -> int | None:
    """The number of the first output of which nothing is `left_of` what was `wrong`."""
    return next(
        (n for n, output in enumerate(outputs) if not left_of(wrong, source, output, languages)),
        None,
    )


def wishes(found: Sequence[Fault]) -> SecondSearch:
    """What would keep a second search from the same faults.

    A figure that is too much is not forbidden where another is required: it may be part of that.
    """
    required = tuple(dict.fromkeys(f.wanted for f in found if f.wanted))
    strange = dict.fromkeys(f.what for f in found if f.target and f.kind == "letters")
    extra = [f.what for f in found if f.target and f.kind == "figures"]
    forbidden = (*strange, *(() if required else dict.fromkeys(extra)))
    return SecondSearch(required, forbidden)


def put_right(
    source: str, output: str, links: Sequence[Link], languages: Languages
) -> list[Edit] | None:
    """What makes an output right by putting the source's own forms where they belong: at what is
    too much, if that has the same digits or is the only thing, else at the words that are linked
    to them. None where the result would still have a fault."""
    found = faults(source, output, languages)
    missing = [fault for fault in found if fault.source and fault.wanted]
    extra = [fault for fault in found if fault.target]
    edits: list[Edit] = []
    for fault in missing:
        same = [other for other in extra if other.kind == fault.kind]
        linked = _linked(fault, links)
        of_link = [o for o in same if linked and o.target and _overlap(o.target, linked)]
        twins = [other for other in same if _digits(other.what) == _digits(fault.what) != ""]
        sole = len(same) == 1 and sum(m.kind == fault.kind for m in missing) == 1
        place = of_link[0].target if of_link else same[0].target if sole else None
        if len(twins) == 1:
            place = twins[0].target
        if fault.kind == "letters":
            place = _whole_words(output, place or linked)
        if place is None or any(_overlap(place, edit.span) for edit in edits):
            return None
        edits.append(Edit(place, fault.wanted or ""))
    edits.sort(key=lambda edit: edit.span)
    if not edits or faults(source, edited(output, edits), languages):
        return None
    return edits


def edited(text: str, edits: Sequence[Edit]) -> str:
    """A text with its edits, which are in order and apart."""
    parts, done = [], 0
    for edit in edits:
        parts += [text[done : edit.span[0]], edit.text]
        done = edit.span[1]
    return "".join([*parts, text[done:]])


def edited_links(links: Sequence[Link], edits: Sequence[Edit]) -> tuple[Link, ...]:
    """Links whose targets lie in the edited text; a word that is replaced keeps its link."""
    moved = []
    for link in links:
        begin, end = link.target
        target = _moved(begin, edits, at_end=False), _moved(end, edits, at_end=True)
        moved.append(dataclasses.replace(link, target=target))
    return tuple(moved)


def _moved(place: int, edits: Sequence[Edit], *, at_end: bool) -> int:
    """Where a place is after the edits; one within an edit becomes the end of what stands there
    then, or its begin."""
    by = 0
    for edit in edits:
        begin, end = edit.span
        if place >= end:
            by += len(edit.text) - (end - begin)
        elif place > begin:
            return begin + by + len(edit.text) * at_end
    return place + by


def _linked(fault: Fault, links: Sequence[Link]) -> Span | None:
    """From the first to the last word that translates what is missing; None where they are not
    side by side, or none is."""
    if fault.source is None:
        return None
    found = sorted(link.target for link in links if _overlap(link.source, fault.source))
    if not found:
        return None
    span = found[0][0], found[-1][1]
    others = (
        link.target
        for link in links
        if not _overlap(link.source, fault.source) and _overlap(link.target, span)
    )
    return None if next(others, None) else span


def _whole_words(text: str, span: Span | None) -> Span | None:
    """A span with the letters that touch it: `��ukasz` is all of a broken name."""
    if span is None:
        return None
    begin, end = span
    while begin and text[begin - 1].isalpha():
        begin -= 1
    while end < len(text) and text[end].isalpha():
        end += 1
    return begin, end


def _digits(text: str) -> str:
    return "".join(filter(str.isdecimal, text))


def _overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]
