"""The names of months and weekdays in a language, as Unicode CLDR has them, and days of the month
in a text."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from serving.text.alignment import Span

LANGUAGES = frozenset(("de", "en", "es", "fr"))
"""Languages whose dates are read."""
_ORDINAL = r"(?:\.|st|nd|rd|th|er|\u00ba)?"
_BEFORE_DAY = re.compile(rf"[0-9]{_ORDINAL},?\s(?:de\s|of\s)?\Z")
_BEFORE_NUMBER = re.compile(r"\.?,?\s(?:de\s|of\s)?[0-9]")


@functools.cache
def months(language: str) -> Mapping[str, str]:
    """The names of the months in a language of `LANGUAGES`, by codes."""
    from babel import Locale  # here: slow to import, and not always needed

    wide = Locale(language).months["format"]["wide"]
    return {f"month {number}": str(name) for number, name in wide.items()}


@functools.cache
def weekdays(language: str) -> Mapping[str, str]:
    """The names of the days of the week in a language of `LANGUAGES`, by codes."""
    from babel import Locale

    wide = Locale(language).days["format"]["wide"]
    return {f"weekday {number}": str(name) for number, name in wide.items()}


def is_in_date(text: str, span: Span) -> bool:
    """Whether a number stands right before or after a month's name: `May 5`, but not `You may`."""
    return (
        _BEFORE_DAY.search(text, max(0, span[0] - 12), span[0]) is not None
        or _BEFORE_NUMBER.match(text, span[1]) is not None
    )


def is_day(text: str, span: Span, language: str | None) -> bool:
    """Whether a number of a text is a day of a month: `April 19`, `19. April`, `19 de abril`."""
    if language not in LANGUAGES:
        return False
    before, after = _day(language)
    return (
        before.search(text, max(0, span[0] - 20), span[0]) is not None
        or after.match(text, span[1]) is not None
    )


def without_names(text: str, language: str | None) -> str:
    """A text without the names of months and weekdays, which have other words in them: `erst` in
    `Donnerstag`."""
    if language not in LANGUAGES:
        return text
    names = "|".join([*months(language).values(), *weekdays(language).values()])
    return re.sub(names, " ", text, flags=re.IGNORECASE)


@functools.cache
def _day(language: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The text before and after a day."""
    names = "|".join(map(re.escape, months(language).values()))
    before = rf"\b(?:{names})\s\Z" if language == "en" else r"(?!)"
    return re.compile(before), re.compile(rf"{_ORDINAL}\s(?:de\s|of\s)?(?:{names})\b")
