"""Masks: names and numbers that models read in place of kept objects, because they copy these most
reliably (docs/background/decisions.md)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from serving.text.kept.clock import hour_words
from serving.text.kept.figures import is_time

MASKS = ("Tom", "Boston", "Paris", "London", "John")
_FIGURES = ("27", "38", "46", "54", "63", "72", "85", "94")
_BLANK = "[ \u00a0\u202f]"
_SIGNS = {
    "%": r"%(?:s\b)?|per ?cent\b|prozent\b|pour ?cent\b|por ?ciento\b",
    "km": r"km\b|kilom\w+",
    "kg": r"kg\b|kilo\w*",
    "cm": r"cm\b|[cz]entim\w+",
}
"""Signs that models read beside a number, and patterns of what they write for these."""
_READ_SIGN = re.compile(rf"{_BLANK}?(?:{'|'.join(_SIGNS)})\Z")
_NUMBER = re.compile(r"\d+")
_HOURS = ("10", "11", "9", "8", "7", "6")
_ENGLISH_TOO = "once"
"""The Spanish word for eleven, which is no number in English."""
_RANK = r"(?:(?:st|nd|rd|th)(?!\w))?"
_FULL_HOUR = r"(?::00(?!\d))?(?: o['’]clock)?"


@dataclass
class Masks:
    """Words and numbers that the text does not contain otherwise."""

    source: str
    _words: Iterator[str] | None = field(default=None, init=False)
    _figures: Iterator[str] | None = field(default=None, init=False)
    _hours: Iterator[str] | None = field(default=None, init=False)

    def word(self) -> str:
        """A mask for an object that is read as a name."""
        self._words = self._words or _free_words(self.source)
        return next(self._words)

    def count(self) -> str:
        """A mask for an object that is read as a number of things."""
        self._figures = self._figures or _free_numbers(self.source, _FIGURES)
        return next(self._figures)

    def figure(self, figure: str) -> str:
        """A mask for a figure that is read as a number or a time. A whole number with a sign that
        models know is its own mask: its digits change least."""
        if is_time(figure):
            self._hours = self._hours or _free_numbers(self.source, _HOURS)
            return next(self._hours)
        sign = _READ_SIGN.search(figure)
        if sign is None:
            return self.count()
        number = figure[: sign.start()]
        same = len(re.findall(rf"(?<!\d){re.escape(figure)}(?!\w)", self.source))
        if number.isdecimal() and re.findall(r"\d+", self.source).count(number) == same:
            return figure
        return self.count() + sign[0]


def mask_pattern(mask: str) -> str:
    """Pattern of a mask in a translation. With a letter after it, it is inflected: Tom's, Toms."""
    number = _NUMBER.match(mask)
    if number is None:
        return rf"(?<!\w){re.escape(mask)}(?!\w\w)"
    sign = mask[number.end() :].strip()
    alone = rf"(?<![\w.,]){number[0]}"
    ending = r"(?!\d|\w\w|[.,]\d)"
    if not sign:
        return alone + _RANK + _FULL_HOUR + ending
    before = rf"(?:(?<![\w%])(?<!\d{_BLANK}){sign}{_BLANK}?)?"
    return rf"{before}{alone}(?:{_BLANK}?(?:{_SIGNS[sign]})|{ending})"


def word_pattern(mask: str) -> str | None:
    """Pattern of the word for a mask that is an hour; None for another mask."""
    if mask not in _HOURS:
        return None
    words = [word for word in hour_words(int(mask)) if word != _ENGLISH_TOO]
    return rf"(?<![\w-])(?:{'|'.join(words)})(?![\w-]){_FULL_HOUR}"


def compound_pattern(mask: str) -> str:
    """Pattern of a mask to which a translation has joined another word, `Tomtür`; the group
    `joined` is that word's first letter. Inflected masks, such as Londoners, do not match."""
    return rf"(?<!\w){re.escape(mask)}(?!ern\b|ers\b|isch)(?P<joined>[^\W\d_])(?=[^\W\d_]{{2}})"


def _free_words(source: str) -> Iterator[str]:
    small = source.lower()
    return itertools.cycle(
        [name for name in MASKS if name.lower() not in small]
        or [next(f"X{n}" for n in itertools.count() if f"X{n}" not in source)]
    )


def _free_numbers(source: str, numbers: Sequence[str]) -> Iterator[str]:
    found = set(re.findall(r"\d+", source))
    free = [number for number in numbers if number not in found]
    return itertools.cycle(
        free or [next(str(n) for n in itertools.count(20) if str(n) not in found)]
    )
