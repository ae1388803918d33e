"""German times of day in words, which models misread, as `halb acht`: half an hour before eight."""

from __future__ import annotations

import re

_HOURS = (
    *("zwölf", "eins", "zwei", "drei", "vier", "fünf"),
    *("sechs", "sieben", "acht", "neun", "zehn", "elf"),
)
_HOUR = rf"(?:{'|'.join(_HOURS)})(?:[ ]Uhr)?(?![\w-])"
_MINUTES = {"fünf": 5, "zehn": 10, "viertel": 15, "zwanzig": 20}
_WAY = "(?:[ ]Minuten)?[ ](?:vor|nach)[ ]"
WORDS = rf"""
    (?<![\w-])(?:
      (?:(?i:fünf|zehn){_WAY})?[Hh]alb[ ]{_HOUR}
      | [Dd]rei[ ]?[Vv]iertel[ ]{_HOUR}
      | [Vv]iertel[ ](?:vor|nach)[ ]{_HOUR}
      | (?:(?<=\b[Uu]m[ ])|(?<=\b[Ee]s[ ]ist[ ])|(?<=\b[Gg]egen[ ]))
        (?:fünf|zehn|zwanzig){_WAY}{_HOUR}(?![ ][^\W\d_a-zäöüß])
    )
"""
"""Pattern of a time in words: `halb acht`, `fünf vor halb acht`, `dreiviertel acht`, `Viertel vor
acht`, and after `um` also `zehn vor drei`, but not `um zehn vor drei Zeugen`. `viertel acht` is a
quarter past seven in some regions only."""
HINT = rf"(?:[Hh]alb|iertel|vor|nach) (?:{'|'.join(_HOURS)})"
"""Pattern of a part that every time in words contains."""
_PARTS = re.compile(
    rf"(?:(?P<minutes>{'|'.join(_MINUTES)})(?: Minuten)? (?P<way>vor|nach) )?"
    rf"(?P<part>halb |drei ?viertel )?(?P<hour>{'|'.join(_HOURS)})(?: Uhr)?",
    re.IGNORECASE,
)
_BEFORE = {"h": 30, "d": 15}
"""Minutes that `halb` and `dreiviertel` lie before an hour, by their first letters."""


def in_figures(words: str) -> str | None:
    """A time in words as figures, as `7:30 Uhr`; None for another text."""
    found = _PARTS.fullmatch(words)
    if found is None or not (found["minutes"] or found["part"]):
        return None
    apart = _MINUTES[found["minutes"].lower()] if found["minutes"] else 0
    minutes = 60 * _HOURS.index(found["hour"]) + (-apart if found["way"] == "vor" else apart)
    minutes -= _BEFORE[found["part"][0].lower()] if found["part"] else 0
    hours, minutes = divmod(minutes, 60)
    return f"{hours % 12 or 12}:{minutes:02} Uhr"
