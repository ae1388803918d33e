"""What the inflected forms of a word have in common, by Snowball's stemmers."""

from __future__ import annotations

import functools
import threading
import unicodedata
from typing import Any

_ALGORITHMS = {
    "ar": "arabic",
    "ca": "catalan",
    "cs": "czech",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "eo": "esperanto",
    "es": "spanish",
    "et": "estonian",
    "eu": "basque",
    "fi": "finnish",
    "fr": "french",
    "ga": "irish",
    "hi": "hindi",
    "hu": "hungarian",
    "hy": "armenian",
    "id": "indonesian",
    "it": "italian",
    "lt": "lithuanian",
    "nb": "norwegian",
    "ne": "nepali",
    "nl": "dutch",
    "no": "norwegian",
    "pl": "polish",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
}
_REMEMBERED = 100_000
"""Words whose stems are kept: most of any text are among the last of so many."""
_own = threading.local()


@functools.lru_cache(_REMEMBERED)
def stem(word: str, language: str) -> str:
    """What the forms of a word share, in small letters: `haus` of Haus, Häuser, HÄUSERN.

    In a language that no stemmer knows it is the word itself in small letters.
    """
    small = unicodedata.normalize("NFC", word).lower()
    algorithm = _ALGORITHMS.get(language.lower().partition("-")[0])
    if algorithm is None:
        return small.casefold()
    found: str = _stemmer(algorithm).stemWord(small)
    return found


def _stemmer(algorithm: str) -> Any:
    """The stemmer of this thread: while it works it holds its word."""
    stemmers = vars(_own)
    if algorithm not in stemmers:
        import snowballstemmer  # only here: most servers have no glossary, and it takes time

        stemmers[algorithm] = snowballstemmer.stemmer(algorithm)
    return stemmers[algorithm]
