"""Segments of a translation memory: their comparison with a sentence, and their adaptation to it.

Numbers and placeholders are not compared: `Page 3 of 10` and `Page 7 of 12` are the same segment,
and the numbers of the sentence replace those of the segment.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from serving.errors import InvalidOptionError
from serving.text.alignment import Span, word_spans
from serving.text.kept.figures import in_convention, without_unit
from serving.text.kept.placeholders import placeholders
from serving.text.languages import base_language

DEFAULT_THRESHOLD = 75
"""The default threshold, in percent of similarity."""
_NUMBER_SIGN, _PLACEHOLDER_SIGN = "\x01", "\x02"
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_HINT = re.compile(r"[{}%$<>\\@#_&=~^*\[\]`|/\u2080-\u209c]")
"""Characters that occur in every placeholder; searching for these is a hundred times as fast."""
_SIGNS = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u201e": '"'})
_CASE_ONLY = 99.0
"""Score of a segment that differs in capitals only; larger differences score less."""


class Segment(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class Value(NamedTuple):
    """A number or a placeholder in a text."""

    span: Span
    text: str
    is_number: bool


@dataclass(frozen=True)
class Recalled:
    """A translation found in a memory."""

    text: str
    """The translation with the numbers and placeholders of the requested sentence."""
    score: float
    """Similarity in percent; 100 if at most numbers and placeholders differ."""
    source: str
    """The stored sentence of the segment."""


class Draft(NamedTuple):
    """A similar sentence and its translation, both with the numbers and placeholders of the
    requested sentence."""

    source: str
    target: str


@dataclass(frozen=True)
class MemoryUse:
    """The memory of a request, and how it is used."""

    find: Callable[[Sequence[str], float], Sequence[Recalled | None]]
    """Takes sentences and a threshold in percent; returns the best segment of each, or None. It may
    wait for a database."""
    threshold: float = DEFAULT_THRESHOLD
    """Smallest accepted similarity, in percent."""
    as_prefix: bool = False
    """Whether a segment that is only like a sentence gives the beginning of its translation; else
    its translation is taken as it is."""
    source: str = ""
    """Language code of its sentences; empty if every text is in that language."""

    def __post_init__(self) -> None:
        """Raises InvalidOptionError if the threshold is not a percentage."""
        if not 0 <= self.threshold <= 100:
            raise InvalidOptionError(
                f"memory_threshold must be a percentage from 0 to 100, got {self.threshold:g}",
                parameter="memory_threshold",
            )

    def serves(self, language: str) -> bool:
        """Whether it has sentences in the language of a text; regions do not count."""
        return not self.source or base_language(self.source) == base_language(language)


def values_of(text: str) -> list[Value]:
    """The numbers and placeholders of a text, in order."""
    found = []
    end = 0
    for each in placeholders(text) if _HINT.search(text) else ():
        found += _numbers(text, end, each.span[0])
        kept, is_number = text[slice(*each.span)], each.kind == "figure"
        if is_number:
            kept = without_unit(kept)
        end = each.span[0] + len(kept)
        found.append(Value((each.span[0], end), kept, is_number))
    return found + _numbers(text, end, len(text))


def key_of(text: str) -> str:
    """The compared form of a text: white space collapsed, small letters, straight quotation marks,
    and a sign in place of each number and placeholder."""
    parts, end = [], 0
    for value in values_of(text):
        parts.append(text[end : value.span[0]])
        parts.append(_NUMBER_SIGN if value.is_number else _PLACEHOLDER_SIGN)
        end = value.span[1]
    parts.append(text[end:])
    return _normal("".join(parts)).casefold()


def fitted(segment: Segment, sentence: str, source: str, target: str) -> str | None:
    """The translation of a segment with the numbers and placeholders of a sentence.

    Returns None if the numbers and placeholders do not correspond one to one, or if one that
    changes does not occur exactly once in the segment's source and target, because then its place
    is unknown. Numbers of the translation are compared in the format of the `target` language.
    Returns None also if both languages write the old number alike but not the new one: `1.5` in
    place of `5` may be an amount or a version.
    """
    own, wanted = values_of(segment.source), values_of(sentence)
    if [value.is_number for value in own] != [value.is_number for value in wanted]:
        return None
    counts = Counter(value.text for value in own)
    places = values_of(segment.target)
    edits = []
    for old, new in zip(own, wanted, strict=True):
        if old.text == new.text:
            continue
        theirs = in_convention(old.text, source, target), in_convention(new.text, source, target)
        if theirs[0] == old.text and theirs[1] != new.text:
            return None
        written = {old.text: new.text, theirs[0]: theirs[1]}
        found = [place for place in places if place.text in written]
        if counts[old.text] != 1 or len(found) != 1:
            return None
        edits.append((found[0].span, written[found[0].text]))
    text = segment.target
    for (begin, end), new_text in sorted(edits, reverse=True):
        text = text[:begin] + new_text + text[end:]
    return text


def draft_of(recalled: Recalled, sentence: str) -> Draft:
    """The segment found for a sentence, adapted so that both differ in words only."""
    source = recalled.source
    pairs = zip(values_of(source), values_of(sentence), strict=True)
    for old, new in reversed(list(pairs)):
        source = source[: old.span[0]] + new.text + source[old.span[1] :]
    return Draft(source, recalled.text)


def changed_words(sentence: str, draft: str) -> Span | None:
    """The range of words (`word_spans`) of a draft that the sentence does not have.

    It starts after the common beginning and ends before the common end. If the sentence only has
    additional words, the range is the word that follows them. Returns None if the two begin with
    different words, or if the sentence begins with the whole draft.
    """
    own = [sentence[slice(*span)] for span in word_spans(sentence)]
    theirs = [draft[slice(*span)] for span in word_spans(draft)]
    begin = _alike(own, theirs)
    if begin in (0, len(theirs)):
        return None
    rest = min(len(own), len(theirs)) - begin
    end = len(theirs) - min(_alike(own[::-1], theirs[::-1]), rest)
    return begin, max(end, begin + 1)


def best_of(
    sentence: str,
    candidates: Sequence[tuple[float, Segment]],
    threshold: float,
    languages: tuple[str, str],
) -> Recalled | None:
    """The best candidate that reaches the threshold and can be adapted.

    Candidates are pairs of the similarity of their keys, in percent, and a segment. Among equally
    good ones, a segment with exactly this sentence wins, then the first.
    """
    best: Recalled | None = None
    for likeness, segment in candidates:
        score = min(likeness, _CASE_ONLY)
        if likeness == 100.0 and _without_values(segment.source) == _without_values(sentence):
            score = 100.0
        if score < threshold:
            continue
        rank = score, segment.source == sentence
        if best is not None and rank <= (best.score, best.source == sentence):
            continue
        text = fitted(segment, sentence, *languages)
        if text is not None:
            best = Recalled(text, score, segment.source)
    return best


def _alike(first: Sequence[str], second: Sequence[str]) -> int:
    """Number of equal words at the beginning of two lists."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(first), len(second)))


def _without_values(text: str) -> str:
    for value in reversed(values_of(text)):
        text = text[: value.span[0]] + _NUMBER_SIGN + text[value.span[1] :]
    return _normal(text)


def _normal(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).translate(_SIGNS).split())


def _numbers(text: str, begin: int, end: int) -> list[Value]:
    return [Value(m.span(), m[0], True) for m in _NUMBER.finditer(text, begin, end)]
