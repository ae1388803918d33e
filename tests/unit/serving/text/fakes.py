"""Translators whose word links are known."""

from __future__ import annotations

from collections.abc import Callable

from serving.text.alignment import Link, word_spans
from serving.text.document import Document, Format
from serving.text.placing.placement import Translated

Translator = Callable[[str], Translated]


def same(sentence: str) -> Translated:
    """The sentence itself."""
    return Translated(sentence, tuple(Link(span, span, 1.0) for span in word_spans(sentence)))


def upper(sentence: str) -> Translated:
    """The same words in capitals."""
    return Translated(sentence.upper(), same(sentence).links)


def backwards(sentence: str) -> Translated:
    """The words in the other order, in capitals."""
    text, links = "", []
    for begin, end in reversed(word_spans(sentence)):
        text += " " if text else ""
        links.append(Link((begin, end), (len(text), len(text) + end - begin), 1.0))
        text += sentence[begin:end].upper()
    return Translated(text, tuple(links))


def unlinked(sentence: str) -> Translated:
    """Capitals without links."""
    return Translated(sentence.upper())


def losing(sentence: str) -> Translated:
    """Only the last word of the sentence."""
    *_, (begin, end) = word_spans(sentence)
    return Translated(sentence[begin:end].upper(), (Link((begin, end), (0, end - begin), 1.0),))


def doubling(sentence: str) -> Translated:
    """Every word twice."""
    return Translated(
        " ".join(sentence[b:e].upper() for b, e in word_spans(sentence) for _ in "12")
    )


TRANSLATORS = (upper, backwards, unlinked, losing, doubling)


def read(source: str, format: Format = "text", language: str = "de") -> Document:
    """A text with its sentences, of at most 200 characters."""
    document = Document(source, format)
    document.divide(language, lambda sentence: len(sentence) < 200)
    return document


def translated(
    source: str,
    translator: Translator = upper,
    format: Format = "text",
    language: str = "de",
) -> str:
    """A text whose sentences a fake translates."""
    document = read(source, format, language)
    return document.render([translator(sentence) for sentence in document.sentences]).text
