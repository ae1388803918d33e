"""Quotation marks of a translation: no blank within them, and the comma behind direct speech where
the language has it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from serving.text.edits import Edit

_MARK = re.compile(r"(?<!\d)[\"„“”«»]|(?<=\d)[”“»]")
_SIGNS = ",.;:!?…-–—"


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
