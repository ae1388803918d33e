"""Abbreviated weekdays, as hours of business have them: `Mo–Fr`, `Di und Do`, `Sat 10am–2pm`.
Models copy or lose them."""

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
_AND = {"de": "und", "en": "and", "fr": "et", "es": "y"}
"""What stands between the last two days of a list."""
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
_STOP = r"\.(?=[ ](?:[^\W\dA-ZÄÖÜ]|\())"
"""A full stop that does not end the sentence."""
RANGE = "|".join(
    rf"{day}\.{_TO}{day}{_STOP}|{day}\.?{_TO}{day}(?!\w)"
    rf"|(?:{day}\.?,[ ]){{0,5}}(?:{day}\.{word}{day}{_STOP}|{day}\.?{word}{day}(?!\w))"
    for language, day in zip(_WRITTEN, _DAYS, strict=True)
    for word in [f"[ ]{_AND[language]}[ ]"]
)
"""Verbose pattern of a range of days, and of days with a word between the last two."""
_LONE = {
    # Without a mark behind them the others are words: `So 7:30 works`, `en mer 9h30`.
    "de": r"(?:Mo|Di|Mi|Fr|Sa|(?:So|Do)(?=[.:]|[ ]\d[\d:.]*[ ]?(?:[–-]|Uhr)))",
    "en": _pattern("en"),
    "fr": rf"(?:(?=[A-Z]){_pattern('fr')}|{_pattern('fr')}(?=[.:]))",
    "es": rf"(?:(?=[A-Z]){_pattern('es')}|{_pattern('es')}(?=[.:]))",
}
_NO_HALF = r"(?![ :]+[\d:.–-]+[ ]?[apAP]\.?[mM])"
"""No half of a day behind them, which only English times have."""
LIST = "|".join(
    rf"(?:{day}\.?{_TO}{day}(?:{more}{one}){{0,6}}|{day}(?:{more}{one}){{1,6}}|{_LONE[language]})"
    rf"(?!\w)\.?{'' if language == 'en' else _NO_HALF}"
    for language, day in zip(_WRITTEN, _DAYS, strict=True)
    for one in [rf"{day}(?:\.?{_TO}{day})?"]
    for more in [rf"\.?(?:,[ ]?|[ ]?[&+/][ ]?|[ ]{_AND[language]}[ ])"]
)
"""Verbose pattern of days and ranges of days, which need a time behind them."""
_BETWEEN = rf"\.?(?:[ ]?[–-][ ]?|[ ](?:{'|'.join(_AND.values())})[ ])"
HINT = rf"(?:{'|'.join(_DAYS)})(?:\.?:?[ ]\d|{_BETWEEN}(?:{'|'.join(_DAYS)})(?!\w))"
"""Pattern of a part that contains every range of days, and every list before a time."""


def in_language(days: str, source: str, target: str) -> str | None:
    """Days of one language in another one; None if they are of another language."""
    known, written = _NUMBERS.get(source, {}), _WRITTEN.get(target)
    if written is None:
        return None
    found = [known.get(day, known.get(day.lower())) for day in _DAY.findall(days)]
    numbers = [number for number in found if number is not None]
    if len(numbers) < len(found):
        return None
    rest = iter(numbers)
    translated = _DAY.sub(lambda _: written[next(rest)], days)
    return translated.replace(f" {_AND[source]} ", f" {_AND[target]} ")
