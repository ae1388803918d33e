"""A text that has been read: its sentences, and how its translation is put together of theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from serving.search.beams.sentence import Sentence
from serving.text.document import Document
from serving.text.glossary import TermIndex, matched_terms
from serving.text.memory.segments import Draft, MemoryUse, draft_of
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
    known: Mapping[int, str] = field(default_factory=dict)
    """What a memory has for sentences, by their numbers; those are not decoded."""

    @property
    def waiting(self) -> dict[int, Sentence | None]:
        """The sentences that are to be decoded, by number."""
        return {n: each for n, each in enumerate(self.sentences) if n not in self.known}

    def joined(self, translations: Mapping[int, Translation]) -> Translation:
        """The text's translation from those of the sentences that were waiting, by number."""
        ordered = [
            Translation(self.known[n])
            if n in self.known
            else with_terms(translations[n], text, matched_terms(self.glossary, text), self.target)
            for n, text in enumerate(self.document.sentences)
        ]
        return join_translations(self.document, ordered, alignments=self.alignments)


def taken(document: Document, memory: MemoryUse) -> tuple[dict[int, str], dict[int, Draft]]:
    """What a memory has for the sentences of a document, by number, as a model would write it, and
    what others may begin with."""
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
