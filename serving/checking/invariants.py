"""Invariants between a sentence and a correct translation, as a table of checks.

Each check compares both texts and returns only certain faults, so that a correct translation is
practically never changed. Lost negations are not checked: that would need a parser of both
languages.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from serving.checking.figures import unmatched, written
from serving.checking.letters import has_similar, lost_words, strange_letters
from serving.checking.names import WORD, first_words, has_names, lost_names
from serving.checking.surnames import TITLE, lost_surnames, surnames
from serving.checking.units import strange_sign
from serving.text.alignment import Span
from serving.text.kept.masks import MASKS
from serving.text.kept.placeholders import likely_tags, placeholders

FaultKind = Literal["figures", "letters", "names", "codes", "shape"]
FAULT_KINDS = frozenset(get_args(FaultKind))

_CYCLE_WORDS, _CYCLE_TIMES = 8, 4
_LONGEST, _LEAST_LONG = 4, 80
"""Largest ratio of the lengths of a translation and its source, and the characters allowed on
top."""
_SHORTEST, _LEAST_SHORT = 6, 90
_FIGURE = re.compile("[0-9$€£¥%]")
_CODE = r"[@#$%{}\[\]<>\\_`|~=/*^&]|[.:][A-Za-z]"
_CODES = re.compile(_CODE)
_SERIAL = re.compile(r"\b(?=[0-9A-Za-z]{10})[0-9A-Za-z]*[0-9][A-Za-z]+[0-9][0-9A-Za-z]*\b")
"""Alternating digits and letters, as in check sums, keys and account numbers."""
_NOTEWORTHY = re.compile(rf"[0-9]|[^\x00-\x7f\u00a0-\u00ff\u2010-\u2026\u0152\u0153\u20ac]|{_CODE}")
_LAST_PART = re.compile(r"(?<=\w)-[^\W\d_]{3,}\Z|['’]s\Z")
"""Suffix of a compound, as in `.doc-Format`, or of a genitive: an ordinary word."""
_NUMBERED = re.compile(r"\w*#[0-9]+")
"""`#5` and `Bug#5` may become `n° 5` and `Fehler 5`; their number is checked as a number."""
_CONVERSION = re.compile(r"(?:(?<=\w)|\A)(%(?:[0-9]+\$)?[-0-9.]*[sdifgxc])(?:\w*| [$€£¥])\Z")
"""Suffix of a code with a letter or a currency sign at its end: `to%s`, `%1$ss`, `%d $`."""
_ENDING = re.compile(r"\.([A-Za-z]{2,4})")
"""A file name extension; it may appear in any case and without its dot: `MSI-Datei` for `.msi`."""
_BROKEN_WORD = re.compile("[^\\W\\d_]*[\ufffd\u2600-\u27bf\U0001f000-\U0001faff]+[^\\W\\d_]*")
"""A word with a broken character or a picture in it."""
_CLOSING = ".,;:!?"
_REMEMBERED = 64
"""Number of sources whose codes are cached: each is compared with several hypotheses."""


@dataclass(frozen=True)
class Fault:
    """A fault of a translation, or something missing in it."""

    kind: FaultKind
    what: str
    """The missing part of the source, or the superfluous part of the output."""
    source: Span | None = None
    """Its span in the source if something is missing; None if the output has too much."""
    target: Span | None = None
    """Its span in the output if that is wrong; None if something is missing."""
    wanted: str | None = None
    """The expected text in the output, in the target's form; None if unknown."""
    elsewhere: bool = False
    """Whether the fault is repaired, and reported, when the text is joined from its sentences."""


Languages = tuple[str | None, str | None]
"""Language codes of a source and of its translation; None if unknown."""
Invariant = Callable[[str, str, str | None, str | None], Iterator[Fault]]
"""Takes source, output and the two languages; a language is None if it is unknown."""


def faults(source: str, output: str, languages: Languages) -> list[Fault]:
    """The faults of a translation, in the order of the table; empty if none is certain."""
    return [fault for invariant in INVARIANTS for fault in invariant(source, output, *languages)]


def is_noteworthy(text: str, languages: Languages) -> bool:
    """Whether a sentence may contain more than words: numbers, other alphabets, codes or tags, or
    a known name or a surname after a title."""
    return (
        _NOTEWORTHY.search(text) is not None
        or (_may_have_names(text, *languages) and has_names(text, *languages))
        or (TITLE.search(text) is not None and any(surnames(text, *languages)))
    )


def figures(
    source: str, output: str, source_language: str | None, target_language: str | None
) -> Iterator[Fault]:
    """Checks that numbers and currency signs agree, by the conventions of both languages."""
    if not (_FIGURE.search(source) or _FIGURE.search(output)):
        return
    found = unmatched(source, output, source_language, target_language)
    for figure in found.missing:
        wanted = written(figure.text, source_language, target_language)
        yield Fault("figures", figure.text, source=figure.span, wanted=wanted)
    for figure in found.extra:
        yield Fault("figures", figure.text, target=figure.span)
    sign = strange_sign(source, output)
    if sign is not None:
        yield Fault("figures", sign[0], target=sign[1])


