"""Compares the numbers of a sentence and of its translation, by the conventions of both languages.

A number counts as correct if any reading allows it: in words, as a month's name, `19:15` for `7:15
pm`, `1990s` for `90er`. All others were changed, lost or made up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from serving.checking.dates import is_day, without_names
from serving.checking.number_words import has_large_word, has_number_word
from serving.checking.units import other_units
from serving.text.alignment import Span

_DIGIT = re.compile(r"[0-9]")
_GROUPS = re.compile(r"[0-9]+")
_HOUR = r"(?<![0-9.,:/-])(?P<hour>[01]?[0-9]|2[0-4])"
_BLANK = "[ \u00a0\u202f]"
_TIME = re.compile(
    rf"""
    {_HOUR} (?: (?::|{_BLANK}?h{_BLANK}?|\.(?=..{_BLANK}?(?:Uhr|[ap]\.?{_BLANK}?m)))
      (?P<minute>[0-5][0-9]) (?![0-9]|[.,:/-][0-9]) )?
    (?: {_BLANK}?(?P<half>[ap])\.?{_BLANK}?m\b
      | (?={_BLANK}?(?:Uhr|h|heures?|horas?|o'?\W?clock)\b) | (?<=[:.h ][0-9]{{2}}) )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?<![0-9.,])[1-9][0-9]{0,2}(?:(?P<blank>[ \u00a0\u202f'’])[0-9]{3})(?:(?P=blank)[0-9]{3})*"
    r"(?:[.,][0-9]+)?(?![0-9]|[.,][0-9]|[ \u00a0\u202f'’-][0-9])"
    r"|[0-9]+(?:[.,][0-9]+)*"
)
_GROUPED = {
    "en": re.compile(
        r"(?<![0-9.,])[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:[.,][0-9]+)?(?![0-9]|[.,][0-9])"
    ),
    "de": re.compile(
        r"(?<![0-9.,])(?:[1-9][0-9]{0,2}(?:\.[0-9]{3})+(?:[.,][0-9]+)?|[0-9]{1,3},[0-9]{2}[1-9])"
        r"(?![0-9]|[.,][0-9])"
    ),
}
"""Numbers with thousands separators, and German decimals that English would read as such. A decimal
that ends in zero may be written in English style."""
_GROUPING = {"en": ",", "de": ".", "fr": ".", "es": ".,"}
_DECIMAL = {"en": ".", "de": ",", "fr": ",", "es": ".,"}
_EITHER = ".,"
_BLANKS = " \u00a0\u202f'’"
_HOURS = 24
_SMALL = 100
"""Numbers up to this one are often written in words."""
_MOST = 500
"""Most digit groups of a text: each number of one side is compared with each of the other."""
_HALF = re.compile(
    r"half|quarter|past|\bto\b|halb|viertel|\bvor\b|\bnach\b|demi|quart|moins|media|cuarto|menos",
    re.IGNORECASE,
)
_CLOCK = re.compile(r"\bUhr|[ap]\.?\s?m\b|o\W?clock|\bheures?\b|[0-9]\s?h\b|\bhoras?\b", re.I)
_CENTURY = re.compile(r"centur|jahrhundert|siècle|siglo|[0-9]0['’]?s\b", re.IGNORECASE)


