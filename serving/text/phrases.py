"""Set phrases: sentences whose translations are known, such as greetings, wishes and the ends of
letters. Models translate them word by word if they have seen them too rarely."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from serving.errors import BundleError

_ADVICE = "write it again with `macaron export phrases`"
_MARKED = re.compile(r"(?P<begin>[¿¡]?)(?P<words>.*?)\s?(?P<end>[.!?…:,]?)", re.DOTALL)
_BEGINNINGS = {"!": "¡", "?": "¿"}
"""Marks with which Spanish sentences begin, by their ends."""
_INTERCHANGED = ("", ".", "!")
"""Ends that make no other sentence of the same words."""
_SPACED = frozenset("!?:")
"""Marks with a space before them in French."""


class Phrase(NamedTuple):
    """A phrase and its translation, as files have them: a row of tab-separated values."""

    source: str
    """Language code of the text."""
    text: str
    target: str
    translation: str


class _Marked(NamedTuple):
    words: str
    end: str


Phrases = Mapping[tuple[str, str, str], tuple[str, str]]
"""The translation of each phrase, as it is listed and for a text that begins with a capital, by
source language, target language, and the phrase in small letters and with straight apostrophes."""


def known_phrases(phrases: Iterable[Phrase]) -> Phrases:
    """Phrases in each form that counts as them. Capitals do not count, nor does the end, be it a
    full stop, an exclamation mark or nothing; the translation gets the same end. Of several
    translations of a phrase the first one counts."""
    found: dict[tuple[str, str, str], tuple[str, str]] = {}
    for phrase in phrases:
        text, translation = _marked(phrase.text), _marked(phrase.translation)
        large = translation.words
        if not text.words[:1].isupper():
            large = large[:1].upper() + large[1:]
        for end in _INTERCHANGED if text.end in _INTERCHANGED else (text.end,):
            own = translation.end if end == text.end else end
            written = [_with_end(each, own, phrase.target) for each in (translation.words, large)]
            # Many people leave out marks at the beginning and blanks before those at the end.
            for form in (_with_end(text.words, end, phrase.source), text.words + end):
                small = form.replace("’", "'").casefold()
                found.setdefault((phrase.source, phrase.target, small), (written[0], written[1]))
    return found


def read_phrases(path: Path) -> Phrases:
    """The phrases of a bundle's file. Raises BundleError for a file that is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise BundleError(f"{path}: cannot be read ({error}); {_ADVICE}") from error
    rows = [line.split("\t") for line in lines]
    for number, row in enumerate(rows, 1):
        if len(row) != len(Phrase._fields) or not all(map(str.strip, row)):
            raise BundleError(
                f"{path}: line {number} must have a language, a phrase, a language and a "
                f"translation, got {lines[number - 1][:60]!r}; {_ADVICE}"
            )
    return known_phrases(Phrase(*row) for row in rows)


def _marked(text: str) -> _Marked:
    found = _MARKED.fullmatch(text.strip())
    assert found  # every text has words, if only none
    return _Marked(found["words"], found["end"])


def _with_end(words: str, end: str, language: str) -> str:
    if language == "es" and end in _BEGINNINGS and not any(mark in words for mark in "¿¡"):
        words = _BEGINNINGS[end] + words
    space = " " if language == "fr" and end in _SPACED else ""
    return f"{words}{space}{end}"
