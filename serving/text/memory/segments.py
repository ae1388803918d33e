"""Segments of a translation memory: how one is compared, and how it is made to fit a sentence.

Numbers and placeholders are no part of what is compared: `Page 3 of 10` is the same segment as
`Page 7 of 12`, and the numbers of the one are put in the places of the other's.
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
from serving.text.kept.figures import in_convention
from serving.text.kept.placeholders import placeholders
from serving.text.languages import base_language

DEFAULT_THRESHOLD = 75
"""Percent of likeness from which on a segment is taken, where nobody says otherwise."""
_NUMBER_SIGN, _PLACEHOLDER_SIGN = "\x01", "\x02"
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_HINT = re.compile(r"[{}%$<>\\@#_&=~^*\[\]`|/\u2080-\u209c]")
"""A sign of every placeholder; to look for them takes a hundred times as long as for this."""
_SIGNS = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u201e": '"'})
_CASE_ONLY = 99.0
"""The score of a segment that differs in nothing but capitals; what differs in more has less."""


class Segment(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class Value(NamedTuple):
    """A number or a placeholder of a text."""

    span: Span
    text: str
    is_number: bool


@dataclass(frozen=True)
class Recalled:
    """A translation that was found in a memory."""

    text: str
    """With the numbers and placeholders of the sentence that was asked for."""
    score: float
    """Percent of likeness; 100 where the segment differs in numbers and placeholders at most."""
    source: str
    """The sentence of the segment, as it is kept."""


class Draft(NamedTuple):
    """A sentence that is like another one, and its translation; both with the numbers and
    placeholders of the other one."""

    source: str
    target: str


@dataclass(frozen=True)
class MemoryUse:
    """A memory that a request names, and how much of it counts."""

    find: Callable[[Sequence[str], float], Sequence[Recalled | None]]
    """Gives, for sentences and a threshold in percent, the best segment of each. It may wait for a
    database."""
    threshold: float = DEFAULT_THRESHOLD
    """Percent of likeness that a segment must have at least."""
    as_prefix: bool = False
    """Whether a segment that is only like a sentence gives the beginning of its translation; else
    its translation is taken as it is."""
    source: str = ""
    """Language code of its sentences; empty where every text is in that language."""

    def __post_init__(self) -> None:
        """Raises InvalidOptionError for a threshold that is no percentage."""
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
    kept = list(placeholders(text)) if _HINT.search(text) else []
    found = []
    end = 0
    for each in kept:
        found += _numbers(text, end, each.span[0])
        found.append(Value(each.span, text[slice(*each.span)], each.kind == "figure"))
        end = each.span[1]
    return found + _numbers(text, end, len(text))


def key_of(text: str) -> str:
    """What is compared of a text: one space for each run of them, no capitals, straight quotation
    marks, and a sign in place of each number and placeholder."""
    parts, end = [], 0
    for value in values_of(text):
        parts.append(text[end : value.span[0]])
        parts.append(_NUMBER_SIGN if value.is_number else _PLACEHOLDER_SIGN)
        end = value.span[1]
    parts.append(text[end:])
    return _normal("".join(parts)).casefold()


def fitted(segment: Segment, sentence: str, source: str, target: str) -> str | None:
    """The translation of a segment with the numbers and placeholders of a sentence.

    None where the two do not have as many, and where one that changes stands more than once, or not
    once, in the sentence of the segment or in its translation: then nobody knows its place.
    Numbers of the translation count as the `target` language writes those of the `source` language;
    None, too, where both write the old number alike but not the new one: whether `1.5` in the place
    of `5` is an amount or a version, nobody knows.
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
    """What a memory has for a sentence, as a pair that differs from it in words alone."""
    source = recalled.source
    pairs = zip(values_of(source), values_of(sentence), strict=True)
    for old, new in reversed(list(pairs)):
        source = source[: old.span[0]] + new.text + source[old.span[1] :]
    return Draft(source, recalled.text)


def changed_words(sentence: str, draft: str) -> Span | None:
    """Which words of a draft (`word_spans`) another sentence does not have, as numbers: behind
    those with which both begin, and before those with which both end. Where the sentence has but
    more words it is the word before which they stand. None where the two begin with other words,
    and where the sentence begins with all of the draft.
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
    """The translation of the best candidate that reaches the threshold and fits. Candidates come
    with the likeness of their keys in percent; of several as good, the one that is the sentence
    word for word counts, or else the first."""
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
    """How many words two lists have in common at their beginning."""
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
