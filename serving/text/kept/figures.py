"""Figures that models often write wrongly: prices, measures, shares, decimals, grouped numbers,
times, and numbers of phones, cards and accounts. They are recognised by their characters alone, in
any language; their form in a translation depends on both languages.
"""

from __future__ import annotations

import re

from serving.text.alignment import Span
from serving.text.kept import clock, weekdays

_NO_BREAK = "\u00a0"
_SPACE = f"{_NO_BREAK}\u202f "
_SIGN = r"(?:(?:US|CA|AU|NZ|HK|[ACRS])?\$|[€£¥₹₽₩₺₴₿₫₪₱])"
_CODE = "(?:EUR|USD|GBP|CHF|JPY|CNY|AUD|CAD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|INR|RUB)"
_GROUPED = (
    rf"[1-9]\d{{0,2}}(?:(?:[.,'’]\d{{3}})+|(?:[{_SPACE}]\d{{3}})+)(?:[.,]\d+)?(?![\d'’]|[.,]\d)"
)
_AMOUNT = rf"(?:{_GROUPED}|\d+(?:[.,]\d+)*)"
_AMOUNTS = rf"{_AMOUNT}(?:[{_SPACE}]?[–-][{_SPACE}]?{_AMOUNT})?"
_ZONE = "(?:Eastern|Central|Mountain|Pacific|[ECMP][SD]?T|GMT|UTC|BST)"
_DAY = "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_HALF = rf"""
    (?: [{_SPACE}]?(?:[pP]m|[AP]M)(?!\w) | (?<=\d)am(?!\w)
      | [{_SPACE}]am(?=[ ]?(?:[.,;:)?!–-]|\Z)|[ ](?:{_DAY}|{_ZONE}  # no `am` of German
        |and|or|to|until|till|on|in|at|for|from|every|today|tomorrow|yesterday|sharp
        |the|I|you|he|she|it|we|they)\b)
      | [{_SPACE}]?[aApP]\.[{_SPACE}]?[mM](?!\w)
        (?:\.(?=[ ]*(?:[,;:)?!–-]|[a-z\d])|[ ](?:{_DAY}|{_ZONE})\b))?+
    )
"""
"""Half of a day; a full stop that ends the sentence is not part of it."""
_CLOCK = r"(?:[01]?\d|2[0-4])"
_HOUR = "(?:1[0-2]|0?[1-9])(?::[0-5]\\d)?"
_TO = rf"[{_SPACE}]?[–-][{_SPACE}]?"
_UNTIL = rf"(?:{_TO}|[{_SPACE}]bis[{_SPACE}])"
_TIME = rf"""
    {_CLOCK}(?:[.:][0-5]\d)?{_TO}{_CLOCK}(?:[.:][0-5]\d)?[{_SPACE}]?Uhr(?!\w|[.,:]\d)
    | {_CLOCK}(?::[0-5]\d|\.(?:00|1[3-9]|[2-5]\d))?[{_SPACE}]bis[{_SPACE}]  # no `20.12`, a day
      {_CLOCK}(?:[.:][0-5]\d)?[{_SPACE}]?Uhr(?!\w|[.,:]\d|[{_SPACE}][0-5]\d)
    | {_HOUR}(?:{_HALF})?[{_SPACE}]?[–-][{_SPACE}]?{_HOUR}{_HALF}(?!\w)
    | {_CLOCK}:[0-5]\d (?::[0-5]\d)? (?: [{_SPACE}]?[–-][{_SPACE}]?{_CLOCK}:[0-5]\d )?
      (?: {_HALF} | [{_SPACE}]?(?:Uhr|h)(?!\w) )? (?!\w|[:.,]\d)
    | {_CLOCK}(?:\.[0-5]\d)?[{_SPACE}]?Uhr(?:[{_SPACE}][0-5]\d)?(?!\w|[.,:]\d)
    | (?:1[0-2]|0?[1-9]){_HALF} (?!\w)
    | {_CLOCK}[{_SPACE}]?h[{_SPACE}]?[0-5]\d (?!\w)
