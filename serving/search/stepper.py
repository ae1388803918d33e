"""The interface between the search and a model: one step of a batch, and care for its caches.

Shape letters: B sentences, R some of them, K beams, Q queries, P prefix tokens, S source ids, C
cache slots, W ancestors, V vocabulary, N candidates.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from serving.arrays import Bools, Floats, Int32s, Ints
from serving.search.prefix_tree import BoundTree, Repack

State: TypeAlias = Any
"""A stepper's own arrays for the sentences of a running batch, its caches among them. The search
keeps it between calls and hands it back; it never looks inside."""


class StepInputs(NamedTuple):
    """The inputs of one call of the step graph: a query for each beam, or one for each sentence."""

    token_ids_BQ: Ints
    positions_BQ: Ints
    write_index_B: Ints
    """The first cache slot that the queries of a sentence write to; each query takes one slot."""
    visible_BQC: Floats
    """0 where a query may see slot c, -inf elsewhere."""
    scores_BK: Floats
    """Cumulative log-probabilities; -inf for a dead beam."""
    slot_positions_BC: Ints
    """Positions of the tokens in the slots."""
    ancestors_BQW: Ints | None = None
    """The slots of each query's nearest ancestors, nearest first, -1 where there is none. None if
    the model does not look back at its ancestors (`Stepper.lookback`)."""


class StepOutputs(NamedTuple):
    """The best continuations of each sentence, best first; the next step may reuse the arrays."""

    scores_BN: Floats
    """Cumulative log-probabilities, which include the token's."""
    tokens_BN: Int32s
    parents_BN: Int32s
    """The beam that each token continues."""
    logits_BQV: Floats | None = None
    """None unless the call wanted them."""
    attention_RQS: Floats | None = None
    """Attention to the source, from one layer and averaged over its heads, for the sentences in
    `attention_rows`; None if there were none."""


class PrefillOutputs(NamedTuple):
    """A model's outputs for given tokens."""

    scores_BP: Floats
    """Log-probability of each token's label."""
    attention_BPS: Floats | None = None
    """Attention to the source, as in `StepOutputs`; None unless the call wanted it."""


class BeamArrays(NamedTuple):
    """The search's own arrays, which bound steps read and write: see `Rows` and `PrefixTree`."""

    tokens_BK: Ints
    positions_BK: Ints
    scores_BK: Floats
    queries_B: Ints
    steps_left_B: Ints
    running_B: Bools
    visible_BKC: Floats
    slot_positions_BC: Ints
    used_B: Ints
    next_B: Ints
    peak_B: Ints
    joined_B: Ints
    ancestors_BKW: Ints
    repack_every: int
    reach: int | None
    ends: Sequence[Collection[int]]
    """The ids that end a hypothesis of each row."""
    kept: tuple[Int32s, Int32s, Floats] | None = None
    """Arrays [..,B,K] to which native code writes the tokens, parents and scores of the beams, step
    after step."""


class BoundSteps(BoundTree, Protocol):
    """Steps of one batch without NumPy between them. Their results equal the search's own to the
    bit."""

    def is_current(self) -> bool:
        """Whether the steps may still be used, because the memory of the batch has not moved."""
        ...

    @property
    def found(self) -> tuple[Floats, Int32s, Int32s]:
        """Scores, tokens and parents of the candidates that the last run gave, [B,N]."""
        ...

    def run(self) -> None:
        """Give each query its slot (`PrefixTree.write`), and run the graph."""
        ...

    def go_on(self, place: int, most: int) -> tuple[int, bool]:
        """Run up to `most` steps, one after another for a short while, and continue after each with
        its best candidates as the next beams; record the beams from `place` on.

        Returns the number of steps that went on, and whether a last run's candidates wait in
        `found`, because something happens in a row: an id among the next beams ends a hypothesis, a
        score is not finite, or it is the last step."""
        ...

    def choose(self, place: int) -> list[int] | None:
        """Begin the step that waits: record the best candidates at `place` as the next beams, and
        return the rows in which something happens. None, without any change, if a candidate
        continues what is no beam."""
        ...

    def move(self, place: int) -> None:
        """Move the tree to the beams recorded at `place`; those with the score -inf are dead."""
        ...

    def grow(self, parents_BK: Int32s) -> None:
        """Move the tree to beams that descend from these queries (`PrefixTree.advance`)."""
        ...


class CacheCosts(Protocol):
    """The part of a model's caches that a batch takes, by which the size of a batch is chosen."""

    @property
    def repack_every(self) -> int:
        """Steps after which a sentence drops its dead cache slots."""
        ...

    @property
    def spare_slots(self) -> int:
        """Number of slots that caches are laid out with beyond those that are needed."""
        ...

    @property
    def most_states(self) -> int | None:
        """Rows x beams x source positions beyond which a batch gets no faster; None if every
        further row is a gain."""
        ...

    def cache_bytes(self, rows: int, source_length: int, slots: int) -> int:
        """Bytes that caches of this size take, including the spare copy that a repack writes."""
        ...


class Stepper(CacheCosts, Protocol):
    """A model with its caches, as the search sees it.

    Caches are never reordered: a step appends a slot for each query, and `repack` moves slots to
    the front.
    """

    @property
    def reach(self) -> int | None:
        """Number of positions that a query sees, its own included: it sees no slot this many or
        more positions before it. None if it sees all."""
        ...

    @property
    def lookback(self) -> int:
        """Number of nearest ancestors whose slots each query gets, W; 0 if it gets none."""
        ...

    @property
    def one_query_first(self) -> bool:
        """Whether a step may have one query per sentence, that of its first beam, while all its
        other beams are dead."""
        ...

    def encode(self, sources: Sequence[Sequence[int]]) -> State:
        """Start a new batch of these sources, each with eos at its end, with empty caches."""
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
        """Run each query and return the best continuations. `attention_rows` are the sentences for
        which the attention to the source is wanted."""
        ...

    def bind(self, state: State, beams: BeamArrays) -> BoundSteps | None:
        """Native steps of all beams on these arrays, valid as long as the arrays and the memory of
        the batch stay in place. None if the stepper has none."""
        ...

    def repack(self, state: State, repack: Repack) -> None:
        """Drop the rows and cache slots that are not to be kept."""
        ...

    def extend(self, state: State, other: State, rows: Ints) -> None:
        """Put another state's sentences into these idle rows, as far as there are enough, and the
        rest at the end. The other state must not be used afterwards."""
        ...

    def trim(self, state: State, source_length: int) -> None:
        """Cut longer sources to this length, which is that of the longest source still being
        decoded."""
        ...

    def free(self, state: State) -> None:
        """Give the state's memory back."""
        ...
