"""Repairs of a faulty translation, mildest first: another hypothesis, a second search with required
and forbidden terms, and the source's own form at its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from serving.checking.invariants import Fault, FaultKind, Languages, faults
from serving.checking.letters import has_similar
from serving.checking.names import likely_places
from serving.text.alignment import Link, Span
from serving.text.edits import Edit, edited

RepairedBy = Literal["hypothesis", "search", "source"]


_SMALL_WORD = 3
"""Most letters of a word that is not replaced by a name: it may be an article or a preposition."""
_SURE = 0.5
"""Least share of a word's attention for which a name replaces it."""


@dataclass(frozen=True)
class Repair:
    """A fault of a translation and how it was repaired."""

    kind: FaultKind
    what: str
    """The missing part of the source, or the superfluous part of the output."""
    by: RepairedBy
    """`hypothesis`: the best hypothesis without a fault was taken; `search`: the sentence was
    decoded again; `source`: the missing part was inserted."""


@dataclass(frozen=True)
class SecondSearch:
    """Terms that a second search must and must not write."""

    required: tuple[str, ...]
    forbidden: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.required or self.forbidden)


def repairs(found: Sequence[Fault], by: RepairedBy) -> tuple[Repair, ...]:
    """One repair for each distinct fault."""
    return tuple(dict.fromkeys(Repair(fault.kind, fault.what, by) for fault in found))


def left_of(wrong: Sequence[Fault], source: str, output: str, languages: Languages) -> list[Fault]:
    """The faults of another output, with those of `wrong` that it still has. A word that was broken
    in the first output may be missing here without leaving a fault of its own."""
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
    """Index of the first output for which `left_of` is empty; None if there is none."""
    return next(
        (n for n, output in enumerate(outputs) if not left_of(wrong, source, output, languages)),
        None,
    )


def wishes(found: Sequence[Fault]) -> SecondSearch:
    """Terms for a second search that would avoid the faults.

    A superfluous figure is not forbidden if another one is required: it may be part of that. Names
    are not required: a search that must write a rare word writes it anywhere.
    """
    required = tuple(dict.fromkeys(f.wanted for f in found if f.wanted and f.kind != "names"))
    strange = dict.fromkeys(f.what for f in found if f.target and f.kind == "letters")
    extra = [f.what for f in found if f.target and f.kind == "figures"]
    forbidden = (*strange, *(() if required else dict.fromkeys(extra)))
    return SecondSearch(required, forbidden)


def put_right(
    source: str, output: str, links: Sequence[Link], languages: Languages
) -> list[Edit] | None:
    """Edits that put the source's forms into the output, or None if a fault would remain.

    A missing form replaces a superfluous one if that has the same digits or is the only one;
    otherwise it replaces the words linked to it. A name replaces its copy or its broken form.
    """
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
        if fault.kind == "names":
            places = _name_places(fault, output, links)
            place = next((p for p in places if not any(_overlap(p, e.span) for e in edits)), None)
        if place is None or any(_overlap(place, edit.span) for edit in edits):
            return None
        wanted = fault.wanted or ""
        if fault.kind == "names" and not any(map(str.isalnum, output[: place[0]])):
            wanted = wanted[:1].upper() + wanted[1:]
        edits.append(Edit(place, wanted))
    edits.sort(key=lambda edit: edit.span)
    if not edits or faults(source, edited(output, edits), languages):
        return None
    return edits


def _linked(fault: Fault, links: Sequence[Link]) -> Span | None:
    """Span of the target words that translate the missing part; None if there are none, or if they
    are not contiguous."""
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


def _name_places(fault: Fault, output: str, links: Sequence[Link]) -> Iterator[Span]:
    """The words that a missing name may replace, the likeliest first: its copy, its broken form,
    and a word whose attention goes to it."""
    assert fault.source is not None
    yield from likely_places(fault.what, fault.wanted or "", output)
    for link in sorted(links, key=lambda link: -link.probability):
        long = link.target[1] - link.target[0] > _SMALL_WORD
        if long and link.probability >= _SURE and _overlap(link.source, fault.source):
            yield link.target


def _whole_words(text: str, span: Span | None) -> Span | None:
    """The span extended to whole words: for `��ukasz`, all of a broken name."""
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
