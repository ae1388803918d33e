"""Sentences on which a translation model is compared, and the ids that name their languages."""

from __future__ import annotations

from dataclasses import dataclass

from export.texts.vocabulary import Vocabulary
from serving.search.beams.sentence import Sentence
from serving.search.options import SearchOptions

Direction = tuple[str | None, str | None]
"""Languages of a source and its reference; None leaves them to the model."""


@dataclass(frozen=True)
class DevSet:
    """Text on which a bundle is compared; never the text whose scores are reported."""

    sources: list[str]
    references: list[str] | None
    """The references; if None, the checkpoint's outputs replace them, and BLEU measures how much a
    bundle agrees with it."""
    languages: list[Direction] | None = None
    """Languages of the source and the reference of each pair, if known."""
    prefixes: list[list[int]] | None = None
    """The ids before each source, if the model needs a language there."""
    target_prefixes: list[list[int]] | None = None
    """The ids with which each output begins, if these name a language."""

    def sentences(self, vocabulary: Vocabulary, options: SearchOptions) -> list[Sentence]:
        """Each source as a model reads it."""
        none: list[list[int]] = [[]] * len(self.sources)
        encoded = vocabulary.source.encode_batch(self.sources)
        rows = zip(encoded, self.prefixes or none, self.target_prefixes or none, strict=True)
        return [vocabulary.sentence([*prefix, *ids], options, first) for ids, prefix, first in rows]
