"""The prefix tree behind the cache: the slots that each hypothesis may see.

Shape letters: B sentences, K beams, Q queries, C cache slots, W ancestors.

Beam search grows a tree. Each cached slot is one node, a hypothesis is a path, and all beams of a
sentence share one cache: a step appends K slots and never reorders. Every `repack_every` steps of
its own a sentence drops the slots that no live hypothesis descends from. A sentence's layout
depends only on its own steps, so its results do not depend on its batch mates.

A joint-representation model has a row of the cache for each source position of a sentence, all with
the same slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from serving.arrays import Bools, Floats, Ints

Number = TypeVar("Number", np.float32, np.int64)

REPACK_EVERY = {"cross": 8, "joint": 2, "lm": 16}
"""Steps between repacks by kind of decoder. Slots of a joint model are S times as large. Most rows
of a language model have one query, so that their slots never die."""
SPARE_SLOTS = {"cross": 48, "joint": 0, "lm": 48}
"""Spare slots that caches on a CPU are laid out with, by kind of decoder. A new layout copies all
slots, and everything must be bound again."""
ALIGNMENT = 8  # capacities and source lengths are multiples of this


def round_capacity(slots: int) -> int:
    """Capacity for a number of slots. Long caches grow in larger steps, because each step copies
    the whole cache."""
    unit = ALIGNMENT if slots <= 256 else 32 if slots <= 1024 else 128
    return -(-slots // unit) * unit


def most_slots(
    prefix_length: int,
    beam_size: int,
    steps: int,
    repack_every: int,
    reach: int | None = None,
    spare: int = 0,
) -> int:
    """Upper bound of the capacity that a sentence can need if only slots out of reach are dropped,
    which happens at the first repack; `spare` slots are laid out beside."""
    slots = prefix_length + beam_size * (steps + repack_every)
    if reach is not None:
        first = prefix_length + beam_size * repack_every
        slots = min(slots, max(first, beam_size * (reach + repack_every)))
    return round_capacity(slots + spare)


_HEADROOM = 2
"""Unused slots, in growth steps, beyond which a cache is shrunk."""


@dataclass(frozen=True)
class Repack:
    """Rows and slots to keep: row b' of the new cache holds old row `rows[b']`, slots `slots[b']`.

    Order is kept, so slots only move to the front. The first `used[b']` matter; those after them
    stay masked until they are written.
    """

    rows: Ints
    slots_BC: Ints
    used_B: Ints
    in_place: bool
    """Whether all rows stay, and the capacity too."""

    def moves(self) -> tuple[Ints, Ints, Ints]:
        """Row, old slot and new slot of every slot that moves, if `in_place`."""
        places_C = np.arange(self.slots_BC.shape[1])
        rows, new = np.nonzero((self.slots_BC != places_C) & (places_C < self.used_B[:, None]))
        return rows, self.slots_BC[rows, new], new


def fill_rows(first: NDArray[Any], second: NDArray[Any], rows: Ints) -> NDArray[Any]:
    """The first array with the second's entries in the given rows; the remaining ones are
    appended."""
    filled = np.concatenate([first, second[len(rows) :]])
    filled[rows] = second[: len(rows)]
    return filled


def places(rows: Ints, count: int, added: int) -> list[int]:
    """Rows of added sentences: first the idle rows, then rows appended to the `count` existing
    ones."""
    return [*rows.tolist(), *range(count, count + added - len(rows))]


def fill_padded(
    first: NDArray[Number],
    second: NDArray[Number],
    taken: Sequence[int],
    total: int,
    filler: float,
) -> NDArray[Number]:
    """The first array with the second's rows in the given rows of `total`. The second axis is
    padded to the longer one; the same array is returned if it has room."""
    length = max(first.shape[1], second.shape[1])
    filled = first
    if (total, length) != first.shape[:2]:
        filled = np.full((total, length, *first.shape[2:]), filler, dtype=first.dtype)
        filled[: len(first), : first.shape[1]] = first
    for place, row in zip(taken, second, strict=True):
        filled[place, : len(row)] = row
        filled[place, len(row) :] = filler
    return filled


def _lengthen(array: NDArray[Any], size: int, filler: float) -> NDArray[Any]:
    """The array with its last axis extended to this size."""
    longer = np.full((*array.shape[:-1], size), filler, dtype=array.dtype)
    longer[..., : array.shape[-1]] = array
    return longer


def chain(used: int, queries: int, lookback: int) -> Ints:
    """Slots [Q,W] of the nearest ancestors, nearest first, of successive tokens that take the slots
    from `used` on; -1 if there is none."""
    slots: Ints = used + np.arange(queries)[:, None] - 1 - np.arange(lookback)
    return np.maximum(slots, -1)


class BoundTree(Protocol):
    """Moves slots in the arrays of a tree and in the caches, in place."""

    def plan(self, steps: int) -> tuple[int, int]:
        """Look for dead slots after this many steps of the tree. Returns how many slots are needed
        until the next look, and the most steps that a row has done since it was due."""
        ...

    def pack(self) -> None:
        """Drop the dead slots that were found."""
        ...


class PrefixTree:
    """The tree of each sentence of a running batch.

    `visible` [B,K,C] is 0 where query k descends from slot c and -inf elsewhere; `slot_positions`
    [B,C] are the positions of the tokens in the slots in use. `used`, `steps` and `peak` [B] count
    a sentence's slots in use, its steps, and the most slots it has used. If the model looks back
    along its hypotheses, `ancestors` [B,K,W] are the slots of the nearest ancestors of each query,
    nearest first, -1 where there is none.
    """

    def __init__(
        self,
        used: Ints,
        beam_size: int,
        repack_every: int,
        *,
        reach: int | None = None,
        lookback: int = 0,
        first_position: int = 0,
        spare: int = 0,
    ) -> None:
        """The first `used` slots of each sentence hold its prefix, from `first_position` on,
        visible to every beam. Slots that lie `reach` positions or more before the next token are
        dropped as well. `lookback` is the number of ancestors, W; it is less than `reach`. A new
        layout has room for `spare` slots beyond those that are needed."""
        self.beam_size, self.repack_every, self.reach = beam_size, repack_every, reach
        self.lookback, self._spare = lookback, spare
        self.used, self._peak = used.copy(), used.copy()
        self.num_steps = 0
        """Number of steps that this tree has done, for any sentences."""
        self.layout = 0
        """The number of the present arrays; it changes whenever one of them is replaced."""
        self._joined = np.zeros_like(used)
        """Number of steps when each sentence joined."""
        self._next = used + first_position
        """Position of each sentence's next token."""
        self._wait = 0
        """Number of steps until the first sentence is due to drop dead slots."""
        self._beams = np.arange(beam_size)
        prefix_BC = np.where(
            self._in_use(self._roomy(self._needed())), np.float32(0), np.float32(-np.inf)
        )
        self.visible = np.repeat(prefix_BC[:, None, :], beam_size, axis=1)
        self.slot_positions = np.zeros(prefix_BC.shape, dtype=np.int64)
        self.slot_positions += np.arange(first_position, first_position + prefix_BC.shape[1])
        last_B1W = np.maximum(used[:, None, None] - 1 - np.arange(lookback), -1)
        self.ancestors = np.repeat(last_B1W, beam_size, axis=1)
        self._number()

    @property
    def capacity(self) -> int:
        """Number of cache slots of each sentence."""
        return int(self.visible.shape[2])

    @property
    def steps(self) -> Ints:
        """Steps of each sentence, [B]."""
        return self.num_steps - self._joined

    @property
    def peak(self) -> Ints:
        """The most slots that each sentence has used, [B]."""
        return np.maximum(self._peak, self.used)

    @property
    def next_positions(self) -> Ints:
        """Position of each sentence's next token, [B]."""
        return self._next

    @property
    def arrays(self) -> tuple[Floats, Ints, Ints, Ints, Ints, Ints, Ints]:
        """The arrays of the tree: `visible`, `slot_positions`, slots in use, positions of the next
        tokens, most slots used before, steps before each sentence joined, `ancestors`."""
        return (
            self.visible,
            self.slot_positions,
            self.used,
            self._next,
            self._peak,
            self._joined,
            self.ancestors,
        )

    @property
    def due(self) -> bool:
        """Whether `repack` has anything to do if the rows stay the same."""
        return self._wait <= 0

    @property
    def steps_left(self) -> int:
        """Number of steps until `repack` has anything to do; there is room for them."""
        return self._wait

    def query_ancestors(self, queries: int) -> Ints | None:
        """Ancestors of the first `queries` of each sentence; None if the model does not look
        back."""
        return self.ancestors[:, :queries] if self.lookback else None

    def write(self) -> Ints:
        """Give each query a new slot; returns the write index [B]."""
        used_B1 = self.used[:, None]
        self.visible.reshape(-1)[self._visible_BK + used_B1] = 0
        self.slot_positions.reshape(-1)[self._slots_BK + used_B1] = self._next[:, None]
        return self.used

    def clear(self, row: int) -> int:
        """Make a row idle: its queries see only their own slots, written from slot 0 on. Returns
        the most slots that its sentence has used."""
        np.maximum(self._peak, self.used, out=self._peak)
        self.used[row] = self._next[row] = 0
        self.visible[row] = -np.inf
        self.ancestors[row] = -1
        return int(self._peak[row])

    def advance(self, parents_BK: NDArray[np.integer], queries_B: Ints) -> None:
        """Move to the next step: beam k descends from query `parents[b, k]`.

        Only the first `queries` of a sentence were live; the slots of the others are reused.
        """
        if self.beam_size > 1:
            self.visible = self.visible[self._rows_B1, parents_BK]
            self.layout += 1
        if self.lookback:
            self.layout += 1
            own_BK1 = (self.used[:, None] + parents_BK)[:, :, None]
            older_BKW = self.ancestors[self._rows_B1, parents_BK, :-1]
            self.ancestors = np.concatenate([own_BK1, older_BKW], axis=2)
            self.ancestors[queries_B == 0] = -1  # idle rows start again at each step
        self.used += queries_B
        self._next += queries_B > 0
        self.went_on(1)

    def went_on(self, steps: int) -> None:
        """Count steps whose moves native code has already made in the arrays."""
        self.num_steps += steps
        self._wait -= steps

    def repack_bound(self, bound: BoundTree) -> bool:
        """Let the bound steps do what `repack` does for all rows, and move the slots of the caches.
        Returns False, and changes nothing, if the caches need a new layout."""
        needed, since = bound.plan(self.num_steps)
        if not self._fits(needed):
            return False
        bound.pack()
        self._wait = self.repack_every - since
        return True

    def repack(self, rows: Ints) -> Repack | None:
        """Drop all other rows, and the dead slots of sentences that are due.

        Returns what the caches of the model must do, or None if nothing changes.
        """
        same_rows = len(rows) == len(self.used)
        if same_rows and not self.due:
            return None
        since_B = self.steps[rows] % self.repack_every
        self._wait = self.repack_every - int(since_B.max(initial=0))
        due_B = (since_B == 0) & (self.used[rows] > 0)
        if same_rows and not due_B.any():
            return None
        visible = self.visible[rows]
        alive_BC = self._in_use(self.capacity)[rows]
        needed_BC = (visible == 0).any(axis=1)
        if self.reach is not None:
            needed_BC &= self.slot_positions[rows] > (self._next[rows] - self.reach)[:, None]
        alive_BC &= ~due_B[:, None] | needed_BC
        used, capacity = alive_BC.sum(axis=1), self.capacity
        nothing_dropped = same_rows and np.array_equal(used, self.used)
        self.layout += 1
        self._peak, self.used = self.peak[rows], used
        self._joined, self._next = self._joined[rows], self._next[rows]
        needed = self._needed()
        in_place = same_rows and self._fits(needed)
        if in_place and nothing_dropped:
            return None
        in_use_BC = self._in_use(capacity if in_place else self._roomy(needed))
        slots_BC = np.zeros(in_use_BC.shape, dtype=np.int64)
        slots_BC[in_use_BC] = np.nonzero(alive_BC)[1]
        visible = np.take_along_axis(visible, slots_BC[:, None, :], axis=2)
        self.visible = np.where(in_use_BC[:, None, :], visible, np.float32(-np.inf))
        self.slot_positions = np.take_along_axis(self.slot_positions[rows], slots_BC, axis=1)
        if self.lookback:
            self._renumber_ancestors(rows, alive_BC)
        self._number()
        return Repack(rows, slots_BC, used, in_place)

    def extend(self, other: PrefixTree, rows: Ints) -> None:
        """Add the sentences of another tree, with their slots: first into idle rows, then at the
        end. Both trees must have the same beam size."""
        capacity = max(self.capacity, other.capacity)
        for tree in (self, other):
            if tree.capacity < capacity:
                tree.visible = _lengthen(tree.visible, capacity, -np.inf)
                tree.slot_positions = _lengthen(tree.slot_positions, capacity, 0)
        self._joined = fill_rows(self._joined, self.num_steps - other.steps, rows)
        self._peak = fill_rows(self.peak, other.peak, rows)
        self.used = fill_rows(self.used, other.used, rows)
        self._next = fill_rows(self._next, other._next, rows)
        self.visible = fill_rows(self.visible, other.visible, rows)
        self.slot_positions = fill_rows(self.slot_positions, other.slot_positions, rows)
        self.ancestors = fill_rows(self.ancestors, other.ancestors, rows)
        self._wait = 0
        self.layout += 1
        self._number()

    def _renumber_ancestors(self, rows: Ints, kept_BC: Bools) -> None:
        """Renumber ancestors after a repack. All ancestors of a live beam are kept: it sees them,
        and `reach` is longer than the way back to them."""
        old_BKW, new_BC = self.ancestors[rows], kept_BC.cumsum(axis=1) - 1
        flat_BX = np.maximum(old_BKW, 0).reshape(len(rows), -1)
        new_BKW = np.take_along_axis(new_BC, flat_BX, axis=1).reshape(old_BKW.shape)
        self.ancestors = np.where(old_BKW < 0, -1, new_BKW)

    def _number(self) -> None:
        """Compute the index of each query's first slot in the flattened arrays.

        Indexing flattened arrays costs a third of indexing each axis.
        """
        self._rows_B1 = np.arange(len(self.used))[:, None]
        queries_BK = self._rows_B1 * self.beam_size + self._beams
        self._visible_BK = queries_BK * self.capacity + self._beams
        self._slots_BK = self._rows_B1 * self.capacity + self._beams

    def _in_use(self, capacity: int) -> Bools:
        """Whether each of `capacity` slots is in use, [B,C]."""
        return np.arange(capacity) < self.used[:, None]

    def _needed(self) -> int:
        """Slots that are needed until the next repack of any sentence."""
        steps_left = self.repack_every - self.steps % self.repack_every
        return int((self.used + steps_left * self.beam_size).max(initial=1))

    def _roomy(self, needed: int) -> int:
        """Capacity of a new layout."""
        return round_capacity(needed + self._spare)

    def _fits(self, needed: int) -> bool:
        """Whether the present layout has room enough, and not far too much."""
        most = self._roomy(needed)
        headroom = round_capacity(most + 1) - most
        return needed <= self.capacity <= most + _HEADROOM * headroom
