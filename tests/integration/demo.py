"""The shipped translators and some sentences for them."""

from __future__ import annotations

from pathlib import Path

from serving.translation.results import Translation
from serving.translation.ticket import Request
from serving.translation.translator import Translator, Wishes

MODELS = Path(__file__).resolve().parents[2] / "models"
TEXTS = [
    "Das Haus ist sehr alt.",
    "Ich habe heute keine Zeit.",
    "Tom hat seinen Schlüssel verloren.",
    "Wo ist der Hafen?",
    "Die Kinder spielen im Garten, und der Hund schläft unter dem Tisch.",
]


def alone(translator: Translator, request: Request) -> Translation:
    """What becomes of a request without company."""
    (translation,) = translator.translate_sentences(
        request.text,
        request.options,
        wishes=Wishes(
            target_prefix=request.target_prefix,
            alignments=request.alignments,
            terms=request.terms,
        ),
    )
    return translation