"""
_HOURS = rf"{_CLOCK}[{_SPACE}]?h(?:[{_SPACE}]?[0-5]\d)?"
_HOURS_OF_DAYS = rf"{_HOURS}(?:{_TO}{_HOURS})?(?!\w)"
"""French and Spanish hours behind a day; elsewhere they may be a duration: `2h-3h`."""
_ERA = rf"""
    \d{{1,4}}[{_SPACE}](?:
      (?:v\.[{_SPACE}]?Chr | av\.[{_SPACE}]?J\.-?C | a\.[{_SPACE}]?(?:de[ ])?C | B\.?C(?:\.?E)?)
      | (?:n\.[{_SPACE}]?Chr | apr?\.[{_SPACE}]?J\.-?C | d\.[{_SPACE}]?(?:de[ ])?C | A\.?D)
    )(?!\w)(?:\.(?=[ ]*(?:[,;:)?!–-]|[^\W\dA-Z])))?+
"""
_UNIT = r"(?:[mk]?g|[mcd]?[lL]|km/h|[mck]?m[\u00b2\u00b3]?|°[CF])"
"""Signs of units that all languages share."""
_MEASURED = rf"""
    {_AMOUNTS}[{_SPACE}]?
      (?: %(?![\w%{{(<\[]) | {_UNIT}(?!\w|['’/-][^\W\d_]|[{_SPACE}]\d) )
"""
_DECIMAL = rf"(?:0|[1-9]\d*)[.,]\d+(?!\w|[.,:/]\d|[\u2013-]\w|[{_SPACE}]?%|[{_SPACE}]\d)"
_FIRST = (
    r"1er(?=[\u00a0\ ](?:janvier|février|mars|avril|mai|juin|juillet|août|septembre|octobre"
    r"|novembre|décembre)\b)"
)
_ORDINAL = (
    rf"(?:\d{{1,3}}(?:\.[ªº]|ª|\.er\b)(?!\w)|{_FIRST}|\d{{1,3}}[eè](?:[mr]e)?(?=[ ][^\W\d_]))"
)
FIGURE = rf"""
    (?<![\w.,:$€£])(?<!\w-)(?<!ersion[ ])(?<!§[ ])
    (?: {_TIME} | {_ERA} | {clock.WORDS}
      | (?:{weekdays.LIST}):?[ ](?:{_HOURS_OF_DAYS}|{_TIME}) | (?:{weekdays.RANGE})
      | \d+,[–—-]{{1,2}}[{_SPACE}]?(?:{_SIGN}|{_CODE})(?!\w)
      | {_SIGN}[{_SPACE}]?{_AMOUNTS}(?:[kKMB]|[mb]n)?(?!\w) | {_CODE}[{_SPACE}]{_AMOUNTS}(?![\w%])
      | {_AMOUNTS}[{_SPACE}]?(?:{_SIGN}(?![\w{{(\[])|{_CODE}(?!\w))
      | \d{{1,4}}(?::\d{{1,4}})+(?!\w|[:.,]\d)
      | {_MEASURED}
      | {_GROUPED}(?!\w|[–-]\d)
      | {_DECIMAL}
      | {_ORDINAL} | [nN]\.?[º°][{_SPACE}]?\d+(?!\w)
      | \d{{5,}}(?!\w|[.,:/–-]\d|[{_SPACE}]\d\d)
    )
"""
"""Pattern of a figure that is masked by a number."""
_BYTE = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
ADDRESS = rf"(?<![\w.]){_BYTE}(?:\.{_BYTE}){{3}}(?::\d+)?(?!\w|\.\d)"
"""Pattern of a computer's numeric address."""
IDENTIFIER = rf"""
    (?<![\w.,:/+-])
    (?: (?=\+|00)                       # first, or each blank would look to the end of all
        (?=(?:[{_SPACE}()/.-]*+[+\d]){{8}})(?:\+|00)\d{{1,3}}(?:[{_SPACE}]?\(\d{{1,5}}\))?
        (?:[{_SPACE}/.-]{{0,2}}\d++){{1,7}}(?!\w)
      | \(\d{{2,5}}\)[{_SPACE}]?\d{{2,}}(?:[{_SPACE}./-]\d{{2,}}){{0,4}}(?!\w)
      | 0\d{{1,4}}(?:[{_SPACE}]?[{_SPACE}/.-][{_SPACE}]?\d{{2,}}){{1,5}}(?!\w|[.,:/-]\d)
      | \d{{3}}[.-]\d{{3}}[.-]\d{{4}}(?!\w) | \d{{3}}-\d{{4}}(?![\w-])
      | (?=(?:[{_SPACE}./-]?\d){{9}})\d{{1,6}}(?:[{_SPACE}./-]\d{{1,8}}){{2,7}}(?!\w|[.,:/-]\d)
      | [A-Z]{{2}}\d{{2}}(?:[{_SPACE}]?[A-Z\d]{{4}}){{2,7}}(?:[{_SPACE}]?[A-Z\d]{{1,3}})?(?!\w)
      | [A-Z]{{2}}U?[{_SPACE}-]?\d(?:[{_SPACE}.-]?\d){{6,13}}[A-Z]?(?!\w)
      | (?=[A-Z\d-]*[A-Z])(?=(?:[A-Z-]*\d){{3}})[A-Z\d]+(?:-[A-Z\d]+)*(?<=[A-Z\d-]{{6}})(?![\w-])
    )
"""
"""Pattern of a number of a phone, a card, an account, a tax office or an order."""
HINT = (
    rf"\d[.,:'’{_SPACE}/–-]\(?\d|\d{{5}}|[+(]\d|[A-Z][- ]?\d|{_SIGN}|{_CODE}"
    rf"|\d,[–—-]|1er[ \u00a0]|\d[eè](?:[mr]e)?[ ]"
    rf"|\d[{_SPACE}]?(?:[%°]|{_UNIT}(?!\w)|h[{_SPACE}]?[\d–-]|Uhr"
    rf"|[aApP]\.?[{_SPACE}]?[mM]\b|(?:a[vp]?r?|[vndAB])\.|AD|BC)|{clock.HINT}|{weekdays.HINT}"
)
"""Pattern of a part that every figure, address and identifier contains."""
_AND = rf"(?:,?[{_SPACE}](?:and|or|to)[{_SPACE}]|,[{_SPACE}]|[{_SPACE}]?[–-][{_SPACE}]?)"
_COUNTS = re.compile(
    rf"(?:{_AND}\d+\.\d+){{0,4}}(?:[{_SPACE}]?(?:%|{_UNIT}(?!\w))"
    rf"|[{_SPACE}-](?:per[ ]?cent|points?|thousand"
    r"|[mbtr]+illions?|times|degrees|square|cubic|miles?|hours?|minutes?|seconds?|days?|weeks?"
    r"|months?|years?|feet|inch(?:es)?|yards?|acres?|pounds?|ounces?|gallons?|tons?|tonnes?|watts?"
    r"|volts?|\w*(?:met|lit)(?:er|re)s?|\w*grams?|\w*bytes?|dollars?|euros?)\b)"
)
"""Text after an English number by which it counts something."""
_COUNTED = re.compile(
    r"\b(?:is|was|are|were|be|been|of|to|than|about|around|nearly|almost|roughly|approximately|over"
    r"|under|below|above|only|just|exactly|between|least|most|reached|scored|averaged|averages?"
    r"|equals|costs?|weighs?|weighed|measures?|measured|has|had|takes?|took|every)"
    rf"[{_SPACE}](?:\d+\.\d+{_AND})*\Z",
    re.IGNORECASE,
)
"""Text before an English number by which it counts something."""
_NAMED = re.compile(
    r"\b(?:version|release|update|upgrade|install|firmware|build|section|chapter|figure|fig|table"
    r"|article|paragraph|clause|step|part|rule|level|appendix|equation)",
    re.IGNORECASE,
)
"""Words whose numbers may have a point: `The latest version is 2.5`."""
_LOOKED_AT = 60
"""Characters before a number that are read."""
_WITH_POINT = re.compile(r"0\.\d+|\d+\.(?:\d{1,2}|\d{4,})")
_GROUPS = {"en": ",", "de": ".", "es": ".", "fr": "\u202f"}
"""Thousands separators by language; a comma implies a decimal point."""
_NUMBER = re.compile(rf"\d+(?:[.,{_SPACE}]\d+)*")
_WRITTEN = [
    re.compile(
        rf"(\d+|\d{{1,3}}(?:{group}\d{{3}})+|\d{{1,3}}(?:[{_SPACE}]\d{{3}})+)(?:{decimal}(\d+))?"
    )
    for group, decimal in ((r"\.", ","), (",", r"\."))
]
"""Numbers in the format of most languages, and in the English one."""
_ERAS = {
    "en": ("BC", "AD"),
    "de": ("v.\u00a0Chr.", "n.\u00a0Chr."),
    "fr": ("av. J.-C.", "apr. J.-C."),
    "es": ("a.\u00a0C.", "d.\u00a0C."),
}
_YEAR = re.compile(
    rf"(\d+)[{_SPACE}](?:(?P<before>v\.[{_SPACE}]?Chr|av\.|a\.[{_SPACE}]?(?:de )?C|B\.?C)"
    rf"|n\.[{_SPACE}]?Chr|apr?\.[{_SPACE}]?J|d\.[{_SPACE}]?(?:de )?C|A\.?D\b)"
)
_RANK = re.compile(r"(\d+)(?:\.?(?:ª|º|er)|[eè](?:[mr]e)?)")
"""A Spanish or French ordinal."""
_MEASURE = re.compile(rf"[{_SPACE}]?(?:%|{_UNIT})\Z")
_NUMBERED = re.compile(rf"[nN]\.?[º°][{_SPACE}]?")
_DASH = re.compile(r"(?<=\d),[–—-]{1,2}")
"""Sign of German prices without cents."""
_PERCENT = re.compile(rf"(?<=\d)([{_SPACE}]?)%")
_MOMENT = re.compile(
    rf"(\d{{1,2}})(?:[{_SPACE}]?[:h.][{_SPACE}]?(\d\d)(:\d\d)?)?"
    rf"(?:[{_SPACE}]?(?:(?P<half>[apAP])(\.?[{_SPACE}]?)[mM](\.?)|(Uhr)(?:[{_SPACE}](\d\d))?|h))?"
)
_SPAN = re.compile(
    rf"(?=.*(?:h|Uhr))(\d{{1,2}})(?:[{_SPACE}]?[.:h][{_SPACE}]?(\d\d))?(?:[{_SPACE}]?h)?({_UNTIL})"
    rf"(\d{{1,2}})(?:[{_SPACE}]?[.:h][{_SPACE}]?(\d\d))?(?:[{_SPACE}]?(?:h|Uhr))?"
)
"""From one time of day to another, with `Uhr` or `h`."""
_DAYS = re.compile(rf"(?P<days>{weekdays.LIST}|{weekdays.RANGE})", re.VERBOSE)
"""Days before a time, or alone."""
_IS_TIME = re.compile(
    rf"(?:\d{{1,2}}(?::\d\d)?[{_SPACE}]?[–-][{_SPACE}]?(?=.*[aApP]\.?[{_SPACE}]?[mM]))?"
    rf"\d{{1,2}}[{_SPACE}]?(?:[:h][{_SPACE}]?\d\d|(?:\.\d\d[{_SPACE}]?)?Uhr|[aApP]\.?[{_SPACE}]?[mM])"
)


_WORDS_UNTIL = {"de": "bis", "en": "to", "es": "a", "fr": "à"}
"""Words between two times of day, by language."""


def is_time(figure: str) -> bool:
    """Whether a figure is a time of day, or several; days may precede them."""
    if days := _DAYS.match(figure):
        figure = figure[days.end() :].lstrip(": ")
    patterns = _IS_TIME.match(figure), _SPAN.fullmatch(figure)
    return any(patterns) or clock.is_worded(figure)


def without_unit(figure: str) -> str:
    """A figure without a per cent sign or the sign of a measure."""
    return _MEASURE.sub("", figure)


def is_numbering(text: str, span: Span) -> bool:
    """Whether a figure is a number with a point that may be a version, a section, a date or a time:
    nothing beside it shows that it counts something."""
    begin, end = span
    if not _WITH_POINT.fullmatch(text, begin, end) or _COUNTS.match(text, end):
        return False
    before = text[max(0, begin - _LOOKED_AT) : begin]
    return not _COUNTED.search(before) or _NAMED.search(before) is not None


def in_convention(figure: str, source: str, target: str) -> str:
    """A figure of one language in the format of another: thousands, decimals, halves of a day, and
    times in words. A figure that is not in the source language's format stays unchanged."""
    if source == target:
        return figure
    if clock.is_worded(figure):
        time = clock.in_figures(figure, source)
        if time is None:
            return figure
        return in_convention(time, "de", target) if target in _GROUPS else time.removesuffix(" Uhr")
    if source not in _GROUPS or target not in _GROUPS:
        return figure
    if days := _DAYS.match(figure):
        own, rest = weekdays.in_language(days[0], source, target), figure[days.end() :]
        times = rest.lstrip(": ")
        own = own or days[0]
        if not times:
            return own
        return own + rest.removesuffix(times) + in_convention(times, source, target)
    if span := _SPAN.fullmatch(figure):
        return _span(span, target)
    if era := _YEAR.match(figure):
        return f"{era[1]}\u00a0{_ERAS[target][era['before'] is None]}"
    if ordinal := _RANK.fullmatch(figure):
        return english_ordinal(ordinal[1]) if target == "en" else figure
    if number := _NUMBERED.match(figure):
        return f"No. {figure[number.end() :]}" if target == "en" else figure
    if not is_time(figure):
        written = _NUMBER.sub(lambda match: _number(match[0], source, target), figure)
        written = _DASH.sub("", written) if source == "de" else written
        return _PERCENT.sub("%" if target == "en" else _apart, written)
    first, *more = _MOMENT.finditer(figure)
    if not more or not more[-1]["half"] or target not in ("de", "fr"):
        return _MOMENT.sub(lambda match: _moment(match, target), figure)
    between, last = figure[first.end() : more[-1].start()], _moment(more[-1], target)
    begin = _moment(first, target, _half_before(first, more[-1]))
    return begin.removesuffix(" Uhr") + between + last + figure[more[-1].end() :]


def _apart(share: re.Match[str]) -> str:
    return f"{share[1] or _NO_BREAK}%"


def english_ordinal(number: str) -> str:
    """A number in digits with the ending of an English ordinal: `3rd`, `13th`."""
    teen = number[-2:-1] == "1"
    return number + ("th" if teen else {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th"))


def _number(number: str, source: str, target: str) -> str:
    found = _WRITTEN[source == "en"].fullmatch(number)
    if found is None:
        return number
    parts = re.split(r"\D", found[1])
    if found[2] is None and source != "fr" and any(map(str.isspace, number)):
        return number  # valid in every language
    decimals = "" if found[2] is None else f"{'.' if target == 'en' else ','}{found[2]}"
    return _GROUPS[target].join(parts) + decimals


def _span(match: re.Match[str], target: str) -> str:
    """From one time of day to another: `9–18 Uhr`, `9h30-18h`, `9 bis 18 Uhr`."""
    hour, minutes, between, last_hour, last_minutes = match.groups()
    between = between.replace("bis", _WORDS_UNTIL[target])
    missing = "" if target == "de" else " h" if target == "fr" else ":00"
    begin, end = (
        f"{number}:{minute}" if minute else f"{number}{missing}"
        for number, minute in ((hour, minutes), (last_hour, last_minutes))
    )
    return f"{begin}{between}{end}{' Uhr' if target == 'de' else ''}"


def _half_before(first: re.Match[str], last: re.Match[str]) -> str:
    """The half of the day of the first of two times: its own, or else the latest one in which it is
    before the other."""
    if first["half"]:
        return str(first["half"])
    same = int(first[1]) % 12 <= int(last[1]) % 12
    return "p" if (last["half"] in "pP") == same else "a"


def _moment(match: re.Match[str], target: str, half: str = "") -> str:
    """A time of day; `half` is its half of the day if it has none of its own."""
    hour, minutes, seconds, own, dots, stop, whole, late = match.groups()
    half = half or own
    minutes = minutes or late
    if whole and target != "fr":
        minutes = minutes or "00"
    if half and target in ("de", "fr"):
        hour = str(int(hour) % 12 + 12 * (half in "pP"))
    clock = f"{hour}:{minutes}{seconds or ''}" if minutes else hour
    if not half:
        return f"{clock} h" if whole and not minutes else clock
    if target == "de":
        return f"{clock} Uhr"
    if target == "fr":
        return f"{hour} h {minutes}" if minutes else f"{hour} h"
    blank = "\u00a0" if target == "es" and "." in dots else ""
    return f"{clock} {half}{dots.strip(_SPACE)}{blank}m{stop}"
