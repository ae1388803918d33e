"""How a sentence is read where models misread it as it is written: dashes without blanks."""

from __future__ import annotations

import re

from serving.text.edits import Edit
from serving.text.placing.marks import are_alike

_BLANK = "[ \u00a0\u202f]"
_WORD = r"(?=[^\W\d_]|[¿¡\"'“«(])"
_DASH = re.compile(
    rf"(?<=\S)(?:{_BLANK}?—{_BLANK}?{_WORD}|{_BLANK}–{_WORD}|{_BLANK}(?:—|--){_BLANK}(?=\w))"
)
"""A dash between words, but not at the beginning of a sentence. A short one without any blank joins
names (`Paris–London`), and `--all` is an option of a program."""
_CLOSING_DASH = re.compile(r"(?<=\w)—(?=[.,;:!?])")


def reading_edits(sentence: str, source: str, target: str) -> list[Edit]:
    """The edits with which a sentence is read, in order."""
    if not are_alike(source, target):
        return []
    found = [Edit(dash.span(), " – ") for dash in _DASH.finditer(sentence) if dash[0] != " – "]
    found += [Edit(dash.span(), "") for dash in _CLOSING_DASH.finditer(sentence)]
    return sorted(found, key=lambda edit: edit.span)
