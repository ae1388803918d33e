"""Finds the terms of a glossary in a text, in any inflected form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from serving.errors import InvalidOptionError
from serving.text.alignment import Span
from serving.text.document import Document, Kept
from serving.text.inflection import stem

MOST_IN_SENTENCE = 64
"""Largest number of terms that are used in one sentence."""
_ALONE = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Letters of scripts without spaces between words: each is a token."""
_LETTERS = rf"(?:(?![{_ALONE}])[\w\u0300-\u036f])+"
_TOKEN = re.compile(rf"[{_ALONE}]|{_LETTERS}(?:[-\u2010\u2011]{_LETTERS})*|[^\w\s]")
"""A hyphenated word is one token: `Mail` does not match within `E-Mail`."""


@dataclass(frozen=True)
class Match:
    """A term found in a text."""

    span: Span
    """Span in characters."""
    source: str
    """The term as written in the glossary."""
    target: str
    """The term's translation as written in the glossary."""
    others: tuple[str, ...] = ()
    """What is right as well, where the translation has it; empty in a glossary."""
    plural: str = ""
    """The plural of `target`, if the text does not say which of the two is meant."""


@dataclass(frozen=True)
class TermWord:
    """A word, or a single sign."""

    span: Span
    text: str
    stem: str


class TermIndex:
    """The entries of a glossary for one language pair, indexed for lookup; immutable."""

    def __init__(self, entries: Iterable[tuple[str, str]], source: str, target: str) -> None:
        """`entries` are pairs of term and translation; `source` and `target` are language codes.
        Raises InvalidOptionError for what is no such pair, and for a blank translation."""
        self.source, self.target = source, target
        self._entries: dict[tuple[str, ...], list[tuple[str, str]]] = {}
        lengths: dict[str, set[int]] = {}
        for term, translation in map(_checked, entries):
            key = tuple(token.stem for token in tokens(term, source))
            if key:
                self._entries.setdefault(key, []).append((term, translation))
                lengths.setdefault(key[0], set()).add(len(key))
        self._lengths = {first: sorted(found) for first, found in lengths.items()}

    def __len__(self) -> int:
        """Number of entries."""
        return sum(map(len, self._entries.values()))

    def found(self, words: Sequence[TermWord], text: str) -> list[tuple[int, int, Match]]:
        """All terms among the tokens of a text, overlapping ones too, each with the index of its
        first token and its number of tokens."""
        stems = [word.stem for word in words]
        matches = []
        for start, first in enumerate(stems):
            for length in self._lengths.get(first, ()):
                end = start + length
                named = self._entries.get(tuple(stems[start:end])) if end <= len(words) else None
                if named is None:
                    continue
                span = words[start].span[0], words[end - 1].span[1]
                entry = _likest(text[slice(*span)], named)
                if entry is not None:
                    matches.append((start, length, Match(span, *entry)))
        return matches


def _checked(entry: tuple[str, str]) -> tuple[str, str]:
    """An entry without surrounding spaces."""
    texts = isinstance(entry, tuple | list) and all(isinstance(each, str) for each in entry)
    if not texts or len(entry) != 2:
        raise InvalidOptionError(
            "a glossary must have pairs of a term and its translation, got "
            f"{entry!r}; of a dict give its items()",
            parameter="glossary",
        )
    term, translation = map(str.strip, entry)
    if not translation:
        raise InvalidOptionError(
            f"a term must have a translation, got none of {term!r}; leave it out",
            parameter="glossary",
        )
    return term, translation


def tokens(text: str, language: str) -> list[TermWord]:
    """The words and signs of a text in a language."""
    return [
        TermWord(found.span(), found[0], stem(found[0], language))
        for found in _TOKEN.finditer(text)
    ]


def matched_terms(glossary: Sequence[TermIndex], text: str) -> tuple[Match, ...]:
    """The non-overlapping terms of a text, in order: the longest win, then those of the first
    index. All indexes have the same source language."""
    if not glossary:
        return ()
    words = tokens(text, glossary[0].source)
    found = [
        (-length, order, start, match)
        for order, index in enumerate(glossary)
        for start, length, match in index.found(words, text)
    ]
    taken: set[int] = set()
    chosen: list[Match] = []
    for length, _, start, match in sorted(found, key=lambda each: each[:3]):
        places = range(start, start - length)
        if len(chosen) < MOST_IN_SENTENCE and taken.isdisjoint(places):
            taken.update(places)
            chosen.append(match)
    return tuple(sorted(chosen, key=lambda match: match.span))


def terms_of(glossary: Sequence[TermIndex], document: Document, number: int) -> tuple[Match, ...]:
    """The terms of a sentence of a document, with their places in the sentence as it is read.

    Nothing within a kept object is a term, nor is the mask that is read in its place. A term that
    contains one has its mask in the translation, too; where that lacks the object, which would be
    put in again, the term has no place, and its span is empty.
    """
    if not glossary:
        return ()
    text, kept = document.with_kept(number)
    found = []
    for match in matched_terms(glossary, text):
        begin, end = match.span
        touched = [thing for thing in kept if thing.given[0] < end and begin < thing.given[1]]
        if any(thing.given[0] < begin or end < thing.given[1] for thing in touched):
            continue
        first, last = _with_masks(begin, kept), _with_masks(end, kept)
        target = match.target
        for thing in touched:
            word = text[slice(*thing.given)]
            last = last if word in target else first
            target = target.replace(word, thing.written, 1)
        span = document.as_read(number, (first, last))
        found.append(replace(match, span=span, target=target))
    return tuple(found)


def _with_masks(place: int, kept: Sequence[Kept]) -> int:
    """Where a place outside all kept objects is in the sentence with their masks."""
    before = [thing for thing in kept if thing.given[1] <= place]
    return place - before[-1].given[1] + before[-1].mask[1] if before else place


def _likest(form: str, entries: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """Choose among entries whose terms are forms of one word: an exact match, else one that differs
    in capitals only, else one with the same first letter. A term in capitals never matches a word
    in small letters: `US` is not `us`."""
    fitting = [entry for entry in entries if not is_acronym(entry[0]) or form.isupper()]
    return max(
        fitting,
        key=lambda entry: (
            entry[0] == form,
            entry[0].lower() == form.lower(),
            entry[0][:1] == form[:1],
        ),
        default=None,
    )


def is_acronym(term: str) -> bool:
    """Whether a term is written in capitals only."""
    return len(term) > 1 and term.isupper()
