"""Units beside numbers: currencies, and measures of length and weight."""

from __future__ import annotations

import re

from serving.text.alignment import Span

_CURRENCIES = {
    "$": r"\$|dollar|d[óo]lar|usd|peso|bucks?|real|réa",
    "€": r"€|eur",
    "£": r"£|gbp|pound|pfund|livre|libra|sterling|quid",
    "¥": r"¥|yen|jpy|yuan|rmb|cny",
}
_METRIC = re.compile(
    r"\b(?:kg|kilos?|kilogram\w*|km|kilom\w+|(?:zenti|centi|milli|mili)?m[eèé]t(?:er|re|ro)s?n?"
    r"|cm|(?<=[0-9][ \u00a0])m|celsius|°c|he[ck]t\w+|lit(?:er|re|ro)s?n?)\b",
    re.IGNORECASE,
)
_IMPERIAL = re.compile(
    r"\b(?:pounds?|pfund|libras?|lbs?|miles?|meilen?|milles|millas?|feet|foot|fuß|pieds?|pies?"
    r"|inch(?:es)?|zoll|pouces?|pulgadas?|acres?|gallons?|galon\w+|gallonen|barrels?|fahrenheit|°f"
    r"|yards?)\b",
    re.IGNORECASE,
)
_SIGN = re.compile("[$€£¥]")
_DOUBLE_SIGN = re.compile(r"(?P<sign>[$€£¥%])(?P<more>[ \u00a0]?(?P=sign))(?!\w)")
_ANY_SIGN = re.compile("[$€£¥%]")


def strange_sign(source: str, output: str) -> tuple[str, Span] | None:
    """A currency sign of the output that the source has neither as a sign nor as a name, though it
    has another currency; or a sign that occurs twice in a row."""
    if not _ANY_SIGN.search(output):
        return None
    double = _DOUBLE_SIGN.search(output)
    if double and not _DOUBLE_SIGN.search(source):
        return double["more"], double.span("more")
    if not any(re.search(name, source, re.IGNORECASE) for name in _CURRENCIES.values()):
        return None
    for match in _SIGN.finditer(output):
        if not re.search(_CURRENCIES[match[0]], source, re.IGNORECASE):
            return match[0], match.span()
    return None


def other_units(source: str, output: str) -> bool:
    """Whether one text has imperial units and the other metric ones."""
    theirs, ours = bool(_IMPERIAL.search(output)), bool(_IMPERIAL.search(source))
    return theirs != ours and _METRIC.search(source if theirs else output) is not None
