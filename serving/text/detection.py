"""Language detection with py3langid, which includes its model."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

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
    """Load the model now rather than at the first text: it takes most of a second and 62 MiB."""
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
    return LanguageIdentifier(
        whole.nb_ptc,
        whole.nb_pc,
        whole.nb_classes,
        whole.tk_nextmove,
        whole.tk_output,
        norm_probs=True,
        tk_row=whole.tk_row,
    )
