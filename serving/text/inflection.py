"""Stems of words, by Snowball's stemmers."""

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
"""Number of words whose stems are cached."""
_SAME_SIGNS = str.maketrans({"\u2019": "'", "\u2010": "-", "\u2011": "-"})
_own = threading.local()


def plain(text: str) -> str:
    """A text in which letters and signs that look the same are the same: accents (NFC), apostrophes
    and hyphens."""
    return unicodedata.normalize("NFC", text).translate(_SAME_SIGNS)


@functools.lru_cache(_REMEMBERED)
def stem(word: str, language: str) -> str:
    """The stem of a word, in small letters: `haus` for Haus, Häuser, HÄUSERN.

    For a language without a stemmer it is the word itself in small letters.
    """
    small = plain(word).lower()
    algorithm = _ALGORITHMS.get(language.lower().partition("-")[0])
    if algorithm is None:
        return small.casefold()
    found: str = _stemmer(algorithm).stemWord(small)
    return found


def _stemmer(algorithm: str) -> Any:
    """The stemmer of this thread; a stemmer has state and cannot be shared."""
    stemmers = vars(_own)
    if algorithm not in stemmers:
        import snowballstemmer  # here: slow to import, and few servers have a glossary

        stemmers[algorithm] = snowballstemmer.stemmer(algorithm)
    return stemmers[algorithm]
