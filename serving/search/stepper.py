"""What the search asks of a model: one step of a batch, and care for its caches.

Shape letters: B sentences, R some of them, K beams, Q queries, P prefix tokens, S source ids,
C cache slots, V vocabulary, N candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from serving.arrays import Floats, Ints
from serving.search.prefix_tree import Repack


class StepInputs(NamedTuple):
    """One call of the step graph: a query for each beam, or one for each sentence."""

    token_ids_BQ: Ints
    positions_BQ: Ints
    write_index_B: Ints
    visible_BQC: Floats
    """0 where a query may see slot c, -inf elsewhere."""
    scores_BK: Floats
    """Cumulative log-probabilities; -inf for a dead beam."""
    slot_positions_BC: Ints
    """Positions of the tokens in the slots."""


@dataclass(frozen=True)
class StepOutputs:
    """The best continuations of each sentence, best first; the next step may reuse the arrays."""

    scores_BN: Floats
    tokens_BN: NDArray[np.int32]
    parents_BN: NDArray[np.int32]
    logits_BQV: Floats | None = None
    attention_RQS: Floats | None = None
    """Source attention of one layer, mean over heads, for the sentences that were asked for."""


class PrefillOutputs(NamedTuple):
    """What came of tokens that were given."""

    scores_BP: Floats
    """Log-probability of each label."""
    attention_BPS: Floats | None = None
    """Source attention, as in `StepOutputs`."""


class Sizes(Protocol):
    """What sentences take of a model's caches.

    `cache_bytes` is what caches of that size take, the spare copy of a repack included. With
    `most_states` rows x beams x source positions a larger batch is no faster.
    """

    @property
    def repack_every(self) -> int: ...

    @property
    def most_states(self) -> int | None: ...

    def cache_bytes(self, rows: int, source_length: int, slots: int) -> int: ...


class Stepper(Sizes, Protocol):
    """A model with its caches; the state is its own business.

    `encode` takes sources that end with eos. `prefill` fills the caches with right-padded tokens
    and tells of the labels, which are the next tokens. `repack` drops rows and cache slots.
    `extend` puts another state's sentences into idle rows, as far as these go, and the rest behind
    all. `trim` tells how long the longest source is that still matters. Nothing is ever reordered.
    A query sees no slot `reach` positions or more before it; None is all. With `one_query_first` a
    step may have one query a sentence, its first beam's, while all its other beams are dead.
    """

    @property
    def reach(self) -> int | None: ...

    @property
    def one_query_first(self) -> bool: ...

    def encode(self, sources: Sequence[Sequence[int]]) -> Any: ...

    def prefill(
        self, state: Any, token_ids_BP: Ints, labels_BP: Ints, *, want_attention: bool = False
    ) -> PrefillOutputs: ...

    def step(
        self,
        state: Any,
        inputs: StepInputs,
        *,
        want_logits: bool,
        attention_rows: Sequence[int] = (),
    ) -> StepOutputs: ...

    def repack(self, state: Any, repack: Repack) -> None: ...

    def extend(self, state: Any, other: Any, rows: Ints) -> None: ...

    def trim(self, state: Any, source_length: int) -> None: ...

    def free(self, state: Any) -> None: ...
