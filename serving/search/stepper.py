"""What the search asks of a model: one step of a batch, and care for its caches.

Shape letters: B sentences, R some of them, K beams, Q queries, P prefix tokens, S source ids,
C cache slots, W ancestors, V vocabulary, N candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from serving.arrays import Floats, Int32s, Ints
from serving.search.prefix_tree import Repack

State: TypeAlias = Any
"""A stepper's own arrays for the sentences of a running batch, its caches among them. The search
keeps it between calls and hands it back; it never looks inside."""


class StepInputs(NamedTuple):
    """One call of the step graph: a query for each beam, or one for each sentence."""

    token_ids_BQ: Ints
    positions_BQ: Ints
    write_index_B: Ints
    """The first of the cache slots that the queries of a sentence write, one each."""
    visible_BQC: Floats
    """0 where a query may see slot c, -inf elsewhere."""
    scores_BK: Floats
    """Cumulative log-probabilities; -inf for a dead beam."""
    slot_positions_BC: Ints
    """Positions of the tokens in the slots."""
    ancestors_BQW: Ints | None = None
    """The slots of each query's nearest ancestors, nearest first, -1 where there is none; None
    where the model does not look back so (`Stepper.lookback`)."""


class StepOutputs(NamedTuple):
    """The best continuations of each sentence, best first; the next step may reuse the arrays."""

    scores_BN: Floats
    """Cumulative log-probabilities, of the token too."""
    tokens_BN: Int32s
    parents_BN: Int32s
    """The beam that each token continues."""
    logits_BQV: Floats | None = None
    """None unless the call wanted them."""
    attention_RQS: Floats | None = None
    """Attention to the source, of one layer and the mean over its heads, for the sentences that
    were asked for; None if there were none."""


class PrefillOutputs(NamedTuple):
    """What a model says of tokens that it was given."""

    scores_BP: Floats
    """Log-probability of each token's label."""
    attention_BPS: Floats | None = None
    """Attention to the source, as in `StepOutputs`; None unless the call wanted it."""


class CacheCosts(Protocol):
    """What a batch takes of a model's caches, by which batches are filled."""

    @property
    def repack_every(self) -> int:
        """Steps after which a sentence drops its dead cache slots."""
        ...

    @property
    def most_states(self) -> int | None:
        """A bound on rows x beams x source positions beyond which a batch is no faster; None where
        every further row is a gain."""
        ...

    def cache_bytes(self, rows: int, source_length: int, slots: int) -> int:
        """Bytes that caches of that size take, the spare copy that a repack writes included."""
        ...


class Stepper(CacheCosts, Protocol):
    """A model with its caches, as the search sees it.

    Caches are never reordered: a step appends a slot for each query, and `repack` moves slots to
    the front.
    """

    @property
    def reach(self) -> int | None:
        """A query sees no slot so many positions or more before it; None where it sees all."""
        ...

    @property
    def lookback(self) -> int:
        """How many slots of its nearest ancestors each query is given (W); 0 where none."""
        ...

    @property
    def one_query_first(self) -> bool:
        """Whether a step may have one query a sentence, its first beam's, while all its other beams
        are dead."""
        ...

    def encode(self, sources: Sequence[Sequence[int]]) -> State:
        """A new batch of these sources, each with eos at its end, with empty caches."""
        ...

    def prefill(
        self, state: State, token_ids_BP: Ints, labels_BP: Ints, *, want_attention: bool = False
    ) -> PrefillOutputs:
        """Fill the empty caches with tokens, padded on the right, and score their labels, which are
        the tokens after them."""
        ...

    def step(
        self,
        state: State,
        inputs: StepInputs,
        *,
        want_logits: bool,
        attention_rows: Sequence[int] = (),
    ) -> StepOutputs:
        """Run each query and return the best continuations; `attention_rows` are the sentences
        whose attention to the source is wanted."""
        ...

    def repack(self, state: State, repack: Repack) -> None:
        """Drop the rows and cache slots that are not to be kept."""
        ...

    def extend(self, state: State, other: State, rows: Ints) -> None:
        """Put another state's sentences into these idle rows, as far as the rows go, and the rest
        behind all; the other state is not used afterwards."""
        ...

    def trim(self, state: State, source_length: int) -> None:
        """The longest source that still matters has so many ids; longer ones may be cut."""
        ...

    def free(self, state: State) -> None:
        """Give the state's memory back."""
        ...
