"""Texts that grow while their sentences are translated."""

from __future__ import annotations

from collections.abc import Sequence

from serving.text.document import Document


class GrowingTexts:
    """What is certain of the translations of some documents, whose sentences are numbered through.

    A document with markup grows all at once: where its markup goes is known at the end.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self._texts = [_GrowingText(document) for document in documents]
        self._places = [
            (index, place)
            for index, document in enumerate(documents)
            for place in range(len(document.sentences))
        ]

    def told(self, number: int, text: str) -> tuple[int, str] | None:
        """Note with what a sentence begins; returns its document's number and what is certain of
        it, if that has grown."""
        return self._noted(number, text, ended=False)

    def ended(self, number: int, text: str) -> tuple[int, str] | None:
        """Note a whole sentence, as `told` does."""
        return self._noted(number, text, ended=True)

    def _noted(self, number: int, text: str, *, ended: bool) -> tuple[int, str] | None:
        index, place = self._places[number]
        grown = self._texts[index].note(place, text, ended=ended)
        return None if grown is None else (index, grown)


class _GrowingText:
    """One of them: every sentence up to `_current` is written, then what that one begins with."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._gaps = [] if document.needs_links else document.gaps()
        self._texts = [""] * len(document.sentences)
        self._ended = [False] * len(document.sentences)
        self._current = 0
        self._written = self._gaps[0] if self._gaps else ""
        self._given = 0

    def note(self, place: int, text: str, *, ended: bool) -> str | None:
        """Note with what a sentence begins; returns the text, if more of it is certain now."""
        self._texts[place] = self._document.written(place, text, ended=ended)
        self._ended[place] = ended
        if not self._gaps or place != self._current:
            return None  # with what stands before it
        while self._current < len(self._texts) and self._ended[self._current]:
            self._written += self._texts[self._current] + self._gaps[self._current + 1]
            self._current += 1
        rest = self._texts[self._current] if self._current < len(self._texts) else ""
        if len(self._written) + len(rest) <= self._given:
            return None
        self._given = len(self._written) + len(rest)
        return self._written + rest
