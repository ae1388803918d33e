"""The languages that a text may be in, for every dialect with a route for detection."""

from __future__ import annotations

from serving.server.models.catalogue import Catalogue
from serving.text.detection import detect


def likely_languages(text: str, catalogue: Catalogue) -> list[tuple[str, float]]:
    """Languages with their probabilities, the likeliest first; empty for a text without letters.

    If none is likelier than all others together, only languages that models read are listed: for a
    word or two, the likeliest of fifty languages is often an irrelevant one.
    """
    found = detect(text)
    read = catalogue.source_languages
    known = [pair for pair in found if pair[0] in read]
    return found if not known or found[0][1] > 0.5 else known
