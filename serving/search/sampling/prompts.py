"""The results of reading prompts and of a step of a language model.

Shape letters: B rows, P prompt tokens, T likeliest tokens, R queries with outputs, N candidates, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from serving.arrays import Floats, Int32s, Ints
from serving.search.stepper import State

CHUNK = 64
"""Prompt tokens per run of the step graph."""


@dataclass(frozen=True)
class PromptScores:
    """Scores of the token that follows each token of some prompts, under a language model."""

    labels_BP: Floats
    """Log-probability of the token that actually follows."""
    top_scores_BPT: Floats
    """Log-probabilities of the likeliest tokens, best first."""
    top_tokens_BPT: Int32s

    def of(self, row: int) -> PromptScores:
        """The scores of one prompt, as arrays with one row."""
        rows = slice(row, row + 1)
        return PromptScores(
            self.labels_BP[rows], self.top_scores_BPT[rows], self.top_tokens_BPT[rows]
        )


@dataclass(frozen=True)
class Prompted:
    """Prompts that have been read. Their tokens are in the caches of a new batch.

    All prompts take the same number of chunks. If a model cannot look back to the first tokens,
    only the last ones are kept.
    """

    state: State
    capacity: int
    """Number of cache slots per row."""
    used_B: Ints
    """Number of slots per row that hold the prompt's last tokens."""
    first_position: int
    """Position of the token in the first slot of every row."""


class LanguageOutputs(NamedTuple):
    """The distribution after each row's token. The next step may reuse the arrays."""

    top_scores_BT: Floats
    """Log-probabilities of the likeliest tokens, best first."""
    top_tokens_BT: Int32s
    logits_BV: Floats

    def of(self, row: int) -> LanguageOutputs:
        """The distribution of one row."""
        alone = slice(row, row + 1)
        return LanguageOutputs(
            self.top_scores_BT[alone], self.top_tokens_BT[alone], self.logits_BV[alone]
        )


def chunks(prompt: Sequence[int]) -> int:
    """Number of runs of the step graph that a prompt takes."""
    return -(-len(prompt) // CHUNK)