def letters(
    source: str, output: str, source_language: str | None, target_language: str | None
) -> Iterator[Fault]:
    """Checks for broken characters, for pictures and scripts that the source does not have, and for
    lost words in other alphabets."""
    if output.isascii() and source.isascii():
        return
    strange = list(strange_letters(source, output, target_language))
    for begin, end in strange:
        yield Fault("letters", output[begin:end], target=(begin, end))
    whole = _BROKEN_WORD.sub(" ", output) if strange else output
    for begin, end in lost_words(
        source, whole, source_language, target_language, broken=bool(strange)
    ):
        word = source[begin:end]
        yield Fault("letters", word, source=(begin, end), wanted=word)


def names(
    source: str, output: str, source_language: str | None, target_language: str | None
) -> Iterator[Fault]:
    """Checks that countries, languages, cities, weekdays and months are named in the target's
    language, and that surnames after a title are there."""
    if TITLE.search(source):
        for span in lost_surnames(source, output, source_language, target_language):
            name = source[slice(*span)]
            # One with a broken character is lost as a word already.
            broken = letters(source, output, source_language, target_language)
            if all(fault.what != name for fault in broken):
                yield Fault("names", name, source=span, wanted=name)
    if not _may_have_names(source, source_language, target_language):
        return
    for lost in lost_names(source, output, source_language, target_language):
        what = source[slice(*lost.span)]
        yield Fault("names", what, source=lost.span, wanted=lost.wanted)


def codes(
    source: str, output: str, source_language: str | None, target_language: str | None
) -> Iterator[Fault]:
    """Checks that placeholders, links, codes and tags occur as often as in the source."""
    if not (_CODES.search(source) or _SERIAL.search(source)):
        return
    for thing, span in _things(source):
        if not _kept(thing, source, output):
            yield Fault("codes", thing, source=span, wanted=thing)


def masks(
    source: str, output: str, source_language: str | None, target_language: str | None
) -> Iterator[Fault]:
    """Checks that the names of kept objects are present, in any form, and that none occurs
    twice."""
    for name in MASKS:
        places = list(re.finditer(rf"\b{name}\b", source)) if name in source else []
        if not places:
            continue
        found = list(re.finditer(rf"\b{name}s?\b", output))
        if not found and not has_similar(name, output):
            yield Fault("codes", name, source=places[0].span(), elsewhere=True)
        for more in found[len(places) :]:
            yield Fault("codes", name, target=more.span(), elsewhere=True)


def shape(
    source: str, output: str, source_language: str | None, target_language: str | None
) -> Iterator[Fault]:
    """Checks that the output is not empty, does not loop, and has a plausible length."""
    if not output.strip():
        if any(map(str.isalnum, source)):
            yield Fault("shape", "empty")
    elif _in_circles(output) and not _in_circles(source):
        yield Fault("shape", "loop")
    elif len(output) > _LONGEST * len(source) + _LEAST_LONG:
        yield Fault("shape", "long")
    elif len(source) > _SHORTEST * len(output) + _LEAST_SHORT:
        yield Fault("shape", "short")


INVARIANTS: tuple[Invariant, ...] = (figures, letters, names, codes, masks, shape)
"""All checks."""


def _may_have_names(source: str, source_language: str | None, target_language: str | None) -> bool:
    """Whether a word of the source begins a known name; most sentences have none."""
    return not first_words(source_language, target_language).isdisjoint(WORD.findall(source))


@functools.lru_cache(_REMEMBERED)
def _things(source: str) -> tuple[tuple[str, Span], ...]:
    """Codes, links and tags of a source, each once, with their spans."""
    spans = [p.span for p in placeholders(source) if p.kind == "word"]
    spans += [span for span, _, _ in likely_tags(source)]
    serials = [match.span() for match in _SERIAL.finditer(source)]
    spans += [s for s in serials if not any(b < s[1] and s[0] < e for b, e in spans)]
    found: dict[str, Span] = {}
    for begin, end in sorted(spans):
        thing = _LAST_PART.sub("", source[begin:end].rstrip(_CLOSING))
        found.setdefault(thing, (begin, begin + len(thing)))
    return tuple(found.items())


def _kept(thing: str, source: str, output: str) -> bool:
    """Whether a translation has an object, or its essential part, as often as its source."""
    if _NUMBERED.fullmatch(thing) or _count(thing, output) == _count(thing, source):
        return True
    conversion, ending = _CONVERSION.search(thing), _ENDING.fullmatch(thing)
    if ending:
        return re.search(rf"\b{ending[1]}\b", output, re.IGNORECASE) is not None
    return conversion is not None and output.count(conversion[1]) == source.count(conversion[1])


def _count(thing: str, text: str) -> int:
    """Number of occurrences of an object in a text; spaces within it are ignored."""
    return "".join(text.split()).count("".join(thing.split()))


def _in_circles(text: str) -> bool:
    """Whether a cycle of up to 8 words is repeated four times at the end."""
    words = text.split()
    for length in range(1, _CYCLE_WORDS + 1):
        end = words[-length * _CYCLE_TIMES :]
        if len(end) == length * _CYCLE_TIMES and end == end[:length] * _CYCLE_TIMES:
            return True
    return False
