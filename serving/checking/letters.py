"""Checks the letters of a translation: characters that cannot come from the source, and missing
names and words of other alphabets."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterator

from serving.text.alignment import Span

_LATIN = frozenset(
    "ca cs da de en es et eu fi fr ga gl hr hu id is it lt lv nl no pl pt ro sk sl sv tr".split()  # noqa: SIM905
)
"""Languages in Latin script."""
_OWN = {
    "de": "äöüß",
    "en": "",
    "es": "áéíóúüñ",
    "fr": "àâæçéèêëîïôœùûüÿ",
}
_STRANGE = re.compile(
    "[\ufffd\u2600-\u27bf\u0370-\u1dff\u2c00-\uabff\uac00-\uf8ff\U00010000-\U0010ffff]+"
)
"""Characters that may be out of place: pictures and non-Latin letters."""
_ACCENTED = re.compile(r"(?<![^\W\d_])[^\W\d_]*[\u00c0-\u024f\u1e00-\u1eff][^\W\d_]*")
_OTHER_WORD = re.compile(
    "[\u0370-\u1dff\u2c80-\ua6ff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002ffff]+"
)
_WORD = re.compile(r"[^\W\d_]+")
_SIMILAR = 0.5
"""Similarity from which a word counts as another form of a name."""
_FOLDED = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ı": "i", "ß": "ss", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th"}  # noqa: RUF001
)


def strange_letters(source: str, output: str, target_language: str | None) -> Iterator[Span]:
    """Spans of broken characters, and of pictures and letters of scripts that neither the source
    nor the target language has."""
    for match in _STRANGE.finditer(output):
        strange = set(match[0]).difference(source)
        if any(_out_of_place(character, source, target_language) for character in strange):
            yield match.span()


def lost_words(
    source: str,
    output: str,
    source_language: str | None,
    target_language: str | None,
    *,
    broken: bool = False,
) -> Iterator[Span]:
    """Words of the source that the output has in no form.

    Checks words in letters of neither language; if the output is `broken`, also words with an
    accent. A form without diacritics counts, and so does any similar word.
    """
    if target_language not in _LATIN or source_language not in _OWN:
        return
    for match in _OTHER_WORD.finditer(source):
        if match[0] not in output and not _is_greek_sign(match[0]):
            yield match.span()
    if target_language not in _OWN:
        return
    own = "" if broken else _OWN[source_language] + _OWN[target_language]
    for match in _ACCENTED.finditer(source):
        word = match[0]
        foreign = any(not (c.isascii() or c in own) for c in word.lower())
        if (
            foreign
            and word[0].isupper()
            and len(word) > 2
            and not (word in output or has_similar(word, output))
        ):
            yield match.span()


def _out_of_place(character: str, source: str, language: str | None) -> bool:
    category = unicodedata.category(character)
    if category in ("Co", "Cn") or character == "\ufffd":
        return True
    if category == "So":
        return "\u2600" <= character <= "\u27bf" or character >= "\U0001f000"
    if category[0] != "L" or language not in _LATIN:
        return False
    script = _script(character)
    return script not in ("LATIN", "GREEK", "MICRO", "MODIFIER") and not any(
        _script(other) == script for other in source if not other.isascii()
    )


def _script(character: str) -> str:
    return unicodedata.name(character, "").partition(" ")[0]


def _is_greek_sign(word: str) -> bool:
    """Whether it is a letter of a formula, which words may replace, or a Cyrillic letter that looks
    Latin."""
    return len(word) == 1 and _script(word) in ("GREEK", "CYRILLIC", "MODIFIER", "COMBINING")


def has_similar(word: str, output: str) -> bool:
    """Whether a text has a word that may be a form of this one: `Tomás` may be a form of `Tom`."""
    folded = fold(word)
    return any(
        other[:1] == folded[:1] and difflib.SequenceMatcher(None, folded, other).ratio() >= _SIMILAR
        for other in map(fold, _WORD.findall(output))
    )


def fold(word: str) -> str:
    """A word in small letters of ASCII, where it is Latin."""
    plain = unicodedata.normalize("NFD", word.lower().translate(_FOLDED))
    return "".join(c for c in plain if not unicodedata.combining(c))
