"""The sign `&` between words, which models read as the word for it in their language."""

from __future__ import annotations

import re
from dataclasses import dataclass

from serving.text.alignment import Span
from serving.text.symbols import BLANKS

_AND = {"de": ("und",), "en": ("and",), "es": ("y", "e"), "fr": ("et",)}
"""Words for `&` by language, the usual one first. Only languages for which they were measured are
listed (docs/background/decisions.md)."""
SIGN = re.compile(rf"&(?:amp;)?[{BLANKS}]")
"""Pattern without which a text has no `&` that is read as a word."""
_BEFORE = re.compile(rf"[^\W\d_]{{2}}[{BLANKS}]\Z")
_BEHIND = re.compile(rf"&(?:amp;)?[{BLANKS}](?:<[A-Za-z][^<>]*>|[*_]{{1,3}})*(?:[^\W\d_]{{2}}|I\b)")


@dataclass(frozen=True)
class Conjunction:
    """The words for `&` in a sentence and its translation."""

    word: str
    """The word that models read in place of `&`."""
    found_as: frozenset[str]
    """Words for `&` in a translation, in small letters, including the word that is read, which may
    stay."""


def conjunction(source: str, target: str) -> Conjunction | None:
    """The words for `&` in translations between these languages; None if `&` is left out
    instead."""
    read, written = _AND.get(_base(source)), _AND.get(_base(target))
    return Conjunction(read[0], frozenset((*written, read[0]))) if read and written else None


def _base(language: str) -> str:
    return language.lower().replace("_", "-").split("-")[0]


def joins_words(before: str, source: str, span: Span) -> bool:
    """Whether a span of the source is `&` with a blank and a word on either side, unlike that in
    `AT&T` or `R & D`. `before` is the text before it; tags may stand around the words."""
    behind = _BEHIND.match(source, span[0])
    return (
        behind is not None
        and source[slice(*span)] in ("&", "&amp;")
        and _BEFORE.search(before) is not None
    )
