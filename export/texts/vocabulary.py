"""The vocabulary of an exported model, with which it reads and writes text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.bundle.tokenizer import TextTokenizer
from serving.search.beams.sentence import Sentence
from serving.search.ids import OWN_IDS, SpecialIds
from serving.search.options import SearchOptions


@dataclass(frozen=True)
class Vocabulary:
    """Tokenizers of source and target, and the special ids of both."""

    source: TextTokenizer
    target: TextTokenizer
    special_ids: SpecialIds = OWN_IDS
    source_end: bool = True
    """Whether eos ends each source."""

    @staticmethod
    def of(tokenizer: TextTokenizer) -> Vocabulary:
        """One tokenizer with the project's own ids, for both sides."""
        return Vocabulary(tokenizer, tokenizer)

    def sentence(
        self, ids: Sequence[int], options: SearchOptions, target_prefix: Sequence[int] = ()
    ) -> Sentence:
        """A source to decode, by its ids without their end."""
        special = self.special_ids
        source = [*ids, special.eos] if self.source_end else list(ids)
        return Sentence(source, options, target_prefix, start=special.bos, ends=(special.eos,))
