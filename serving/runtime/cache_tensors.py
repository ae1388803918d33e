"""The tensors of a running batch on the CPU: sizes of a model's caches, the pool that their memory
comes from, their layout, which changes with rows and slots, the encoded sources, and the bindings
of graphs to all of these.

Shape letters: T cache tensors (keys and values, or states, of each decoder layer), R cache rows, C
slots, B sentences, S source positions, D model.
"""

from __future__ import annotations

import math
import mmap
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from serving.arrays import Floats, Ints
from serving.bundle.graph import FLOAT_BYTES, DType, Tensor
from serving.bundle.manifest import Manifest
from serving.runtime.session import Binding, CacheMemory, TensorMemory
from serving.search.prefix_tree import (
    ALIGNMENT,
    REPACK_EVERY,
    SPARE_SLOTS,
    Repack,
    fill_padded,
    places,
)

MOST_JOINT_STATES = 256
"""Rows x beams x source positions beyond which a batch of a joint model gets no faster: one or two
sentences at beam 5. Their matrix products are large enough, and their states fit into the
processor's cache (docs/background/decisions.md)."""
_MAPPED_BYTES = 1 << 18
"""Size in bytes from which memory for caches is requested from the operating system directly."""
_LINE_BYTES = 64
"""Size in bytes of a cache line, and of the largest vector that kernels read at once."""
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
_GROWTH = 1.5
"""Factor by which a new block is larger than requested, so that a growing cache does not need one
at each step."""


