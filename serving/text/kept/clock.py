"""Times of day in words, which models misread: German `halb acht` is half an hour before eight, and
`half past seven` half an hour after seven."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_HOURS = {
    language: words.split()
    for language, words in {
        "de": "zwölf eins zwei drei vier fünf sechs sieben acht neun zehn elf",
        "en": "twelve one two three four five six seven eight nine ten eleven",
        "fr": "douze une deux trois quatre cinq six sept huit neuf dix onze",
        "es": "doce una dos tres cuatro cinco seis siete ocho nueve diez once",
    }.items()
}
"""The words for hours, from twelve."""
_MINUTES = {
    5: "fünf five cinq cinco",
    10: "zehn ten dix diez",
    15: "viertel quarter quart cuarto",
    20: "zwanzig twenty vingt veinte",
    25: "twenty-five vingt-cinq veinticinco",
    30: "half demie demi media",
}
_MINUTE = {word: minutes for minutes, words in _MINUTES.items() for word in words.split()}
_EARLIER = frozenset(("vor", "to", "before", "till", "moins", "menos"))
_UNTIL = {"halb": 30, "dreiviertel": 15, "drei viertel": 15}
"""Minutes that these words lie before an hour."""


class _Wording(NamedTuple):
    """How a time is worded in a language; patterns are verbose."""

    language: str
    time: str
    """Pattern with the groups `hour` and, if it has them, `minutes`, `way` and `until`."""
    before: str = ""
    """What precedes a time, where the words may mean something else."""
    after: str = ""

    @property
    def words(self) -> str:
        """The pattern for a language's hours."""
        return self.time.replace("HOUR", rf"(?P<hour>{'|'.join(_HOURS[self.language])})")


_AT = r"(?:(?<=\b[Uu]m[ ])|(?<=\b[Ee]s[ ]ist[ ])|(?<=\b[Gg]egen[ ]))"
_ENGLISH_AT = r"(?:(?<=\b[Aa]t[ ])|(?<=\b[Ii]t['’]s[ ])|(?<=\b[Ii]t[ ]is[ ])|(?<=\b[Ii]t[ ]was[ ]))"
_FRENCH_AT = r"(?:(?<=\b[àÀ][ ])|(?<=\b[Vv]ers[ ])|(?<=\b[Ii]l[ ]est[ ])|(?<=\bavant[ ]))"
_WAY = "(?:[ ]Minuten)?[ ](?P<way>vor|nach)[ ]"
_UHR = "HOUR(?:[ ]Uhr)?"
_WORDINGS = (
    _Wording("de", rf"(?:(?P<minutes>(?i:fünf|zehn)){_WAY})?(?P<until>[Hh]alb)[ ]{_UHR}"),
    _Wording("de", rf"(?P<until>[Dd]rei[ ]?[Vv]iertel)[ ]{_UHR}"),
    _Wording("de", rf"(?P<minutes>[Vv]iertel)[ ](?P<way>vor|nach)[ ]{_UHR}"),
    # Not `um zehn vor drei Zeugen`.
    _Wording("de", rf"(?P<minutes>fünf|zehn|zwanzig){_WAY}{_UHR}", _AT, r"(?![ ][^\W\d_a-zäöüß])"),
    _Wording("en", r"(?:[Aa][ ])?(?P<minutes>[Hh]alf)[ ](?P<way>past)[ ]HOUR"),
    _Wording(
        "en", r"(?:[Aa][ ])?(?P<minutes>[Qq]uarter)[ ](?P<way>past|to|after|before|till)[ ]HOUR"
    ),
    _Wording(
        "en",
        r"(?P<minutes>five|ten|twenty(?:-five)?)(?:[ ]minutes)?[ ]"
        r"(?P<way>past|to|after|before)[ ]HOUR",
        _ENGLISH_AT,
    ),
    # Elsewhere they may be a duration.
    _Wording("fr", r"HOUR[ ]heures?[ ]et[ ](?P<minutes>demie|quart)", _FRENCH_AT),
    _Wording(
        "fr",
        r"HOUR[ ]heures?[ ](?P<way>moins)[ ](?:(?:le|un)[ ])?"
        r"(?P<minutes>quart|cinq|dix|vingt(?:-cinq)?)",
    ),
    _Wording(
        "es",
        r"HOUR[ ](?:y|(?P<way>menos))[ ](?P<minutes>media|cuarto|cinco|diez|veinte|veinticinco)",
        r"(?:(?<=\b[Ll]as[ ])|(?<=\b[Ll]a[ ](?=una)))",
    ),
)
_READ = [(each.language, re.compile(each.words, re.VERBOSE | re.IGNORECASE)) for each in _WORDINGS]


def _alternatives() -> Iterator[str]:
    for each in _WORDINGS:
        unnamed = re.sub(r"\(\?P<\w+>", "(?:", each.words)
        yield rf"{each.before}{unnamed}(?![\w-]){each.after}"


WORDS = rf"(?<![\w-])(?:{'|'.join(_alternatives())})"
"""Verbose pattern of a time in words. `viertel acht` is none: it is a quarter past seven in some
regions of Germany only."""
HINT = "|".join(
    (
        rf"(?:[Hh]alb|iertel|vor|nach) (?:{'|'.join(_HOURS['de'])})",
        rf"(?:past|to|after|before|till) (?:{'|'.join(_HOURS['en'])})",
        "heures? (?:et|moins) ",
        " (?:y|menos) (?:media|cuarto|cinco|diez|veint)",
    )
)
"""Pattern of a part that every time in words contains."""


def hour_words(hour: int) -> list[str]:
    """The word for an hour from 1 to 12 in each language."""
    return [words[hour % 12] for words in _HOURS.values()]


def is_worded(figure: str) -> bool:
    """Whether a kept object is a time in words of any language."""
    return any(pattern.fullmatch(figure) for _, pattern in _READ)


def in_figures(words: str, language: str) -> str | None:
    """A time in words of a language in figures, as German has them: `7:30 Uhr`; None for another
    text."""
    own = (pattern.fullmatch(words) for of, pattern in _READ if of == language)
    found = next(filter(None, own), None)
    if found is None:
        return None
    parts = {name: text.lower() for name, text in found.groupdict("").items()}
    apart = _MINUTE.get(parts.get("minutes", ""), 0)
    minutes = 60 * _HOURS[language].index(parts["hour"])
    minutes += -apart if parts.get("way") in _EARLIER else apart
    hours, minutes = divmod(minutes - _UNTIL.get(parts.get("until", ""), 0), 60)
    return f"{hours % 12 or 12}:{minutes:02} Uhr"
