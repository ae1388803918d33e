"""A model of pseudo-random numbers behind the `Stepper` protocol.

Its next-token scores depend on the source and on every token and position that the query sees in
the cache, so a wrong mask, write index, position or repack changes the output.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from serving.arrays import Floats, Ints
from serving.search.ids import EOS_ID
from serving.search.prefix_tree import Repack
from serving.search.stepper import BeamArrays, PrefillOutputs, StepInputs, StepOutputs

Slots = tuple[tuple[int, int], ...]
"""(position, token) of all that a query sees, bos first."""

STALE = -7
"""What new cache slots hold; a query that sees one gets other scores."""


@dataclass
class FakeModel:
    """Logits and attention as a function of the source and the slots seen."""

    vocab_size: int = 12
    seed: int = 0
    scale: float = 2.0
    eos_bias: float = 0.0
    forbidden: tuple[int, ...] = ()
    broken: Callable[[tuple[int, ...], Slots], bool] = lambda source, slots: False
    memo: dict[tuple[tuple[int, ...], Slots], Floats] = field(default_factory=dict)

    def logits(self, source: tuple[int, ...], slots: Slots) -> Floats:
        """The logits [V] after these slots."""
        key = (source, slots)
        if key not in self.memo:
            logits = self._random(key).normal(size=self.vocab_size) * self.scale
            logits[EOS_ID] += self.eos_bias
            logits[list(self.forbidden)] = -np.inf
            if self.broken(source, slots):
                logits[:] = np.nan
            self.memo[key] = logits.astype(np.float32)
        return self.memo[key]

    def log_probs(self, source: tuple[int, ...], slots: Slots) -> Floats:
        """Their log-softmax [V]."""
        return log_softmax(self.logits(source, slots))

    def attention(self, source: tuple[int, ...], slots: Slots) -> Floats:
        """The attention [S] to the source after these slots; it sums to 1."""
        weights = np.exp(self._random((slots, source)).normal(size=len(source)))
        return (weights / weights.sum()).astype(np.float32)

    def _random(self, key: object) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(repr(key).encode())])


def log_softmax(logits: Floats) -> Floats:
    """The log-probabilities [V] of logits [V]."""
    return logits - np.log(np.exp(logits).sum())


@dataclass
class FakeState:
    """Sources, and the position and token of each cache slot."""

    sources: list[tuple[int, ...]]
    cache_BC2: Ints
    freed: bool = False

    def resize(self, capacity: int) -> None:
        """Grow or shrink to that many slots."""
        if capacity == self.cache_BC2.shape[1]:
            return
        missing = max(capacity - self.cache_BC2.shape[1], 0)
        padding = ((0, 0), (0, missing), (0, 0))
        self.cache_BC2 = np.pad(self.cache_BC2, padding, constant_values=STALE)[:, :capacity]

    def write(self, index_B: Ints, positions: Ints, tokens: Ints) -> None:
        """Write one slot a query; a write past the end is an error, as in ONNX Runtime."""
        assert (index_B + tokens.shape[1] <= self.cache_BC2.shape[1]).all()
        for row, index in enumerate(index_B):
            slots = slice(index, index + tokens.shape[1])
            self.cache_BC2[row, slots] = np.stack([positions[row], tokens[row]], axis=1)

    def seen(self, row: int, visible_C: Floats) -> Slots:
        """Position and token of each visible slot, by position."""
        slots = self.cache_BC2[row, visible_C == 0].tolist()
        return tuple(sorted((position, token) for position, token in slots))


class FakeStepper:
    """Runs a `FakeModel`; `states` holds the state of every batch begun, `calls` counts steps."""

    reach, lookback, spare_slots = None, 3, 0

    def __init__(
        self,
        model: FakeModel,
        repack_every: int = 8,
        most_states: int | None = None,
        *,
        one_query_first: bool = True,
    ) -> None:
        self.model, self.repack_every, self.most_states = model, repack_every, most_states
        self.one_query_first = one_query_first
        self.states: list[FakeState] = []
        self.calls = 0

    def cache_bytes(self, rows: int, source_length: int, slots: int) -> int:
        """As if a slot took a byte for each source position."""
        return rows * source_length * slots

    def encode(self, sources: Sequence[Sequence[int]]) -> FakeState:
        """An empty cache for each source."""
        cache = np.full((len(sources), 0, 2), STALE)
        self.states.append(FakeState([tuple(source) for source in sources], cache))
        return self.states[-1]

    def prefill(
        self,
        state: FakeState,
        token_ids_BP: Ints,
        labels_BP: Ints,
        *,
        want_attention: bool = False,
    ) -> PrefillOutputs:
        """Write the tokens into the caches and score their labels."""
        rows, length = token_ids_BP.shape
        state.resize(length)
        positions = np.tile(np.arange(length), (rows, 1))
        state.write(np.zeros(rows, dtype=np.int64), positions, token_ids_BP)
        scores = np.zeros((rows, length), dtype=np.float32)
        attention = np.zeros((rows, length, max(map(len, state.sources))), dtype=np.float32)
        for row, source in enumerate(state.sources):
            for p in range(length):
                slots = tuple((q, int(token_ids_BP[row, q])) for q in range(p + 1))
                scores[row, p] = self.model.log_probs(source, slots)[labels_BP[row, p]]
                if want_attention:
                    attention[row, p, : len(source)] = self.model.attention(source, slots)
        return PrefillOutputs(scores, attention if want_attention else None)

    def step(
        self,
        state: FakeState,
        inputs: StepInputs,
        *,
        want_logits: bool,
        attention_rows: Sequence[int] = (),
    ) -> StepOutputs:
        """The 2K best continuations; every score of a dead beam is -inf.

        A beam without a query must be dead.
        """
        assert not state.freed
        self.calls += 1
        assert (inputs.token_ids_BQ < self.model.vocab_size).all()  # as an embedding wants it
        rows, queries = inputs.token_ids_BQ.shape
        beams = inputs.scores_BK.shape[1]
        assert queries == beams or (queries == 1 and self.one_query_first)
        state.resize(inputs.visible_BQC.shape[2])
        state.write(inputs.write_index_B, inputs.positions_BQ, inputs.token_ids_BQ)
        logits = np.zeros((rows, queries, self.model.vocab_size), dtype=np.float32)
        attention = np.zeros((rows, queries, max(map(len, state.sources))), dtype=np.float32)
        totals = np.full((rows, beams, self.model.vocab_size), -np.inf, dtype=np.float32)
        for row, source in enumerate(state.sources):
            for beam in np.flatnonzero(inputs.scores_BK[row] > -np.inf):
                slots = state.seen(row, inputs.visible_BQC[row, beam])
                self._check_ancestors(state, inputs, row, int(beam), slots)
                logits[row, beam] = found = self.model.logits(source, slots)
                totals[row, beam] = log_softmax(found) + inputs.scores_BK[row, beam]
                if row in attention_rows:
                    attention[row, beam, : len(source)] = self.model.attention(source, slots)
        flat = totals.reshape(rows, -1)
        highest_first = np.where(np.isnan(flat), -np.inf, -flat)  # NaN counts as the highest
        order = np.argsort(highest_first, axis=1, kind="stable")[:, : 2 * beams]
        # As in the exported graph, the token of an impossible candidate may be anything.
        possible = np.take_along_axis(flat, order, axis=1) != -np.inf
        tokens = np.where(possible, order % self.model.vocab_size, 10**6)
        return StepOutputs(
            np.take_along_axis(flat, order, axis=1),
            tokens.astype(np.int32),
            (order // self.model.vocab_size).astype(np.int32),
            logits if want_logits else None,
            attention[list(attention_rows)] if attention_rows else None,
        )

    def _check_ancestors(
        self, state: FakeState, inputs: StepInputs, row: int, beam: int, slots: Slots
    ) -> None:
        """A query is told where those are of what it sees that came just before it."""
        assert inputs.ancestors_BQW is not None
        told = inputs.ancestors_BQW[row, beam].tolist()
        found = [tuple(state.cache_BC2[row, slot].tolist()) for slot in told if slot >= 0]
        assert found == list(slots[-2 : -2 - self.lookback : -1])
        assert told[len(found) :] == [-1] * (self.lookback - len(found))

    def bind(self, state: FakeState, beams: BeamArrays) -> None:
        """Every step goes through `step`."""

    def repack(self, state: FakeState, repack: Repack) -> None:
        """Keep the given rows and slots."""
        state.sources = [state.sources[row] for row in repack.rows]
        state.cache_BC2 = state.cache_BC2[repack.rows[:, None], repack.slots_BC]

    def extend(self, state: FakeState, other: FakeState, rows: Ints) -> None:
        """Put the other's sentences into these rows, the rest behind all."""
        capacity = max(state.cache_BC2.shape[1], other.cache_BC2.shape[1])
        for part in (state, other):
            part.resize(capacity)
        for number, source in enumerate(other.sources):
            if number < len(rows):
                state.sources[rows[number]] = source
                state.cache_BC2[rows[number]] = other.cache_BC2[number]
            else:
                state.sources.append(source)
                state.cache_BC2 = np.concatenate(
                    [state.cache_BC2, other.cache_BC2[number : number + 1]]
                )
        other.freed = True

    def trim(self, state: FakeState, source_length: int) -> None:
        """Sources of idle rows may be cut."""
        state.sources = [source[:source_length] for source in state.sources]

    def free(self, state: FakeState) -> None:
        """Mark the state as given back; twice is an error."""
        assert not state.freed
        state.freed = True
