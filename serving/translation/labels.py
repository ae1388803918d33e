"""Labels that a model copies: they are decoded once more, with a small letter first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from serving.checking.letters import fold
from serving.checking.names import WORD
from serving.search.beams.sentence import Sentence


def with_small_letter(
    sentence: Sentence, text: str, ids: Sequence[int], *, alignments: bool
) -> Sentence:
    """The sentence of a label, which is streamed at its end, and is replaced if it is copied by the
    one with this text and these ids."""
    other = replace(
        sentence, source=ids, text=text if alignments else None, original=None, streamed=False
    )
    return replace(sentence, streamed=False, if_copied=other)


def is_copied(label: str, translation: str) -> bool:
    """Whether a translation has the first word of the label, if only with other diacritics."""
    first, *_ = WORD.findall(fold(label))
    return first in WORD.findall(fold(translation))
