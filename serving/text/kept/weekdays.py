"""Abbreviated weekdays, as hours of business have them: `Mo–Fr`, `Sat 10am–2pm`. Models copy or
lose them."""

from __future__ import annotations

import re

_WRITTEN = {
    "de": ["Mo", "Di", "Mi", "Do", "Fr", "Sa", "So"],
    "en": ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"],
    "fr": ["lun", "mar", "mer", "jeu", "ven", "sam", "dim"],
    "es": ["lun", "mar", "mié", "jue", "vie", "sáb", "dom"],
}
"""The abbreviations of Unicode CLDR, without full stops."""
_ALSO = {
    "en": {"Tues": 1, "Weds": 2, "Thur": 3, "Thurs": 3},
    "es": {"mie": 2, "sab": 5},
}
"""Other abbreviations, and the numbers of their days."""
_NUMBERS = {
    language: {day: number for number, day in enumerate(days)} | _ALSO.get(language, {})
    for language, days in _WRITTEN.items()
}


def _pattern(language: str) -> str:
    """A pattern of a day. In French and Spanish it may begin with a capital, too."""
    days = sorted(_NUMBERS[language], key=len, reverse=True)
    return f"(?:{'|'.join(f'[{day[0].upper()}{day[0]}]{day[1:]}' for day in days)})"


_DAYS = [_pattern(language) for language in _WRITTEN]
_DAY = re.compile(rf"({'|'.join(_DAYS)})(?!\w)\.?")
_TO = "[ ]?[–-][ ]?"
RANGE = "|".join(rf"{day}\.{_TO}{day}\.|{day}{_TO}{day}(?!\w)" for day in _DAYS)
"""Verbose pattern of a range of days."""
LIST = "|".join(
    rf"{one}(?:\.?(?:,[ ]?|[ ]?[&+/][ ]?){one}){{0,6}}(?!\w)\.?"
    for one in (rf"{day}(?:\.?{_TO}{day})?" for day in _DAYS)
)
"""Verbose pattern of days and ranges of days, which need a time behind them."""
HINT = rf"(?:{'|'.join(_DAYS)})(?:\.?:?[ ]\d|\.?[ ]?[–-][ ]?(?:{'|'.join(_DAYS)})(?!\w))"
"""Pattern of a part that contains every range of days, and every list before a time."""


def in_language(days: str, source: str, target: str) -> str | None:
    """Days of one language in another one; None if they are of another language."""
    known, written = _NUMBERS.get(source, {}), _WRITTEN.get(target)
    numbers = [known.get(day, known.get(day.lower())) for day in _DAY.findall(days)]
    if written is None or None in numbers:
        return None
    rest = iter(numbers)
    return _DAY.sub(lambda _: written[next(rest) or 0], days)
