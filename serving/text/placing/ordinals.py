"""English ordinals, whose ending follows from the number: models write `3th` for `3.`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from serving.text.edits import Edit
from serving.text.kept.figures import english_ordinal

_ORDINAL = re.compile(r"(?<!\w)([0-9]+)(?:st|nd|rd|th)(?!\w)")
_GROWING = re.compile(r"(?<!\w)[0-9]+[a-z]{0,2}\Z")


def ordinal_edits(source: str, output: str, language: str) -> Iterator[Edit]:
    """Edits that give each ordinal of an English translation its own ending; those that the source
    has stay."""
    for found in _ORDINAL.finditer(output) if language == "en" else ():
        ordinal = english_ordinal(found[1])
        if ordinal != found[0] and found[0] not in source:
            yield Edit(found.span(), ordinal)


def before_growing_number(output: str) -> str:
    """The beginning of a translation that still grows, without a number at its end, which may
    become an ordinal."""
    return _GROWING.sub("", output)
