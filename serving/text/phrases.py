"""Set phrases: sentences whose translations are known, such as greetings, wishes and the ends of
letters. Models translate them word by word if they have seen them too rarely."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from serving.errors import BundleError

COLUMNS = 4
_SPACES = re.compile(r"\s+")
_MARKED = re.compile(r"(?P<begin>[¿¡]?)(?P<words>.*?)\s?(?P<end>[.!?…:,]?)", re.DOTALL)
_BEGINNINGS = {"!": "¡", "?": "¿"}
"""Marks with which Spanish sentences begin, by their ends."""
_INTERCHANGED = frozenset(("", ".", "!"))
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


class Phrases:
    """The set phrases of a bundle."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        """Of several translations of a phrase the first one counts."""
        self._found: dict[tuple[str, str, str], tuple[_Marked, _Marked]] = {}
        for phrase in phrases:
            text, translation = _marked(phrase.text), _marked(phrase.translation)
            key = (phrase.source, phrase.target, _key(text.words))
            self._found.setdefault(key, (text, translation))

    def find(self, text: str, source: str, target: str) -> str | None:
        """The translation of a text that is a phrase. Capitals do not count, nor does the end, be
        it a full stop, an exclamation mark or nothing; the translation gets the same end."""
        words, end = _marked(text)
        found = self._found.get((source, target, _key(words)))
        if found is None:
            return None
        own, translation = found
        if end != own.end and not {end, own.end} <= _INTERCHANGED:
            return None
        written = translation.words
        if words[:1].isupper() and not own.words[:1].isupper():
            written = written[:1].upper() + written[1:]
        return _with_end(written, translation.end if end == own.end else end, target)


def read_phrases(path: Path) -> Phrases:
    """The phrases of a bundle's file. Raises BundleError for a file that is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise BundleError(f"{path}: cannot be read ({error}); export the bundle again") from error
    rows = [line.split("\t") for line in lines]
    for number, row in enumerate(rows, 1):
        if len(row) != COLUMNS or not all(map(str.strip, row)):
            raise BundleError(
                f"{path}: line {number} must have a language, a phrase, a language and a "
                f"translation, got {lines[number - 1][:60]!r}; export the bundle again"
            )
    return Phrases(Phrase(*row) for row in rows)


def _marked(text: str) -> _Marked:
    found = _MARKED.fullmatch(text.strip())
    assert found  # every text has words, if only none
    return _Marked(found["words"], found["end"])


def _key(words: str) -> str:
    return _SPACES.sub(" ", words).replace("’", "'").casefold()


def _with_end(words: str, end: str, language: str) -> str:
    if language == "es" and end in _BEGINNINGS and not any(mark in words for mark in "¿¡"):
        words = _BEGINNINGS[end] + words
    space = " " if language == "fr" and end in _SPACED else ""
    return f"{words}{space}{end}"
