"""Quotation marks of a translation: no blank within them, the comma behind direct speech where the
language has it, and those of a quotation that were lost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from serving.text.alignment import Link, Span
from serving.text.edits import Edit

_MARK = re.compile(r"(?<!\d)[\"„“”«»]|(?<=\d)[”“»]")
_SIGNS = ",.;:!?…-–—"
_BEFORE_QUOTATIONS = " \u00a0\u202f([{-–—/'’\t\n"
_STRAIGHT = '"'
_OWN = {"de": ("„", "“"), "fr": ("«\u00a0", "\u00a0»")}
"""The marks of languages that have others than models write for English and Spanish, straight
ones."""
_WORD = re.compile(r"\w(?:.*\w)?", re.DOTALL)


def quotation_edits(source: str, output: str, target: str) -> Iterator[Edit]:
    """Edits of the quotation marks of a translation into `target`, in order. Only what comes before
    a mark, and the sign behind it, decide on it, because the translation may be streamed."""
    speech = target in ("de", "en") and _begins_with_speech(source)
    opened = False
    for mark in _MARK.finditer(output):
        at, opened = mark.start(), not opened
        before, behind = output[at - 1 : at], output[at + 1 : at + 2]
        spaced = target == "fr" and mark[0] in "«»"
        if opened:
            if behind == " " and before in ("", " ", "(") and not spaced:
                yield Edit((at + 1, at + 2), "")
            speech = speech and at == 0
            continue
        if before == "," and target == "de":
            yield Edit((at - 1, at + 1), mark[0] if behind == "," else mark[0] + ",")
        elif speech and behind == " " and before not in _SIGNS:
            yield Edit((at, at + 1), "," + mark[0] if target == "en" else mark[0] + ",")
        speech = False


def _begins_with_speech(source: str) -> bool:
    """Whether a sentence begins with a quotation and a comma."""
    places = [mark.start() for mark in _MARK.finditer(source)][:2]
    if len(places) < 2 or places[0]:
        return False
    end = places[1]
    return "," in (source[end - 1], source[end + 1 : end + 2])


def has_quotation(source: str) -> bool:
    """Whether a sentence has one quotation, whose marks can be put back."""
    return _quotation(source) is not None


def _quotation(source: str) -> tuple[Span, Span] | None:
    """The marks of the only quotation of a sentence; None if it has none, or parts of others."""
    marks = [mark.span() for mark in _MARK.finditer(source)]
    if len(marks) != 2:
        return None
    [(first, begin), (end, last)] = marks
    opens = first == 0 or source[first - 1] in _BEFORE_QUOTATIONS
    return ((first, begin), (end, last)) if opens and source[begin] != " " else None


def lost_quotation_edits(
    source: str, output: str, links: Sequence[Link], target: str
) -> list[Edit]:
    """Edits that put the marks of the only quotation back into a translation without any: around
    its words as they are, or around the words that alone are linked to them."""
    marks = _quotation(source)
    if marks is None or _MARK.search(output):
        return []
    (first, begin), (end, last) = marks
    quoted = source[begin:end].strip()
    copies = [copy.span() for copy in re.finditer(rf"(?<!\w){re.escape(quoted)}(?!\w)", output)]
    span: Span | None
    if quoted and len(copies) == 1:
        [span] = copies
    elif not (source[:first].strip() or source[last:].strip()):
        span = (0, len(output))
    else:
        span = _linked_alone((begin, end), output, links)
    if span is None:
        return []
    own = (_STRAIGHT, _STRAIGHT)
    opening, closing = own if source[first] == _STRAIGHT else _OWN.get(target, own)
    return [Edit((span[0], span[0]), opening), Edit((span[1], span[1]), closing)]


def _linked_alone(quoted: Span, output: str, links: Sequence[Link]) -> Span | None:
    """The words of an output that are linked to a quotation, without punctuation at their ends;
    None if others are among them."""
    own = [link.target for link in links if quoted[0] <= link.source[0] < quoted[1]]
    if not own:
        return None
    begin, end = min(first for first, _ in own), max(last for _, last in own)
    among = sum(begin <= link.target[0] < end for link in links)
    words = _WORD.search(output, begin, end)
    return words.span() if words and among == len(own) else None
