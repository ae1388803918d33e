"""What reading prompts and a step of a language model give.

Shape letters: B rows, P prompt tokens, T likeliest tokens, R queries with outputs, N candidates,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from serving.arrays import Floats, Int32s, Ints
from serving.search.stepper import State

CHUNK = 64
"""Prompt tokens given to the step graph at once."""


@dataclass(frozen=True)
class PromptScores:
    """How likely a model found the token after each token of some prompts."""

    labels_BP: Floats
    """Log-probability of the token that does follow."""
    top_scores_BPT: Floats
    """Log-probabilities of the likeliest tokens, best first."""
    top_tokens_BPT: Int32s

    def of(self, row: int) -> PromptScores:
        """The scores of one prompt, in arrays with one row."""
        rows = slice(row, row + 1)
        return PromptScores(
            self.labels_BP[rows], self.top_scores_BPT[rows], self.top_tokens_BPT[rows]
        )


@dataclass(frozen=True)
class Prompted:
    """Prompts that have been read: their tokens are in the caches of a new batch.

    All take the same number of chunks. Where a model cannot look back to the first tokens, only the
    last ones are there.
    """

    state: State
    capacity: int
    """Cache slots that each row has room for."""
    used_B: Ints
    """How many of them hold a prompt's last tokens."""
    first_position: int
    """Position of the token in the first slot of every row."""


class LanguageOutputs(NamedTuple):
    """The distribution after each row's token; the next step may reuse the arrays."""

    top_scores_BT: Floats
    """Log-probabilities of the likeliest tokens, best first."""
    top_tokens_BT: Int32s
    logits_BV: Floats

    def of(self, row: int) -> LanguageOutputs:
        """That of one row."""
        alone = slice(row, row + 1)
        return LanguageOutputs(
            self.top_scores_BT[alone], self.top_tokens_BT[alone], self.logits_BV[alone]
        )


def chunks(prompt: Sequence[int]) -> int:
    """Number of runs of the step graph that reading a prompt takes."""
    return -(-len(prompt) // CHUNK)
