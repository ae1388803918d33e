"""Marks of a translation that models write unlike the source: runs such as `!!!` at its end, dots
in a row, dashes, and lost marks. The endings of ordinals, too, are put right here.

A single mark in place of another stays: an English full stop for a German `!` is mostly right
(docs/background/decisions.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from serving.text.edits import Edit
from serving.text.languages import base_language
from serving.text.placing.ordinals import before_growing_number, ordinal_edits
from serving.text.placing.quotations import quotation_edits

_LANGUAGES = frozenset({"de", "en", "es", "fr"})
"""Languages for which this was measured; all have the same marks."""
_BLANKS = " \u00a0\u202f"
_MARKS, _CLOSING = ".,:;!?…" + _BLANKS, "\"'”“»«’‘)]" + _BLANKS  # noqa: RUF001
_ELLIPSES = ("...", "…")
"""Both forms are right, and a translation may have the other one."""
_DOTS = re.compile(r"\.{2,}|…")
_DASH = re.compile(rf"(?<=[{_BLANKS}])(?:--?(?: -)?|[–—])(?=[{_BLANKS}])")
_GIVEN_DASH = re.compile("[–—]|--")
_OF_ABBREVIATION = re.compile(r"\.(?=[^\s.…])")


class _End(NamedTuple):
    """The end of a sentence."""

    begin: int
    """Where its marks begin, or would begin, with the blanks before them."""
    end: int
    blank: str
    """The white space before its marks."""
    run: str
    """Its marks, without white space and the full stop of an abbreviation."""
    closes: bool
    """Whether a bracket or a quotation mark stands behind its marks."""


def are_alike(source: str, target: str) -> bool:
    """Whether translations between these languages have the marks of their sources."""
    return _LANGUAGES.issuperset((base_language(source), base_language(target)))


def mark_edits(source: str, output: str, target: str, *, ended: bool = True) -> list[Edit]:
    """Edits that give a translation into `target` the marks of its source and the right ordinals,
    in order. If it has not `ended`, the marks at its end are left."""
    language, last = base_language(target), None
    if ended:
        last = _end_edit(_end(source), _end(output), output, language)
    body = output if last is None else output[: last.span[0]]
    inside = [
        *_dots(source, body),
        *_dashes(source, body, language),
        *quotation_edits(source, body, language),
        *ordinal_edits(source, body, language),
    ]
    inside.sort(key=lambda edit: edit.span)
    return [*inside, *([] if last is None else [last])]


def certain(output: str) -> str:
    """The beginning of a translation that still grows, without marks and numbers that an edit may
    change."""
    marks = _MARKS + _CLOSING + "-–—"
    return before_growing_number(output.rstrip(marks)).rstrip(marks)


def _dots(source: str, output: str) -> Iterator[Edit]:
    """Dots in a row, written as in the source. Only what comes before them decides on
    them, because the translation may be streamed."""
    forms = _DOTS.findall(source)
    for number, found in enumerate(_DOTS.finditer(output) if forms else ()):
        if found[0] not in _ELLIPSES:
            yield Edit(found.span(), forms[min(number, len(forms) - 1)])


def _dashes(source: str, output: str, target: str) -> Iterator[Edit]:
    """Dashes, written as in the source, by their order, and in German short."""
    forms = [] if " - " in source else _GIVEN_DASH.findall(source)
    for number, found in enumerate(_DASH.finditer(output) if forms else ()):
        form = forms[min(number, len(forms) - 1)]
        if form == "--" or target == "de":
            form = "–"
        if found[0] != form:
            yield Edit(found.span(), form)


def _end_edit(given: _End, found: _End, output: str, target: str) -> Edit | None:
    """The marks at the end, written as in the source if either has several, or the output none."""
    wanted, run = given.run, found.run
    if not wanted or wanted == run or {wanted, run} == {*_ELLIPSES}:
        return None
    if given.closes != found.closes or {*":;"} & {*wanted, *run}:
        return None
    one_for_one = len(wanted) == len(run) == 1 and "…" not in (wanted, run)
    if one_for_one and (wanted, run) != (",", "."):
        return None
    before = output[: found.begin]
    if not before or not (run or before[-1].isalnum()):
        return None
    exclaims = wanted[0] in "!?"
    if exclaims and target == "es" and not {"¡", "¿"} & {*output}:
        return None  # the output lacks the mark at the beginning, too
    blank = found.blank if exclaims or run[:1] == wanted[0] else ""
    if exclaims and target == "fr":
        blank = blank or "\u00a0"
    return Edit((found.begin, found.end), blank + wanted)


def _end(text: str) -> _End:
    closed = text.rstrip(_CLOSING)
    begin = len(closed.rstrip(_MARKS))
    begin += _OF_ABBREVIATION.match(text[begin:]) is not None
    run = text[begin : len(closed)]
    blank = run[: len(run) - len(run.lstrip(_BLANKS))]
    marks = "".join(mark for mark in run if mark not in _BLANKS)
    closes = text[len(closed) :].strip(_BLANKS) != ""
    return _End(begin, len(closed), blank, marks, closes)
