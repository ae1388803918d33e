"""Abbreviations that models copy or misread, and the words that they read instead."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping

from serving.text.edits import Edit

_Words = Mapping[str, str]
_ANYWHERE: Mapping[str, _Words] = {
    "de": {
        "1 Mio.": "1 Million",
        "1 Mrd.": "1 Milliarde",
        "Mio.": "Millionen",
        "Mrd.": "Milliarden",
        "Jh.": "Jahrhundert",
        "mind.": "mindestens",
        "max.": "maximal",
        "inkl.": "inklusive",
        "zzgl.": "plus",
        "bzgl.": "bezüglich",
        "evtl.": "eventuell",
        "vgl.": "vergleiche",
        "lt.": "laut",
        "tgl.": "täglich",
    },
    "es": {"EE. UU.": "Estados Unidos", "EE.UU.": "Estados Unidos", "aprox.": "aproximadamente"},
}
"""Words by language and abbreviation. One in small letters may begin with a capital."""
_BEFORE_NUMBER: Mapping[str, _Words] = {
    "de": {"Abb.": "Abbildung", "S.": "Seite", "rd.": "rund"},
    "en": {
        "p.": "page",
        "pp.": "pages",
        "fig.": "figure",
        "figs.": "figures",
        "approx.": "about",
    },
    "es": {"pág.": "página", "págs.": "páginas"},
    "fr": {"p.": "page"},
}
"""Those that have another meaning unless a number follows."""
_BEHIND_NUMBER: Mapping[str, _Words] = {
    "de": {"Std.": "Stunden", "Min.": "Minuten", "qm": "Quadratmeter", "qkm": "Quadratkilometer"},
    "en": {"lbs.": "pounds", "lbs": "pounds"},
}
"""Those that have another meaning unless a number precedes."""
_ENDS = re.compile(r"[\s\"”“»)]*\Z")


def abbreviation_edits(sentence: str, language: str) -> Iterator[Edit]:
    """Edits that write out the abbreviations of a sentence. A full stop that ends the sentence,
    too, stays."""
    pattern = _pattern(language)
    for found in pattern.finditer(sentence) if pattern else ():
        words, short = _words(language), found[0]
        full = words.get(short) or words[short[0].lower() + short[1:]].capitalize()
        ends = short.endswith(".") and _ENDS.match(sentence, found.end())
        yield Edit(found.span(), full + "." if ends else full)


def _words(language: str) -> dict[str, str]:
    tables = (_ANYWHERE, _BEFORE_NUMBER, _BEHIND_NUMBER)
    return {short: full for table in tables for short, full in table.get(language, {}).items()}


@functools.cache
def _pattern(language: str) -> re.Pattern[str] | None:
    """Pattern of a language's abbreviations; None if it has none here."""
    choices = [
        f"{before}(?:{'|'.join(map(_spelt, table[language]))}){behind}"
        for before, table, behind in (
            ("", _ANYWHERE, ""),
            (r"(?<!Abs\. \d )", _BEFORE_NUMBER, r"(?=[ \u00a0]\d)"),
            (r"(?<=\d[ \u00a0])", _BEHIND_NUMBER, ""),
        )
        if language in table
    ]
    return re.compile(rf"(?<![\w.,-])(?:{'|'.join(choices)})(?![\w-])") if choices else None


def _spelt(short: str) -> str:
    """Pattern of an abbreviation, with any blank, and of its form with a capital."""
    first, rest = short[0], re.escape(short[1:])
    return f"[{first}{first.upper()}]{rest}" if first.islower() else re.escape(short)
