"""Checks that surnames after a title stand in a translation: many are words, and models translate
these (`Frau Schneider`, `Herr Koch`)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from serving.checking.letters import fold
from serving.text.alignment import Span
from serving.text.languages import base_language
from serving.text.offices import may_be_office

TITLE = re.compile(
    r"\b(?:Frau|Herr|M[rs]|Mrs|Miss|Mme|Mlle|M\.|Sra?\.|[Ss]eñor|[Mm]onsieur|[Mm]adame|[Mm]ademois)"
)
"""The beginning of a title, which few sentences have."""
_WORD = re.compile(r"[^\W\d_]+")
_NAME = r"(?:[OD]['’])?(?P<name>[^\W\d_]{2,})(?![\w-]|['’][^\W\ds])"
"""A surname of one word: of double names models write one half right, which would come twice."""
_TITLED = {
    "de": re.compile(rf"\b(?P<title>Frau|Herrn?) (?:(?:Dr|Prof)\. )*{_NAME}(?!(?<=s) [A-ZÄÖÜ])"),
    "en": re.compile(rf"\b(?P<title>Mrs?|Ms|Miss)\b\.? {_NAME}"),
    "es": re.compile(rf"\b(?P<title>[Ss]eñora?|[Ss]eñorita|Sra?\.) {_NAME}"),
    "fr": re.compile(rf"\b(?P<title>[Mm]onsieur|[Mm]adame|[Mm]ademoiselle|M\.|Mme|Mlle) {_NAME}"),
}
"""Names after a title, by language, without German genitives before a noun. Only between these
languages are names looked for."""
_NO_TITLE = re.compile(
    r"\b(?:der|die|den|dem|des|eine[mnrs]?|keine[mnrs]?|(?:[mds]ein|ihr|unse?r|eu(?:er|re))e?[mnrs]?|"
    r"jede[rn]?|diese[mnr]?|welche[mnr]?) \Z",
    re.IGNORECASE,
)
"""Words before `Frau` and `Herr` where these are no titles: `seine Frau Maria`."""
_TRANSCRIBED = re.compile(r".*(?:[eo]wa?|ina?|[iy]j?|tsch|sky)")
"""Names that each language writes in its own way: `Jelzin`, `Gorbatschow`."""
_SIMILAR = 0.55
"""Similarity from which a word is taken for such a name in another spelling."""
_SPELT_OUT = re.compile("([aou])e")


def surnames(text: str, source_language: str | None, target_language: str | None) -> Iterator[Span]:
    """The spans of the surnames of a text that follow a title."""
    titled = _TITLED.get(base_language(source_language or ""))
    if titled is None or base_language(target_language or "") not in _TITLED:
        return
    for found in titled.finditer(text):
        name = found["name"]
        if not name[0].isupper() or name.isupper() or may_be_office(name):
            continue
        if found["title"][0] not in "FH" or not _NO_TITLE.search(text, 0, found.start()):
            yield found.span("name")


def lost_surnames(
    source: str, output: str, source_language: str | None, target_language: str | None
) -> Iterator[Span]:
    """The surnames of a source that are missing in the output in any form or spelling."""
    for span in surnames(source, source_language, target_language):
        name = source[slice(*span)]
        if name not in output and not any(_is_form(name, word) for word in _WORD.findall(output)):
            yield span


def _is_form(name: str, word: str) -> bool:
    """Whether a word is a surname, inflected or in another spelling: `Müllers`, `Mueller`."""
    if not word[0].isupper():
        return False
    ours, theirs = _spelling(name), _spelling(word)
    if ours.removesuffix("s") == theirs.removesuffix("s"):
        return True
    similar = difflib.SequenceMatcher(None, ours, theirs).ratio() >= _SIMILAR
    return similar and _TRANSCRIBED.fullmatch(name) is not None


def _spelling(word: str) -> str:
    return _SPELT_OUT.sub(r"\1", fold(word))
