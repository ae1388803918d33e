"""Partial texts: the certain beginning of each text while its sentences are translated."""

from __future__ import annotations

from collections.abc import Sequence

from serving.text.alignment import Link
from serving.text.document import Document
from serving.text.placing.placement import Translated


class GrowingTexts:
    """The certain beginnings of the translations of several documents; sentences are numbered
    through.

    A document with markup is delivered as a whole: its markup is placed at the end.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self._texts = [_GrowingText(document) for document in documents]
        self._places = [
            (index, place)
            for index, document in enumerate(documents)
            for place in range(len(document.sentences))
        ]

    def update(self, number: int, text: str) -> tuple[int, str] | None:
        """Set the certain beginning of a sentence; returns the number of its document and the
        certain text, if that has grown."""
        return self._noted(number, Translated(text), ended=False)

    def ended(self, number: int, text: str, links: Sequence[Link] = ()) -> tuple[int, str] | None:
        """Set the final text of a sentence, with its word links if the document needs them; returns
        the same as `update`."""
        return self._noted(number, Translated(text, links), ended=True)

    def _noted(
        self, number: int, translation: Translated, *, ended: bool
    ) -> tuple[int, str] | None:
        index, place = self._places[number]
        grown = self._texts[index].note(place, translation, ended=ended)
        return None if grown is None else (index, grown)


class _GrowingText:
    """The certain beginning of one text: sentences before `_current` are final, followed by the
    beginning of that one."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._gaps = [] if document.has_markup else document.gaps()
        self._texts = [""] * len(document.sentences)
        self._ended = [False] * len(document.sentences)
        self._current = 0
        self._written = self._gaps[0] if self._gaps else ""
        self._given = 0

    def note(self, place: int, translation: Translated, *, ended: bool) -> str | None:
        """Set the beginning of a sentence; returns the text if more of it is certain now."""
        self._texts[place] = self._document.written(place, translation, ended=ended)
        self._ended[place] = ended
        if not self._gaps or place != self._current:
            return None  # until the sentences before it are final
        while self._current < len(self._texts) and self._ended[self._current]:
            self._written += self._texts[self._current] + self._gaps[self._current + 1]
            self._current += 1
        rest = self._texts[self._current] if self._current < len(self._texts) else ""
        if len(self._written) + len(rest) <= self._given:
            return None
        self._given = len(self._written) + len(rest)
        return self._written + rest
