"""Language detection with py3langid, which includes its model."""

from __future__ import annotations

import functools
import threading
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from serving.resident import give_back
from serving.text.languages import LANGUAGE_NAMES

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

MAX_CHARS = 2000
"""Number of characters used for detection; more would take time and change nothing."""

_LOADING = threading.Lock()
"""Held while the model is loaded: a text that arrives meanwhile waits, and does not load
another."""


def detect(text: str) -> list[tuple[str, float]]:
    """Languages of `serving.text.languages` with their probabilities, likeliest first.

    Empty for a text without letters. A word or two are not enough to be sure, and the
    probabilities say so.
    """
    part = text[:MAX_CHARS]
    if not any(map(str.isalpha, part)):
        return []
    return [(str(code), float(probability)) for code, probability in _identifier().rank(part)]


def detect_among(text: str, sources: Sequence[str], target: str) -> tuple[str, float]:
    """The likeliest of the languages `sources`, or `target` if that is likelier than all of them
    together; with its probability among all languages that `detect` knows.

    If a text is in none of these languages, the result is the likeliest of them, with a probability
    near 0.
    """
    probabilities = dict(detect(text))
    if probabilities.get(target, 0.0) > 0.5:
        return target, probabilities[target]
    best = max(sources, key=lambda code: probabilities.get(code, 0.0))
    return best, probabilities.get(best, 0.0)


def load_detector() -> None:
    """Load the model now rather than at the first text: it takes about a second and 27 MiB."""
    _identifier()


def _identifier() -> LanguageIdentifier:
    with _LOADING:
        return _loaded()


@functools.cache
def _loaded() -> LanguageIdentifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    whole = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    whole.set_languages(set(LANGUAGE_NAMES) & set(whole.labels))
    # A restricted identifier keeps 20 MB for the other languages; one built from the rest does not.
    loaded = LanguageIdentifier(
        whole.nb_ptc,
        whole.nb_pc,
        whole.nb_classes,
        SharedPieces(whole.tk_nextmove),
        whole.tk_output,
        norm_probs=True,
        tk_row=whole.tk_row,
    )
    del whole
    give_back()  # 33 MiB, which nobody who waits for the model should see in use
    return loaded


class SharedPieces:
    """A table of numbers without a sign that keeps equal pieces of sixteen numbers once.

    py3langid's automaton looks up each next state in a table of ten million. Most bytes lead to few
    states, so the pieces of the table repeat: it takes 6 MiB in place of 37.
    """

    __slots__ = ("_begins", "_numbers")

    def __init__(self, table: array[int]) -> None:
        size = 16 * table.itemsize
        data = memoryview(table).cast("B")
        known: dict[bytes, int] = {}  # the first number of each piece
        pieces = (bytes(data[at : at + size]) for at in range(0, len(data), size))
        self._begins = array("I", (known.setdefault(piece, 16 * len(known)) for piece in pieces))
        self._numbers = array(table.typecode, b"".join(known))

    def __getitem__(self, index: int) -> int:
        # Called for each byte of a text, so it is kept to one expression.
        return self._numbers[self._begins[index >> 4] + (index & 15)]
