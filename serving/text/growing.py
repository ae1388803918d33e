"""Texts that grow while their sentences are translated."""

from __future__ import annotations

from collections.abc import Sequence

from serving.text.document import Document
from serving.text.placement import Translated

_END = "\0"
"""No text holds it."""


class GrowingTexts:
    """What is certain of the translations of some documents, whose sentences are numbered through.

    A document with markup grows all at once: where its markup goes is known at the end.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = documents
        self._places = [
            (index, place)
            for index, document in enumerate(documents)
            for place in range(len(document.sentences))
        ]
        self._texts = [[""] * len(document.sentences) for document in documents]
        self._ended = [0] * len(documents)
        """Sentences at the beginning that are done."""
        self._done: set[tuple[int, int]] = set()
        self._given = [""] * len(documents)

    def told(self, number: int, text: str) -> tuple[int, str] | None:
        """Note with what a sentence begins; returns its document's number and what is certain of
        it, if that has grown."""
        index, place = self._places[number]
        self._texts[index][place] = text
        return self._grown(index)

    def ended(self, number: int, text: str) -> tuple[int, str] | None:
        """Note a whole sentence, as `told` does."""
        index, place = self._places[number]
        self._done.add((index, place))
        while (index, self._ended[index]) in self._done:
            self._ended[index] += 1
        return self.told(number, text)

    def _grown(self, index: int) -> tuple[int, str] | None:
        document, texts, ended = self._documents[index], self._texts[index], self._ended[index]
        if document.needs_links:
            return None
        current = texts[ended] + _END if ended < len(texts) else ""
        parts = [*texts[:ended], current, *[""] * (len(texts) - ended - 1)][: len(texts)]
        text = document.render([Translated(part, ()) for part in parts]).text
        text = text.partition(_END)[0]
        if len(text) <= len(self._given[index]):
            return None
        self._given[index] = text
        return index, text
