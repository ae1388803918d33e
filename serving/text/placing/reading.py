"""How a sentence is read where models misread it as it is written: dashes without blanks, rare
quotation marks, abbreviations, and forms for all genders."""

from __future__ import annotations

import re

from serving.text.edits import Edit
from serving.text.kept.spelling import Spells
from serving.text.languages import base_language
from serving.text.placing.abbreviations import abbreviation_edits
from serving.text.placing.genders import gender_edits
from serving.text.placing.marks import are_alike

_BLANK = "[ \u00a0\u202f]"
_WORD = r"(?=[^\W\d_]|[¿¡\"'“«(])"
_DASH = re.compile(
    rf"(?<=\S)(?:{_BLANK}?—{_BLANK}?{_WORD}|{_BLANK}–{_WORD}|{_BLANK}(?:—|--){_BLANK}(?=\w))"
)
"""A dash between words, but not at the beginning of a sentence. A short one without any blank joins
names (`Paris–London`), and `--all` is an option of a program."""
_CLOSING_DASH = re.compile(r"(?<=\w)—(?=[.,;:!?])")


_FRENCH = re.compile(rf"«{_BLANK}+(?=[^\s—–-])|(?<=[^\s—–-]){_BLANK}+»")
_SWISS = re.compile(r"(?<![\w.,!?…])«(?=\w)|(?<=[\w.,!?…])»(?!\w)")
_OUTER = re.compile(r"[„“»«\"]")
_SINGLE = re.compile(r"(?<!\w)‚(?=\w)[^‚‘„“\"]*(?<=[\w.,!?…])‘(?!\w)")  # noqa: RUF001


def spelt_as_read(spells: Spells, source: str, target: str) -> Spells:
    """Whether a vocabulary can write a text as it is read, if `spells` says what it can write."""
    if base_language(source) != "de" or not are_alike(source, target):
        return spells
    return lambda text: spells(text.replace("‚", "'"))  # noqa: RUF001


def reading_edits(sentence: str, source: str, target: str) -> list[Edit]:
    """The edits with which a sentence is read, in order."""
    if not are_alike(source, target):
        return []
    found = [Edit(dash.span(), " – ") for dash in _DASH.finditer(sentence) if dash[0] != " – "]
    found += [Edit(dash.span(), "") for dash in _CLOSING_DASH.finditer(sentence)]
    language = base_language(source)
    found += abbreviation_edits(sentence, language)
    if language == "fr":
        found += [Edit(mark.span(), mark[0].strip()) for mark in _FRENCH.finditer(sentence)]
    if language == "de":
        found += gender_edits(sentence, base_language(target))
        found += [Edit(mark.span(), '"') for mark in _SWISS.finditer(sentence)]
        inner = "'" if _OUTER.search(sentence) else '"'
        for quotation in _SINGLE.finditer(sentence):
            begin, end = quotation.span()
            found += [Edit((begin, begin + 1), inner), Edit((end - 1, end), inner)]
    return sorted(found, key=lambda edit: edit.span)
