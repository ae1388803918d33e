"""The context that a decoder layer reads in one call, and the layer's declaration of its needs.

Shape letters: B sentences, Q queries, C cache slots, W ancestors, S source positions, T tokens, D
width of a state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor, nn

from training.models.operators import convolve_ancestors, gather_rows, reshape, tensor_scatter

CacheT = TypeVar("CacheT")


@dataclass(frozen=True, kw_only=True)
class StepNeeds:
    """The caches that a module keeps, and the inputs that it needs in a decoding step.

    A module inside a decoder layer declares them in its attribute `needs`; those of the layer and
    the model follow from their parts (`needs_of`).
    """

    attentions: int = 0
    """Number of key-value pairs, each of the width of all heads."""
    states: tuple[int, ...] = ()
    """Widths of further cached states, in the order of writing."""
    ancestors: int = 0
    """Number of nearest ancestors that are read: W."""
    recurrent: bool = False
    """Whether a state is computed from its parent's. Then no call may contain a position and its
    parent, so given tokens are read one per call."""
    slot_positions: bool = False
    """Whether the positions of the tokens in the cache slots are read."""

    def __add__(self, other: StepNeeds) -> StepNeeds:
        """The needs of two modules together; the first one writes first."""
        return StepNeeds(
            attentions=self.attentions + other.attentions,
            states=self.states + other.states,
            ancestors=max(self.ancestors, other.ancestors),
            recurrent=self.recurrent or other.recurrent,
            slot_positions=self.slot_positions or other.slot_positions,
        )


def needs_of(module: nn.Module) -> StepNeeds:
    """The declared needs of a module or, if it has none, those of its parts."""
    own = getattr(module, "needs", None)
    if isinstance(own, StepNeeds):
        return own
    return sum(map(needs_of, module.children()), StepNeeds())


@dataclass
class KeyValue:
    """Keys and values of one attention layer, both [B, C or S, D] or, by head, [B,H,C,E]."""

    keys: Tensor
    values: Tensor


@dataclass(kw_only=True)
class CacheContext:
    """The inputs of one layer's causal part in one call.

    Training leaves all of it empty, except for `visible` if attention is biased: positions are
    those of a row, in order. Decoding passes `write_index` [B], `visible` [B,1,Q,C] (0 or -inf; for
    biased attention [B,H,Q,C] with the bias), and the layer's caches. The layer's modules take the
    caches in order and append to them (`append_key_value`, `append_state`). The inputs that a
    module asks for (`StepNeeds`) are here too: `ancestors` [B,Q,W], the slots of each query's
    nearest ancestors, nearest first, -1 where there is none, and `slot_positions` [B,C].
    """

    visible: Tensor | None = None
    write_index: Tensor | None = None
    key_values: list[KeyValue] = field(default_factory=list)
    """Key-value caches that no module has taken yet."""
    states: list[Tensor] = field(default_factory=list)
    """State caches [B,C,D] that no module has taken yet."""
    positions: Tensor | None = None
    """Positions of the queries, [B,Q]."""
    slot_positions: Tensor | None = None
    ancestors: Tensor | None = None
    appended_key_values: list[KeyValue] = field(default_factory=list)
    appended_states: list[Tensor] = field(default_factory=list)

    @property
    def cached(self) -> bool:
        """Whether this is a decoding step with caches."""
        return self.write_index is not None

    def append_key_value(self, key: Tensor, value: Tensor) -> KeyValue:
        """Take the next key-value cache and write these into the queries' slots."""
        assert self.write_index is not None
        cache = _next(self.key_values, "attentions")
        appended = KeyValue(
            tensor_scatter(cache.keys, key, self.write_index),
            tensor_scatter(cache.values, value, self.write_index),
        )
        self.appended_key_values.append(appended)
        return appended

    def append_state(self, state_BQD: Tensor) -> Tensor:
        """Take the next state cache [B,C,D] and write these into the queries' slots."""
        return self._write(_next(self.states, "states"), state_BQD)

    def _write(self, cache_BCD: Tensor, state_BQD: Tensor) -> Tensor:
        assert self.write_index is not None
        if cache_BCD.shape[2] != state_BQD.shape[2]:
            raise ValueError(
                f"needs.states says a width of {cache_BCD.shape[2]}, the state has "
                f"{state_BQD.shape[2]}; name the widths in the order in which states are written"
            )
        self.appended_states.append(tensor_scatter(cache_BCD, state_BQD, self.write_index))
        return self.appended_states[-1]

    def look_back(self, x_BQD: Tensor, count: int) -> Tensor:
        """`x` at the `count` nearest ancestors of each position, nearest first, zeros before the
        start: [B,Q,count,D].

        Caches `x` as a state of width D; the module must declare as many `ancestors`.
        """
        if not self.cached:
            length = x_BQD.shape[1]
            padded = nn.functional.pad(x_BQD, (0, 0, count, 0))
            shifted = [padded[:, count - back :][:, :length] for back in range(1, count + 1)]
            return torch.stack(shifted, 2)
        return self.gather_ancestors(self.append_state(x_BQD), count)

    def convolve(self, x_BQD: Tensor, kernel: Tensor) -> Tensor:
        """For each query the sum of taps times its own x and the x of its nearest ancestors,
        [B,Q,D].

        `kernel` [B,Q,H,K] or [1,1,H,K] has a tap for x itself, then for the ancestors, nearest
        first, for each of H groups of features. Caches `x` as a state; for decoding only.
        """
        assert self.write_index is not None
        assert self.ancestors is not None
        cache_BCD = _next(self.states, "states")
        out_BQD, appended = convolve_ancestors(
            x_BQD, cache_BCD, self.write_index, self.ancestors, kernel
        )
        self.appended_states.append(appended)
        return out_BQD

    def recur(self, cell: Callable[[Tensor, Tensor], Tensor], x_BQD: Tensor, width: int) -> Tensor:
        """States [B,Q,width], each `cell(x, parent's state)` of its position; the state before the
        start is zero.

        Caches the states, of that width; the module must declare one of the `ancestors` and
        `recurrent`.
        """
        if self.cached:
            cache_BCD = _next(self.states, "states")
            state_BQD = cell(x_BQD, self.gather_ancestors(cache_BCD, 1).squeeze(2))
            self._write(cache_BCD, state_BQD)
            return state_BQD
        states = [x_BQD.new_zeros(len(x_BQD), 1, width)]
        for x_B1D in x_BQD.split(1, 1):
            states.append(cell(x_B1D, states[-1]))
        return torch.cat(states[1:], 1)

    def gather_ancestors(self, cache_BCD: Tensor, count: int) -> Tensor:
        """Cache rows at the `count` nearest ancestors of each query, zeros before the start:
        [B,Q,count,D]."""
        if self.ancestors is None or self.ancestors.shape[2] < count:
            raise ValueError(f"needs.ancestors must be at least {count}, which the module reads")
        slots_BQW = self.ancestors[:, :, :count]
        rows, queries, _ = slots_BQW.shape
        slots = reshape(slots_BQW.clamp(min=0), (rows, queries * count), (0, -1))
        width = cache_BCD.shape[2]
        gathered = gather_rows(cache_BCD, slots)
        rows_BQWD = reshape(gathered, (rows, queries, count, width), (0, -1, count, width))
        return rows_BQWD.masked_fill((slots_BQW < 0).unsqueeze(-1), 0.0)


