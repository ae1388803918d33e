"""A text that was divided into sentences, and how its translation is assembled from theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from serving.search.beams.sentence import Sentence
from serving.text.document import Document
from serving.text.glossary import TermIndex, terms_of
from serving.text.memory.segments import Draft, MemoryUse, draft_of
from serving.translation.glossing import with_terms
from serving.translation.results import Translation, join_translations


@dataclass(frozen=True)
class TextInSentences:
    """A text that was divided into sentences."""

    document: Document
    sentences: Sequence[Sentence | None]
    """The sentences to decode; None for one without pieces."""
    alignments: bool
    """Whether the hypotheses of the result have word links."""
    with_links: bool
    """Whether the sentences are decoded with word links, which also place markup and terms."""
    target: str
    """The language of the translation."""
    glossary: Sequence[TermIndex] = ()
    """Glossaries whose terms are put into the translation."""
    known: Mapping[int, str] = field(default_factory=dict)
    """Translations from a memory, by sentence number. These sentences are not decoded."""

    @property
    def waiting(self) -> dict[int, Sentence | None]:
        """The sentences to decode, by number."""
        return {n: each for n, each in enumerate(self.sentences) if n not in self.known}

    def joined(self, translations: Mapping[int, Translation]) -> Translation:
        """The text's translation, from those of the decoded sentences by number."""
        ordered = [
            Translation(self.known[n])
            if n in self.known
            else with_terms(
                translations[n], text, terms_of(self.glossary, self.document, n), self.target
            )
            for n, text in enumerate(self.document.sentences)
        ]
        return join_translations(self.document, ordered, alignments=self.alignments)


def taken(document: Document, memory: MemoryUse) -> tuple[dict[int, str], dict[int, Draft]]:
    """Translations from a memory for the sentences of a document, by number and in the form of a
    model's output; and the drafts with which other sentences may begin."""
    asked = [document.as_given(number) for number in range(len(document.sentences))]
    known, drafts = dict[int, str](), dict[int, Draft]()
    for number, found in enumerate(memory.find(asked, memory.threshold)):
        if found is None:
            continue
        if memory.as_prefix and found.score < 100:
            drafts[number] = draft_of(found, asked[number])
        elif text := document.take(number, found.text):
            known[number] = text
    return known, drafts
