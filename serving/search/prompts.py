"""What reading prompts and a step of a language model give.

Shape letters: B rows, P prompt tokens, T likeliest tokens, R queries with outputs, N candidates,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from serving.arrays import Floats, Int32s, Ints

CHUNK = 64
"""Prompt tokens given to the step graph at once."""


@dataclass(frozen=True)
class PromptScores:
    """Log-probabilities of what follows each prompt token."""

    labels_BP: Floats
    top_scores_BPT: Floats
    """Of the likeliest tokens, best first."""
    top_tokens_BPT: Int32s

    def of(self, row: int) -> PromptScores:
        """Those of one prompt."""
        rows = slice(row, row + 1)
        return PromptScores(
            self.labels_BP[rows], self.top_scores_BPT[rows], self.top_tokens_BPT[rows]
        )


@dataclass(frozen=True)
class Prompted:
    """Prompts of one number of chunks whose tokens are in the caches."""

    state: Any
    used_B: Ints
    """Slots that hold a prompt's last tokens."""
    first_position: int
    """Of the token in each row's first slot."""


class LanguageOutputs(NamedTuple):
    """The distribution after each row's token; the next step may reuse the arrays."""

    top_scores_BT: Floats
    """Log-probabilities of the likeliest tokens, best first."""
    top_tokens_BT: Int32s
    logits_BV: Floats


def chunks(prompt: Sequence[int]) -> int:
    """Runs of the step graph that a prompt takes."""
    return -(-len(prompt) // CHUNK)
