"""Words and signs that a vocabulary cannot spell, because it has one of their letters only as
bytes, or not at all. Models write these wrongly; most of them are names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence, Set

from serving.text.kept.placeholders import Placeholder
from serving.text.splitting.sentences import UNSPACED

Spells = Callable[[str], bool]
"""Whether the vocabulary can write a text without single bytes."""
Unspelt = Callable[[str], list[Placeholder]]
"""Returns the spans of a text that the vocabulary cannot spell."""
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u0900-\u0903\u093a-\u094f\u0981-\u0983\u09bc-\u09cd\u0a01-\u0a4d\u0a81-\u0acd\u0b01-\u0b57"
    "\u0b82-\u0bcd\u0c00-\u0c56\u0c81-\u0cd6\u0d00-\u0d57\u0d81-\u0ddf\u200c\u200d"
)
"""Characters within words that are not letters."""
_LETTER = rf"(?:[^\W_]|[{_MARKS}])"


def unspelt(text: str, spells: Spells) -> list[Placeholder]:
    """Spans that the vocabulary cannot spell, in order: words (adjacent ones joined), and signs.

    A letter counts as spelt if the vocabulary has it in the other case, and so does a word that it
    has as a whole.
    """
    signs = {sign for sign in set(text) if not sign.isascii() and not _is_spelt(sign, spells)}
    if not signs:
        return []
    found = []
    for match in _pattern(signs).finditer(text):
        word = match.lastgroup == "word"
        if not word or not spells(match[0]):
            found.append(Placeholder(match.span(), "word" if word else "symbol"))
    return found


def _pattern(signs: Set[str]) -> re.Pattern[str]:
    """Pattern of words that contain one of these letters, and of signs, in a row; in scripts
    without spaces, of the letters only."""
    letters = [sign for sign in signs if sign.isalpha()]
    unspaced = "".join(filter(UNSPACED.match, letters))
    spaced = "".join(set(letters) - set(unspaced))
    words = []
    if spaced:
        word = rf"{_LETTER}*[{re.escape(spaced)}]{_LETTER}*"
        words.append(f"{word}(?:[ \u00a0]{word})*")
    if unspaced:
        words.append(f"[{unspaced}]+")
    others = re.escape("".join(signs - set(letters)))
    patterns = [f"(?P<word>{'|'.join(words)})"] * bool(words)
    patterns += [f"(?P<sign>[{others}]+)"] * bool(others)
    return re.compile("|".join(patterns))


def with_unspelt(found: Sequence[Placeholder], more: Sequence[Placeholder]) -> list[Placeholder]:
    """The placeholders of a text and the unspelt spans of the rest, in order."""
    taken = {at for placeholder in found for at in range(*placeholder.span)}
    free = [other for other in more if taken.isdisjoint(range(*other.span))]
    return sorted([*found, *free], key=lambda placeholder: placeholder.span)


def _is_spelt(sign: str, spells: Spells) -> bool:
    if sign.isspace() or unicodedata.category(sign)[0] in "MC":
        return True
    return spells(sign) or spells(sign.lower()) or spells(sign.upper())
