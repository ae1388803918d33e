"""Words that stand for numbers, by language.

They excuse a number that is missing on one side: `two dogs` for `2 Hunde`. So the lists are broad
and include words that may be something else, such as `second`.
"""

from __future__ import annotations

import re

_WORDS = {
    "en": r"""
        \b(?: zero | nil | noughts? | none | two | three | four | five | six | seven
        | eight | nine | ten | eleven | twelve | (?:thir|four|fif|six|seven|eigh|nine)teen
        | (?:twen|thir|for|fif|six|seven|eigh|nine)t(?:y|ies) | once | twice | thrice | single
        | doubl | tripl | quadrupl | pair | couple | both | dozen | half | halves | halv | quarter
        | third | fourth | fifth | sixth | seventh | eighth | ninth | tenth | eleventh | twelfth
        | \w+teenth | \w+tieth | first | second | decade | centur | millenni | fortnight | week
        | noon | midday | midnight | hundred | thousand | million | billion
        | trillion | score\b | teens | bi(?:lateral|annual|ennial|ling|weekly) | semi | mono | uni
        | noughties
        )
    """,
    "de": r"""
        null | zwei | zwo | drei | vier | fünf | sechs | sieben | acht | neun
        | zehn | zig\b | zig | \belf | zwölf | erst | dritt | siebt | \bpaar | doppel | dopp | beid
        | dutzend | halb | hälfte | viertel | drittel | \w+stel | hundert | tausend | million
        | milliard | billion | billiard | mittag | mitternacht | \w+mal\b | jahrzehnt | jahrhundert
        | fach\b | woche | anderthalb | teenager | \w+ßig
    """,
    "fr": r"""
        \b(?: zéro | deux | trois | quatre | cinq | six | sept | huit | neuf | dix
        | onze | douze | treize | quatorze | quinze | seize | vingt | trente | quarante | cinquante
        | soixante | octante | huitante | nonante | septante | cent | mille | million | milliard
        | premi | second | tiers | quart | demi | moitié | double | triple | couple | paire
        | douzaine | \w+aine | \w+ième | midi | minuit | décennie | siècle | semaine | bi
        )
    """,
    "es": r"""
        \b(?: cero | dos | tres | cuatro | cinco | seis | siete | ocho | nueve | diez
        | once | doce | trece | catorce | quince | dieci | veint | treinta | cuarenta | cincuenta
        | sesenta | setenta | ochenta | noventa | cien | \w*cient | quinient | mil\b | miles
        | mill[oó]n | billon | primer | segund | tercer | cuart | quint | sext | s[eé]ptim | octav
        | noven | d[eé]cim | medi | mitad | doble | triple | par\b | pareja | docena | decen
        | ambos | ambas | mediod | medianoche | d[eé]cada | siglo | semana | bi
        )
    """,
}
_MONTHS = {
    "en": r"\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun)",
    "de": r"\b(?:jan|feb|mär|apr|mai|jun|jul|aug|sep|okt|nov|dez|jän|mon|die|mit|don|fre|sam|son)",
    "fr": r"\b(?:janv|févr|mars|avr|mai|juin|juil|août|sept|oct|nov|déc)",
    "es": r"\b(?:ene|feb|mar|abr|may|jun|jul|ago|sep|oct|nov|dic)",
}
_ROMAN = r"""
    (?-i: \b (?: (?=[MDCLXVI]{2}) M{0,3} (?:CM|CD|D?C{0,3}) (?:XC|XL|L?X{0,3}) (?:IX|IV|V?I{0,3})
      (?<=[MDCLXVI]) (?: \b | er?\b | ème\b | º )
    | [IVX] (?: er?\b | ème\b | º ) | [VX]\b ))
"""
"""Single letters only if they are no word: `I`, `Der` and `Le` occur in most sentences."""
_PATTERNS = {
    language: re.compile(rf"{words} | {_MONTHS[language]} | {_ROMAN}", re.VERBOSE | re.IGNORECASE)
    for language, words in _WORDS.items()
}
_WITHOUT_MONTHS = {
    language: re.compile(rf"{words} | {_ROMAN}", re.VERBOSE | re.IGNORECASE)
    for language, words in _WORDS.items()
}
_LARGE = {
    "en": re.compile(r"hundred|thousand|million|billion|trillion|\bk\b|\bm\b|\bbn\b|centur", re.I),
    "de": re.compile(r"hundert|tausend|million|milliard|billion|mio\b|mrd\b|tsd\b", re.I),
    "fr": re.compile(r"\bcent|mille|million|milliard|billion|siècle|\bm\b|\bmd", re.I),
    "es": re.compile(r"\bcien|cient|quinient|\bmil\b|\bmiles\b|mill[oó]n|billon|siglo|\bm\b", re.I),
}


def known(language: str | None) -> bool:
    """Whether number words of a language are listed."""
    return language in _PATTERNS


def has_number_word(text: str, language: str | None, *, months: bool = True) -> bool:
    """Whether a text may contain a number in words, a Roman number or, with `months`, a month's
    name; True for a language without a list."""
    pattern = (_PATTERNS if months else _WITHOUT_MONTHS).get(language or "")
    return pattern is None or pattern.search(text) is not None


def has_large_word(text: str, language: str | None) -> bool:
    """Whether a text may contain a word for a hundred or more, such as `million`; True for a
    language without a list."""
    pattern = _LARGE.get(language or "")
    return pattern is None or pattern.search(text) is not None