@dataclass(kw_only=True)
class AttentionContext(CacheContext):
    """The inputs of one decoder layer of a Transformer in one call."""

    source: KeyValue
    source_mask: Tensor | None  # [B,1,Q or 1,S], 0 or -inf
    source_query: Tensor | None = None  # [B,Q,D], left by the source attention for alignments


def _next(caches: list[CacheT], name: str) -> CacheT:
    """Take the first of these caches."""
    if not caches:
        raise ValueError(f"a layer appends to more caches than its needs.{name} says")
    return caches.pop(0)


def split_caches(
    needs: Sequence[StepNeeds], caches: Sequence[Tensor]
) -> list[tuple[list[KeyValue], list[Tensor]]]:
    """The caches of a step, by layer: keys and values, and states.

    The order is [key, value] of each attention of each layer, then the states of each layer.
    """
    given = iter(caches)
    key_values = [[KeyValue(next(given), next(given)) for _ in range(n.attentions)] for n in needs]
    states = [[next(given) for _ in n.states] for n in needs]
    return list(zip(key_values, states, strict=True))


def cache_tensors(contexts: Sequence[CacheContext]) -> list[Tensor]:
    """The appended caches of all layers, in the order of `split_caches`.

    Raises ValueError if a layer has not used a cache that it declared.
    """
    for number, context in enumerate(contexts):
        if context.key_values or context.states:
            raise ValueError(
                f"decoder layer {number} needs {len(context.key_values)} pairs of keys and values "
                f"and {len(context.states)} states to which it does not append; correct its needs"
            )
    pairs = [pair for context in contexts for pair in context.appended_key_values]
    tensors = [tensor for pair in pairs for tensor in (pair.keys, pair.values)]
    return tensors + [state for context in contexts for state in context.appended_states]