def aligned_empty(shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """A new array whose memory begins at a cache line; its content is arbitrary. NumPy's own arrays
    mostly begin within one, so that every vector that a kernel reads lies in two lines."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _LINE_BYTES, np.uint8)
    first = -memory.ctypes.data % _LINE_BYTES
    return memory[first : first + size].view(dtype).reshape(shape)


def aligned_zeros(shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """A new array of zeros whose memory begins at a cache line."""
    zeros = aligned_empty(shape, dtype)
    zeros.fill(0)
    return zeros


def _aligned(array: NDArray[Any]) -> NDArray[Any]:
    """The array, or a copy of it if it is not contiguous or begins within a cache line."""
    if array.flags.c_contiguous and array.ctypes.data % _LINE_BYTES == 0:
        return array
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def round_up(length: int) -> int:
    """The next multiple of `ALIGNMENT`, to which sources and given tokens are padded."""
    return -(-length // ALIGNMENT) * ALIGNMENT


class CacheSizes:
    """The memory that a model's caches take, and how large its batches should be. Both follow from
    the manifest alone, so a process that only fills batches needs no session."""

    def __init__(self, manifest: Manifest) -> None:
        self._kind, self._target = manifest.decoder_kind, manifest.target
        self.lookback = manifest.lookback
        """As `Manifest.lookback`."""
        self._caches = manifest.caches
        self._slot_bytes = sum(FLOAT_BYTES[each.dtype] * each.slot_size for each in self._caches)
        self.repack_every = REPACK_EVERY[self._kind]
        """Steps after which a sentence drops its dead cache slots."""
        self.reach = max(manifest.sizes.reach) if manifest.sizes.reach else None
        """Number of last positions that the widest layer sees, including the query's own.
        None if it sees all."""
        self.spare_slots = 0 if self._target == "cuda" else SPARE_SLOTS[self._kind]
        """Slots that caches are laid out with beyond those that are needed."""

    @property
    def most_states(self) -> int | None:
        """Rows x beams x source positions beyond which a batch of a joint model gets no faster.
        None for other models, and on CUDA, where only the caches limit batches."""
        return MOST_JOINT_STATES if self._kind == "joint" and self._target != "cuda" else None

    def cache_bytes(self, rows: int, source_length: int, slots: int) -> int:
        """Bytes of caches of that size, with the spare copy that a repack writes."""
        height = round_up(source_length) if self._kind == "joint" else 1
        return 2 * self._slot_bytes * rows * height * slots


class BlockPool:
    """Blocks of memory that go from one batch to the next; threads may share a pool.

    The operating system hands out fresh memory page by page at the first touch, which can cost more
    than everything a step then does with it (docs/background/decisions.md). A block is a flat
    array. When it is taken, it contains the data of its last use.
    """

    def __init__(self, dtype: DTypeLike = np.float32) -> None:
        """Create a pool for numbers of this type, fp32 or fp16; both are called `Floats` here."""
        self.dtype = np.dtype(dtype)
        self._lock = threading.Lock()
        self._most_kept = 1
        """Largest number of unused blocks to keep: those of one batch."""
        self._blocks: list[Floats] = []
        """Unused blocks, the smallest first."""
        self._given: deque[Floats] = deque()
        """Blocks that were given back and are not in `_blocks` yet."""

    def take(self, size: int) -> Floats:
        """A block of at least `size` numbers, which are finite if those given back were."""
        if not size:
            return np.zeros(0, self.dtype)
        with self._lock:
            self._sort_in()
            for place, block in enumerate(self._blocks):
                if block.size >= size:
                    return self._blocks.pop(place)
            # The request has outgrown the unused blocks: the new block replaces the largest one.
            del self._blocks[-1:]
        return _fresh(int(size * _GROWTH), self.dtype)

    def give(self, block: Floats) -> None:
        """Give a block back. No part of it may be in use, because the next user writes to it.

        Never waits: the garbage collector may close a reading while its own thread holds the lock.
        """
        if not block.size:
            return
        self._given.append(block)
        if self._lock.acquire(blocking=False):
            try:
                self._sort_in()
            finally:
                self._lock.release()

    def _sort_in(self) -> None:
        """Sort the returned blocks in with the others, and keep only the largest. The caller holds
        the lock."""
        if not self._given:
            return
        while self._given:
            self._blocks.append(self._given.popleft())
        self._blocks.sort(key=lambda kept: kept.size)
        del self._blocks[: max(0, len(self._blocks) - self._most_kept)]

    def caches(self, tensors: int, rows: int, dim: int, height: int = 1) -> Caches:
        """Caches of `rows` sentences without slots, whose memory comes from here."""
        # One block for each tensor, and one for the next layout of a tensor.
        self._most_kept = max(self._most_kept, tensors + 1)
        return Caches(self, tensors, rows, dim, height)


class Caches:
    """The caches of a running batch, in memory that comes from a pool and goes back to it.

    Each tensor has a block of its own. A new layout is written one tensor after another, each into
    the block that the previous one has left, so it needs extra memory for only one tensor. Slots
    that no query has written yet contain arbitrary finite numbers: a mask hides them, but would not
    hide NaN.
    """

    def __init__(self, pool: BlockPool, tensors: int, rows: int, dim: int, height: int = 1) -> None:
        """Caches of `rows` sentences, without slots, of the pool's type. A sentence has `height`
        rows in a cache: one for each source position with a joint model, otherwise one."""
        self._pool, self.height = pool, height
        self.arrays: list[Floats] = [np.zeros((rows * height, 0, dim), pool.dtype)] * tensors
        """The cache tensors, each [R,C,D]."""
        self._blocks: list[Floats] = [np.zeros(0, pool.dtype)] * tensors
        """The block that each tensor lies in."""
        self.layout = 0
        """The number of the present layout. Each new one puts the arrays elsewhere in memory, so
        earlier bindings to them are void."""

    @property
    def rows(self) -> int:
        """Cache rows of each tensor."""
        return int(self.arrays[0].shape[0])

    @property
    def capacity(self) -> int:
        """Number of slots of each row."""
        return int(self.arrays[0].shape[1])

    def resize(self, capacity: int) -> None:
        """Grow or shrink to `capacity` slots; new slots are zero."""
        if self.capacity != capacity:
            self._lay_out(self.rows, capacity, _put)

    def repack(self, repack: Repack) -> None:
        """Keep the given rows and slots, in the given order."""
        if repack.in_place:
            self._move(repack)
        else:
            self._gather(repack)

    def extend(self, other: Caches, sentences: Ints) -> None:
        """Put the other's sentences, which keep their slots, into these rows, and the rest at the
        end. The other is left empty.

        If all fit into these rows, with no more cache rows and slots, nothing else is touched. The
        old content of the rows is overwritten: a sentence for which the model returned no numbers
        leaves NaN, which no mask hides.
        """
        if other.height > self.height:
            self._change_height(other.height)
        count, added = self.rows // self.height, other.rows // other.height
        taken = places(sentences, count, added)
        total, capacity = count + added - len(sentences), max(self.capacity, other.capacity)
        if (total, capacity) != (count, self.capacity):
            self._lay_out(total * self.height, capacity, _put)
        for array, others in zip(self.arrays, other.arrays, strict=True):
            own = array.reshape(total, self.height, *array.shape[1:])
            own[sentences] = 0.0
            own[taken, : other.height, : other.capacity] = others.reshape(
                added, other.height, *others.shape[1:]
            )
        other.free()

    def lower(self, height: int) -> None:
        """Keep only the first `height` cache rows of each sentence."""
        self._change_height(height)

    def free(self) -> None:
        """Give the memory back; nothing may be bound to it any more."""
        self.layout += 1
        for number, block in enumerate(self._blocks):
            self.arrays[number] = self.arrays[number][:, :0]
            self._pool.give(block)
            self._blocks[number] = block[:0]

    def _change_height(self, height: int) -> None:
        """Take rows from the end of each sentence, or give it more, which are zero."""
        sentences, before = self.rows // self.height, self.height
        kept = min(before, height)

        def fill(new: Floats, old: Floats) -> None:
            parts = new.reshape(sentences, height, *new.shape[1:])
            parts[:, :kept] = old.reshape(sentences, before, *old.shape[1:])[:, :kept]
            parts[:, kept:] = 0.0

        self._lay_out(sentences * height, self.capacity, fill)
        self.height = height

    def _move(self, repack: Repack) -> None:
        """Move slots to the front; most are there already, because a step appends to the end."""
        rows, old, new = repack.moves()
        first_N1 = (rows * self.height)[:, None] + np.arange(self.height)
        source = (first_N1 * self.capacity + old[:, None]).ravel()
        target = (first_N1 * self.capacity + new[:, None]).ravel()
        for array in self.arrays:
            cache = array.reshape(-1, array.shape[2])
            cache[target] = cache[source]

    def _gather(self, repack: Repack) -> None:
        """Gather rows and slots."""
        rows_R = (repack.rows[:, None] * self.height + np.arange(self.height)).ravel()
        slots_RC = np.repeat(repack.slots_BC, self.height, axis=0)
        flat = (rows_R[:, None] * self.capacity + slots_RC).ravel()

        def fill(new: Floats, old: Floats) -> None:
            dim = old.shape[2]
            np.take(old.reshape(-1, dim), flat, axis=0, out=new.reshape(-1, dim), mode="clip")

        rows, capacity = slots_RC.shape
        self._lay_out(rows, capacity, fill)

    def _lay_out(self, rows: int, capacity: int, fill: Callable[[Floats, Floats], None]) -> None:
        """Give each tensor this shape in another block, which `fill(new, old)` writes
        completely."""
        shape = (rows, capacity, self.arrays[0].shape[2])
        size = math.prod(shape)
        for number, (old, left) in enumerate(zip(self.arrays, self._blocks, strict=True)):
            block = self._pool.take(size)
            new = block[:size].reshape(shape)
            fill(new, old)
            self.arrays[number], self._blocks[number] = new, block
            self._pool.give(left)
        self.layout += 1


def _fresh(size: int, dtype: np.dtype[Any]) -> Floats:
    """Returns this many zeros. A large block is mapped: it returns to the system as soon as it is
    dropped, while an allocator would keep it for later requests."""
    count = size * dtype.itemsize
    if count < _MAPPED_BYTES:
        return aligned_zeros((size,), dtype)
    return np.frombuffer(mmap.mmap(-1, count, **_PRIVATE), dtype)


def _put(new: Floats, old: Floats) -> None:
    """Copy rows and slots from the first on, as many as both arrays have; the rest becomes zero."""
    rows, slots = (min(sizes) for sizes in zip(new.shape[:2], old.shape[:2], strict=True))
    new[:rows, :slots] = old[:rows, :slots]
    new[:rows, slots:] = 0.0
    new[rows:] = 0.0


class CacheGroups:
    """Caches whose tensors differ in shape or type, used as one; see `CacheMemory`."""

    def __init__(self, groups: Sequence[Any], order: Sequence[int]) -> None:
        """`order` says for each tensor, in the order of the graph, in which group it is."""
        self._groups, self._order = groups, order

    @property
    def arrays(self) -> list[Any]:
        """The cache tensors in the order of the graph, each as its group has it."""
        arrays = [iter(group.arrays) for group in self._groups]
        return [next(arrays[number]) for number in self._order]

    @property
    def layout(self) -> int:
        """The number of the present layout: each change of a group's makes another."""
        layout: int = sum(group.layout for group in self._groups)
        return layout

    @property
    def capacity(self) -> int:
        """Number of slots of each row."""
        capacity: int = self._groups[0].capacity
        return capacity

    def resize(self, capacity: int) -> None:
        """Grow or shrink to `capacity` slots."""
        for group in self._groups:
            group.resize(capacity)

    def repack(self, repack: Repack) -> None:
        """Keep the given rows and slots, in the given order."""
        for group in self._groups:
            group.repack(repack)

    def extend(self, other: CacheGroups, sentences: Ints) -> None:
        """Put the other's sentences into these rows, and the rest at the end."""
        for group, added in zip(self._groups, other._groups, strict=True):
            group.extend(added, sentences)

    def lower(self, height: int) -> None:
        """Keep only the first `height` cache rows of each sentence."""
        for group in self._groups:
            group.lower(height)

    def free(self) -> None:
        """Give the memory back."""
        for group in self._groups:
            group.free()


class StepMemory:
    """Memory for the caches of a step graph, used again from batch to batch."""

    def __init__(self, tensors: Sequence[Tensor], memory: Callable[[DType], TensorMemory]) -> None:
        """`tensors` are the graph's caches; `memory` gives new memory of a type of numbers."""
        kinds = list(dict.fromkeys((tensor.dtype, tensor.axes) for tensor in tensors))
        self._order = [kinds.index((tensor.dtype, tensor.axes)) for tensor in tensors]
        self._memories = [(axes, memory(dtype)) for dtype, axes in kinds]

    def caches(self, rows: int, source_length: int = 1) -> CacheMemory:
        """Caches of `rows` sentences, without slots. Those of a joint model have a row for each of
        its `source_length` positions."""
        groups: list[CacheMemory] = []
        for number, (axes, memory) in enumerate(self._memories):
            first, *heads, _, dim = axes  # B or BS, perhaps heads, C, numbers of a slot
            height = source_length if first == "BS" else int(heads[0]) if heads else 1
            count = self._order.count(number)
            groups.append(memory.caches(count, rows, int(dim), height))
        return groups[0] if len(groups) == 1 else CacheGroups(groups, self._order)


class Sources:
    """The encoder's outputs for the sources of a batch. Their arrays are replaced rather than
    moved."""

    def __init__(self, tensors: list[Floats], mask_BS: Floats) -> None:
        self.tensors, self.mask_BS = tensors, mask_BS
        self.layout = 0
        """The number of the present arrays."""

    @classmethod
    def merged(cls, parts: Sequence[Sources], groups: Sequence[Sequence[int]]) -> Sources:
        """Merge several batches: row n of a part becomes row `groups[part][n]`. Shorter sources are
        padded to the length of the first part's."""
        first = parts[0]
        shape = sum(map(len, groups)), first.mask_BS.shape[1]
        tensors = [aligned_zeros((*shape, *each.shape[2:]), each.dtype) for each in first.tensors]
        mask_BS = np.full(shape, -np.inf, dtype=np.float32)
        for rows, part in zip(groups, parts, strict=True):
            length = part.mask_BS.shape[1]
            mask_BS[rows, :length] = part.mask_BS
            for tensor, own in zip(tensors, part.tensors, strict=True):
                tensor[rows, :length] = own
        return cls(tensors, mask_BS)

    def keep(self, rows: Ints) -> None:
        """Keep these rows, in this order."""
        kept = [
            np.take(each, rows, 0, aligned_empty((len(rows), *each.shape[1:]), each.dtype), "clip")
            for each in self.tensors
        ]
        self._replace(kept, self.mask_BS[rows])

    def extend(self, other: Sources, rows: Ints) -> None:
        """Put the other's sentences into these rows, the rest at the end, and pad the shorter ones.

        If all fit into these rows and are no longer, the arrays are not replaced.
        """
        count, added = len(self.mask_BS), len(other.mask_BS)
        taken = places(rows, count, added)
        total = count + added - len(rows)
        pairs = zip(self.tensors, other.tensors, strict=True)
        tensors = [fill_padded(first, second, taken, total, 0.0) for first, second in pairs]
        mask_BS = fill_padded(self.mask_BS, other.mask_BS, taken, total, -np.inf)
        if mask_BS is not self.mask_BS:
            self._replace(tensors, mask_BS)

    def trim(self, length: int) -> None:
        """Cut sources to that many positions."""
        self._replace(
            [tensor[:, :length] for tensor in self.tensors],
            np.ascontiguousarray(self.mask_BS[:, :length]),
        )

    def read(self, number: int, rows: Sequence[int]) -> Floats:
        """Some rows of one tensor in fp32."""
        tensor_RSD: Floats = self.tensors[number][list(rows)].astype(np.float32, copy=False)
        return tensor_RSD

    def free(self) -> None:
        """Does nothing: the arrays are freed together with this object."""

    def _replace(self, tensors: list[Floats], mask_BS: Floats) -> None:
        self.tensors, self.mask_BS = [_aligned(tensor) for tensor in tensors], mask_BS
        self.layout += 1


class Bindings:
    """The bindings of a running batch; a new layout of its memory makes all of them void."""

    def __init__(self) -> None:
        self._layout: Hashable = None
        self._made: dict[Hashable, Binding] = {}

    def of(self, layout: Hashable) -> dict[Hashable, Binding]:
        """The bindings to memory of this layout; the caller may add further ones."""
        if layout != self._layout:
            self._made.clear()
            self._layout = layout
        return self._made

    def resize(self, caches: CacheMemory, capacity: int) -> None:
        """Grow or shrink caches to this many slots. If that moves them, their bindings are dropped
        first, because these would keep the old memory alive."""
        if caches.capacity != capacity:
            self._made.clear()
        caches.resize(capacity)

    def repack(self, caches: CacheMemory, repack: Repack) -> None:
        """Keep the given rows and slots of caches; drops bindings as `resize` does."""
        if not repack.in_place:
            self._made.clear()
        caches.repack(repack)

    def clear(self) -> None:
        """Drop all bindings. This must happen before the caches' memory is given back, because
        bindings hold pointers into it."""
        self._made.clear()
