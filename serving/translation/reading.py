"""A text that has been read: its sentences, and how its translation is put together of theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serving.search.sentence import Sentence
from serving.text.document import Document
from serving.text.glossary import TermIndex, matched_terms
from serving.translation.glossing import with_terms
from serving.translation.results import Translation, join_translations


@dataclass(frozen=True)
class TextInSentences:
    """A text that has been read."""

    document: Document
    sentences: Sequence[Sentence | None]
    """What is to be decoded; None where the model has no pieces."""
    alignments: bool
    """Whether hypotheses keep their word links."""
    with_links: bool
    """Whether the sentences' translations get word links, be it for the places of markup and terms
    alone."""
    target: str
    """The language of the translation."""
    glossary: Sequence[TermIndex] = ()
    """Glossaries whose terms are put into the translation."""

    def joined(self, translations: Mapping[int, Translation]) -> Translation:
        """The text's translation from those of its sentences, by number."""
        ordered = [
            with_terms(translations[n], text, matched_terms(self.glossary, text), self.target)
            for n, text in enumerate(self.document.sentences)
        ]
        return join_translations(self.document, ordered, alignments=self.alignments)