@dataclass(frozen=True)
class Figure:
    """A number in a text: its span and its possible meanings, each as one string."""

    span: Span
    text: str
    readings: frozenset[str]

    @property
    def significant(self) -> str:
        """The digits without leading and trailing zeros: equal for `1.5 million` and
        `1,500,000`."""
        digits = "".join(_GROUPS.findall(self.text))
        return digits.strip("0") or "0"

    @property
    def value(self) -> float:
        """The smallest possible value."""
        values = [float(r) for r in self.readings if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", r)]
        return min(values, default=float("inf"))


@dataclass(frozen=True)
class Unmatched:
    """Numbers without a counterpart on the other side and without an excuse."""

    missing: tuple[Figure, ...] = ()
    """Numbers of the source."""
    extra: tuple[Figure, ...] = ()
    """Numbers of the output."""


def unmatched(
    source: str, output: str, source_language: str | None, target_language: str | None
) -> Unmatched:
    """Numbers that were changed, lost or made up. Empty if a correct reading exists, or if a side
    has more than 500 digit groups, which no sentence has."""
    if not (_DIGIT.search(source) or _DIGIT.search(output)):
        return Unmatched()
    if max(len(_GROUPS.findall(text)) for text in (source, output)) > _MOST:
        return Unmatched()
    convention = source_language, target_language
    misread = _misread(source, output, *convention)
    if _same_groups(source, output) and not misread:
        return Unmatched()
    missing = list(figures(source, source_language))
    extra = list(figures(output, target_language, misread))
    scaled = has_large_word(source, source_language) or has_large_word(output, target_language)
    halves = _HALF.search(source) or _HALF.search(output)
    for agree in (_same, _same_but_scale, _same_year, _same_hour):
        if (scaled or agree != _same_but_scale) and (halves or agree != _same_hour):
            missing, extra = _without_pairs(missing, extra, agree)
    if _CLOCK.search(source) and _CLOCK.search(output):
        missing, extra = _without_pairs(missing, extra, _same_half_day)
    missing, extra = _without_parts(missing, extra)
    if _digits(missing) == _digits(extra) and not misread and not _without_point(missing, extra):
        return Unmatched()
    if not (missing and extra):  # CO2 may be carbon dioxide, and MP3 a music file
        missing = [f for f in missing if not _in_a_word(f, source)]
        extra = [f for f in extra if not _in_a_word(f, output)]
    if other_units(source, output):
        return Unmatched()
    missing = [f for f in missing if not _year_again(f, output)]
    extra = [f for f in extra if not _year_again(f, source)]
    days = {f for f in missing if f.value > 1 and is_day(source, f.span, source_language)}
    lost = [f for f in missing if not _excused(f, output, target_language, is_a_day=f in days)]
    added = [f for f in extra if not _excused(f, source, source_language)]
    if (lost or added) and len(missing) == len(extra) == 1:
        lost, added = missing, extra  # the one became the other
    return Unmatched(tuple(lost), tuple(added))


def figures(
    text: str, language: str | None, whole: Collection[tuple[str, ...]] = ()
) -> Iterator[Figure]:
    """The numbers of a text, in order. Dates, versions and telephone numbers are split into their
    parts. A number whose digit groups are in `whole` is not split and has no meaning."""
    at = 0
    while number := _NUMBER.search(text, at):
        begin = number.start()
        time = _TIME.match(text, begin)
        if time and time.end() > begin and _is_time(time):
            at = time.end()
            yield Figure((begin, at), time[0], _time(time))
            continue
        at = number.end()
        value = _value(number[0], language)
        if tuple(_GROUPS.findall(number[0])) in whole:
            value = frozenset()
        if value is not None:
            yield Figure((begin, at), number[0], value)
            continue
        for part in _GROUPS.finditer(number[0]):
            span = begin + part.start(), begin + part.end()
            yield Figure(span, part[0], frozenset((_plain(part[0]),)))


def written(figure: str, source_language: str | None, target_language: str | None) -> str:
    """A number of the source in the target's format, if the format of both languages is certain;
    otherwise unchanged."""
    ours, theirs = source_language or "", target_language or ""
    time = _TIME.fullmatch(figure)
    if time and time["half"] and theirs != "en":
        hour = int(time["hour"]) % 12 + 12 * (time["half"] in "pP")
        return f"{hour}:{time['minute']}" if time["minute"] else str(hour)
    if ours not in ("de", "en", "fr") or theirs not in ("de", "en", "fr", "es"):
        return figure
    if not re.fullmatch(rf"[0-9]+(?:[.,{_BLANKS}][0-9]+)+", figure):
        return figure
    grouped = re.fullmatch(
        rf"([1-9][0-9]{{0,2}}(?:[{_GROUPING[ours]}{_BLANKS}][0-9]{{3}})+|[0-9]+)"
        rf"(?:{re.escape(_DECIMAL[ours])}([0-9]+))?",
        figure,
    )
    if grouped is None:
        return figure
    group = {"en": ",", "de": ".", "fr": "\u202f", "es": "."}[theirs]
    decimal = {"en": ".", "de": ",", "fr": ",", "es": ","}[theirs]
    whole = re.sub(r"[^0-9]", group, grouped[1])
    return whole + (decimal + grouped[2] if grouped[2] else "")


def _value(token: str, language: str | None) -> frozenset[str] | None:
    """The possible values of a token read as one number; None if it is no number but a date,
    say."""
    groups, seps = _GROUPS.findall(token), re.findall(r"[^0-9]", token)
    if not seps:
        return frozenset((_plain(token),))
    grouping = _GROUPING.get(language or "", _EITHER) + _BLANKS
    decimal = _DECIMAL.get(language or "", _EITHER)
    found = set()
    if _is_grouped(groups, seps, grouping):
        found.add(_plain("".join(groups)))
    if (
        seps[-1] in decimal
        and seps[-1] not in seps[:-1]
        and (len(seps) == 1 or _is_grouped(groups[:-1], seps[:-1], grouping))
    ):
        found.add(f"{_plain(''.join(groups[:-1]))}.{groups[-1].rstrip('0')}".removesuffix("."))
    return frozenset(found) or None


def _is_grouped(groups: Sequence[str], seps: Sequence[str], allowed: str) -> bool:
    same = len(set(seps)) == 1 and seps[0] in allowed
    return (
        same
        and len(groups[0]) <= 3
        and groups[0][0] != "0"
        and all(len(group) == 3 for group in groups[1:])
    )


def _is_time(match: re.Match[str]) -> bool:
    """Whether a match is a time: `:` alone may also stand in a score."""
    behind = match.string[match.end() : match.end() + 8].lstrip(_BLANKS).lower()
    units = ("uhr", "h", "heure", "hora", "o'clock", "o’clock", "oclock", "o clock")
    return bool(match["minute"] or match["half"]) or behind.startswith(units)


def _time(match: re.Match[str]) -> frozenset[str]:
    """The possible times on a 24-hour clock; a whole hour may also be a plain number."""
    hour, minute = int(match["hour"]), int(match["minute"] or 0)
    if match["half"] and hour <= 12:
        hours = {hour % 12 + 12 * (match["half"] in "pP")}
        if hour == 12:
            hours = {0, 12, 24}
    else:
        hours = {hour, (hour + 12) if hour < 12 else hour}
        if hour in (0, 12, 24):
            hours = {0, 12, 24}
    found = {f"t{h}:{minute:02}" for h in hours}
    if not minute:
        found.add(str(hour))
        found |= {str(h) for h in hours}
    return frozenset(found)


def _plain(digits: str) -> str:
    return digits.lstrip("0") or "0"


def _same_groups(source: str, output: str) -> bool:
    """Whether both texts have the same digit groups, in any order. False if a time has am or pm,
    because digit groups do not show the half of the day."""
    if re.search(r"[0-9]\s?[ap]\.?\s?m\b", source + " " + output, re.IGNORECASE):
        return False
    return Counter(_GROUPS.findall(source)) == Counter(_GROUPS.findall(output))


def _misread(
    source: str, output: str, source_language: str | None, target_language: str | None
) -> frozenset[tuple[str, ...]]:
    """Digit groups of numbers that the output writes in a format that means another number, or
    none: `10,000` in German, `12.345,67` in English."""
    if source_language not in ("de", "en") or target_language not in ("de", "en", "fr"):
        return frozenset()
    found = set()
    for match in _GROUPED[source_language].finditer(source):
        meant, groups = _value(match[0], source_language), _GROUPS.findall(match[0])
        if meant is None or (len(groups) == 4 and all(int(group) < 256 for group in groups)):
            continue  # an IP address
        same = [n[0] for n in _NUMBER.finditer(output) if _GROUPS.findall(n[0]) == groups]
        if same and not any(meant & (_value(n, target_language) or meant - meant) for n in same):
            found.add(tuple(groups))
    return frozenset(found)


def _without_pairs(
    missing: Sequence[Figure],
    extra: Sequence[Figure],
    agree: Callable[[Figure, Figure], bool],
) -> tuple[list[Figure], list[Figure]]:
    left, rest = [], list(extra)
    for figure in missing:
        partner = next((other for other in rest if agree(figure, other)), None)
        if partner is None:
            left.append(figure)
        else:
            rest.remove(partner)
    return left, rest


def _in_a_word(figure: Figure, text: str) -> bool:
    return text[: figure.span[0]][-1:].isalpha()


def _without_parts(
    missing: Sequence[Figure], extra: Sequence[Figure]
) -> tuple[list[Figure], list[Figure]]:
    """Drop numbers with spaces between digit groups that are several numbers, if the other side has
    all of these."""
    ours, theirs = _without_pairs(_in_parts(missing), _in_parts(extra), _same)
    return (
        [f for f in missing if any(_within(part, f) for part in ours)],
        [f for f in extra if any(_within(part, f) for part in theirs)],
    )


def _within(part: Figure, whole: Figure) -> bool:
    return whole.span[0] <= part.span[0] and part.span[1] <= whole.span[1]


def _in_parts(found: Sequence[Figure]) -> list[Figure]:
    parts = []
    for figure in found:
        if not re.search(rf"[0-9][{_BLANKS}][0-9]{{3}}", figure.text):
            parts.append(figure)
            continue
        for group in _GROUPS.finditer(figure.text):
            span = figure.span[0] + group.start(), figure.span[0] + group.end()
            parts.append(Figure(span, group[0], frozenset((_plain(group[0]),))))
    return parts


def _same(ours: Figure, theirs: Figure) -> bool:
    return not ours.readings.isdisjoint(theirs.readings)


def _same_but_scale(ours: Figure, theirs: Figure) -> bool:
    return ours.significant == theirs.significant


def _same_year(ours: Figure, theirs: Figure) -> bool:
    """`1998` matches `98`, and `1990s` matches `90er`."""
    short, long = sorted((ours.text, theirs.text), key=len)
    return (
        len(short) == 2
        and re.fullmatch(r"(?:1[5-9]|20)[0-9]{2}", long) is not None
        and (long.endswith(short))
    )


def _same_hour(ours: Figure, theirs: Figure) -> bool:
    """`8:30` matches `8 y media`, `half past eight` beside a figure, and `halb 9`."""
    hours = [
        {int(r[1:].partition(":")[0] if r[0] == "t" else r) % 12 for r in figure.readings}
        for figure in (ours, theirs)
        if all(re.fullmatch(r"t[0-9:]+|[0-9]{1,2}", r) for r in figure.readings)
    ]
    return len(hours) == 2 and any((a - b) % 12 in (0, 1, 11) for a in hours[0] for b in hours[1])


def _same_half_day(ours: Figure, theirs: Figure) -> bool:
    """`19 und 21 Uhr` matches `7 and 9 pm`: the first of these is a plain number."""
    if not (ours.text.isdecimal() and theirs.text.isdecimal()):
        return False
    low, high = sorted((int(ours.text), int(theirs.text)))
    return high <= _HOURS and high - low == _HOURS // 2


def _year_again(figure: Figure, other: str) -> bool:
    """Whether a number is a year that the other side has less often, as in a range."""
    return (
        re.fullmatch(r"1[5-9][0-9]{2}|20[0-9]{2}", figure.text) is not None
        and re.search(rf"(?<![0-9]){figure.text}(?![0-9])", other) is not None
    )


def _digits(found: Sequence[Figure]) -> str:
    return "".join("".join(_GROUPS.findall(figure.text)) for figure in found)


def _without_point(missing: Sequence[Figure], extra: Sequence[Figure]) -> bool:
    """Whether a decimal became a whole number of the same digits: `1,85` and `185`, `0,25` and
    `025`."""
    whole = {figure.text for figure in extra if figure.text.isdecimal()}
    return any(
        all("." in reading for reading in figure.readings) and _digits([figure]) in whole
        for figure in missing
    )


def _excused(figure: Figure, other: str, language: str | None, *, is_a_day: bool = False) -> bool:
    """Whether the other side may write the number in words or leave it out. The name of a month may
    stand for a number, but not for a day beside it."""
    if figure.value <= 1:
        return True
    if re.fullmatch("1[5-9][0-9]0|20[0-9]0|[0-9]000", figure.text):  # the seventies, a millennium
        return has_number_word(other, language)
    if any(reading.startswith("t") for reading in figure.readings):
        return has_number_word(other, language) or _HALF.search(other) is not None
    if _CENTURY.search(other) and (figure.value <= _SMALL or figure.text.endswith("0")):
        return True
    if figure.value <= _SMALL and figure.value % 1 == 0:
        if is_a_day:
            return has_number_word(without_names(other, language), language, months=False)
        return has_number_word(other, language)
    return has_large_word(other, language) or (
        figure.value % 1 != 0 and _HALF.search(other) is not None
    )
