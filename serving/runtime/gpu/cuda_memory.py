"""The tensors of a running batch in GPU memory. They are never copied to the host.

All tensors of one shape lie in one array [T, L + N, D], whose first rows are zeros: a single row
(`serving.runtime.gpu.layouts`), or as many as align each tensor for TensorRT. Every change of
layout gathers rows into another block.

Shape letters: T tensors, B sentences, H cache rows of a sentence, C slots, S source positions, R
some sentences, D model, N rows.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np
import onnxruntime

from serving.arrays import Floats, Ints
from serving.bundle.graph import FLOAT_BYTES, DType
from serving.errors import DeviceMemoryError
from serving.runtime.gpu.layouts import (
    ZERO,
    bucket,
    bucket_capacity,
    extended,
    filled,
    merged,
    numbered,
    repacked,
    resized,
)
from serving.runtime.gpu.sharing import Turns
from serving.search.prefix_tree import Repack, fill_padded, places

CUDA = "cuda"
_UNIT = 4096
"""Sizes of blocks are this many bytes times 1, 2, 3, 4, 6, 8, 12 and so on."""
_KEPT = 2
"""A batch that grows through all sizes of blocks uses at most two neighbouring ones at once. All
sizes up to the larger of them take twice as much."""
ALIGNMENT_BYTES = 256
"""Tensors in a shared buffer are aligned to this, as separate allocations would be; TensorRT
requires it."""
_WORD = 4
"""Bytes of the elements that are moved, whatever type they are parts of."""
_FILES = {False: "rows.onnx", True: "rows_of_two.onnx"}
_SHORT = ("Failed to allocate memory", "out of memory", "ALLOC_FAILED")
"""Parts of ONNX Runtime's messages about a run that ended for lack of memory. Each such message
contains one of them, whether it comes from the arena, CUDA, cuBLAS or cuDNN."""

T = TypeVar("T")


def in_memory(act: Callable[[], T]) -> T:
    """The result of `act`. Raises DeviceMemoryError if the GPU has too little memory for it."""
    try:
        return act()
    except Exception as error:  # ONNX Runtime raises classes of its own, one for each status
        if isinstance(error, DeviceMemoryError) or not any(said in str(error) for said in _SHORT):
            raise
        said = str(error).splitlines()[-1]
    raise DeviceMemoryError(f"the GPU has too little memory: {said}")


def on_gpu(count: int) -> onnxruntime.OrtValue:
    """Allocate this many bytes on the GPU, uninitialised."""
    return onnxruntime.OrtValue.ortvalue_from_shape_and_type([count], np.uint8, CUDA, 0)


@dataclass(frozen=True, eq=False)
class GpuBlock:
    """A block of GPU memory."""

    value: onnxruntime.OrtValue
    size: int
    address: int
    serial: int
    """Unique to this block; its address may be reused by another one."""
    captures: WeakSet[Any] = field(default_factory=WeakSet, repr=False)
    """The bindings with a CUDA graph that was captured on this block."""


class GpuBlocks:
    """A pool of GPU memory that batches share, from several threads.

    Unused blocks are kept as long as they are together no larger than `_KEPT` times what has been
    used at once; the least recently used is freed first. Those that CUDA graphs were captured on
    are kept besides, until memory is short: without its blocks a graph never runs again.

    All work on a block must be done before it is given back, because the next user may work in
    another stream.
    """

    _serials = itertools.count(1)

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._mutex = threading.Lock()
        self._free: list[GpuBlock] = []
        """The least recently used block first."""
        self._blocks: WeakSet[GpuBlock] = WeakSet()
        """All blocks, used and unused."""
        self._most_used = 0
        """The most bytes that were in use at once."""

    def take(self, size: int) -> GpuBlock:
        """A block from the bucket of that many bytes. If several are free it is the oldest one, so
        that the same few blocks are used whatever came before."""
        size = bucket(size, _UNIT)
        with self._mutex:
            fitting = [block for block in self._free if block.size == size]
            if fitting:
                block = min(fitting, key=lambda block: block.serial)
                self._free.remove(block)
                self._note_use()
                return block
        with self._turns.take():
            value = on_gpu(size)
        block = GpuBlock(value, size, value.data_ptr(), next(self._serials))
        with self._mutex:
            self._blocks.add(block)
            self._note_use()
        return block

    def give(self, block: GpuBlock) -> None:
        """Give back a block that nobody uses any more."""
        with self._turns.take(), self._mutex:  # the blocks that drop out are freed
            self._free.append(block)
            self._drop_oldest()

    def release(self, *, captured: bool) -> int:
        """Free the unused blocks, those of CUDA graphs only if `captured`; returns their
        number."""
        with self._turns.take(), self._mutex:
            before = len(self._free)
            self._free = [block for block in self._free if block.captures and not captured]
            return before - len(self._free)

    def _drop_oldest(self) -> None:
        """Drop the least recently used blocks beyond what is kept. The caller holds the mutex."""
        plain = [block for block in self._free if not block.captures]
        left = sum(block.size for block in plain) - _KEPT * self._most_used
        for block in plain:
            if left <= 0:
                return
            self._free.remove(block)
            left -= block.size

    def _note_use(self) -> None:
        """Note how much is in use. The caller holds the mutex."""
        used = sum(block.size for block in self._blocks) - sum(block.size for block in self._free)
        self._most_used = max(self._most_used, used)


@dataclass(frozen=True)
class GpuRows:
    """An array [T, L + N, D] in a block, with N rounded up to a multiple of L."""

    block: GpuBlock
    pool: GpuBlocks
    """The pool of the block."""
    tensors: int
    count: int
    """N."""
    row_bytes: int

    @property
    def lead(self) -> int:
        """L, the number of zero rows before the first row of a tensor."""
        return _lead(self.row_bytes)

    @property
    def height(self) -> int:
        """The number of rows of a tensor, including zero rows."""
        return _height(self.count, self.row_bytes)

    @property
    def shape(self) -> list[int]:
        """The shape in words."""
        return [self.tensors, self.height, self.row_bytes // _WORD]

    def address(self, tensor: int) -> int:
        """The address of a tensor's first row, after the zero rows."""
        return self.block.address + (tensor * self.height + self.lead) * self.row_bytes

    def places(self, index: Ints) -> Ints:
        """The place of each row of an index (of `layouts`) among all rows of a tensor."""
        return np.where(index > ZERO, index + (self.lead - 1), 0)


@dataclass(frozen=True)
class GpuTensor:
    """A tensor of an array."""

    rows: GpuRows
    number: int

    @property
    def address(self) -> int:
        """The address of its first row."""
        return self.rows.address(self.number)


class RowMover:
    """Allocates arrays on the GPU, and gathers their rows."""

    def __init__(
        self,
        sessions: dict[bool, onnxruntime.InferenceSession],
        turns: Turns,
        *,
        graphs: bool,
        capacities: Sequence[int] = (),
        most_rows: int | None = None,
    ) -> None:
        """`sessions` run the graphs of `move_files`. Several threads may use them; each run has a
        stream of its own and waits for it. With `graphs`, batches use only a few of the row counts
        up to `most_rows` and stay in place where possible, so that few CUDA graphs suffice. Caches
        have these `capacities`, up to the largest."""
        self.sessions, self.turns = sessions, turns
        self._graphs, self._capacities, self._most_rows = graphs, sorted(capacities), most_rows
        self._caches, self._sources = GpuBlocks(turns), GpuBlocks(turns)
        self._mutex = threading.Lock()
        self._zeros: dict[tuple[int, int], GpuRows] = {}

    def with_room(self, act: Callable[[], T], give_up: Callable[[], int] = lambda: 0) -> T:
        """The result of `act`. If memory is short, it frees unused blocks and what `give_up`
        releases (it returns the number), then also the blocks of CUDA graphs, and tries again each
        time.

        Raises DeviceMemoryError if memory is still short.
        """
        while True:
            try:
                return in_memory(act)
            except DeviceMemoryError:
                if not (self._release() + give_up() or self._release(captured=True)):
                    raise

    def round_rows(self, rows: int) -> int:
        """The number of rows on the GPU for a batch of that many sentences."""
        if not self._graphs:
            return rows
        full = bucket(rows)
        return full if self._most_rows is None else min(full, max(rows, self._most_rows))

    def round_capacity(self, slots: int) -> int:
        """The number of slots on the GPU for caches of that many slots."""
        fitting = (capacity for capacity in self._capacities if capacity >= slots > 0)
        return next(fitting, bucket_capacity(slots))

    def new(self, tensors: int, count: int, row_bytes: int) -> GpuRows:
        """An array of zeros for sources."""
        rows = self._take(self._sources, tensors, count, row_bytes)
        self._run(rows, self.empty(tensors, row_bytes), np.full(count, ZERO), None)
        return rows

    def empty(self, tensors: int, row_bytes: int) -> GpuRows:
        """An array for empty caches, with zero rows only. It is shared and never given back."""
        key = tensors, row_bytes
        with self.turns.take(), self._mutex:
            if key not in self._zeros:
                rows = self._take(self._caches, tensors, 0, row_bytes)
                rows.block.value.update_inplace(np.zeros(rows.block.size, np.uint8))
                self._zeros[key] = rows
            return self._zeros[key]

    def gather(self, source: GpuRows, index: Ints, other: GpuRows | None = None) -> GpuRows:
        """Gather the rows of an index. The indices of the other array follow those of the source.
        The source is given back, or its memory is reused for the result."""
        rows = self._take(source.pool, source.tensors, index.size, source.row_bytes)
        self._run(rows, source, index.ravel(), other)
        if self._graphs and source.count and source.block.size == rows.block.size:
            with self.turns.take():
                source.block.value.update_inplace(rows.block.value)
            self.give(rows)
            return replace(rows, block=source.block)
        self.give(source)
        return rows

    def give(self, rows: GpuRows) -> None:
        """Give back an array's memory."""
        if rows.count:
            rows.pool.give(rows.block)

    def read(self, source: GpuRows, tensor: int, index: Ints) -> bytes:
        """Copy rows of one tensor to the host."""
        one = replace(source, tensors=1)
        shift = tensor * source.height * source.row_bytes

        def copied() -> bytes:
            value = on_gpu(index.size * source.row_bytes)
            io = self.sessions[False].io_binding()
            _bind(io.bind_input, "rows", one.shape, source.block.address + shift)
            io.bind_cpu_input("index", source.places(index.ravel()))
            shape = [1, index.size, one.shape[2]]
            _bind(io.bind_output, "moved", shape, value.data_ptr())
            self.sessions[False].run_with_iobinding(io)
            return bytes(value.numpy())

        with self.turns.take():
            return self.with_room(copied)

    def _release(self, *, captured: bool = False) -> int:
        """`GpuBlocks.release` of both pools."""
        pools = self._caches, self._sources
        return sum(pool.release(captured=captured) for pool in pools)

    def _take(self, pool: GpuBlocks, tensors: int, count: int, row_bytes: int) -> GpuRows:
        size = tensors * _height(count, row_bytes) * row_bytes
        block = self.with_room(lambda: pool.take(size))
        return GpuRows(block, pool, tensors, count, row_bytes)

    def _run(self, target: GpuRows, source: GpuRows, index: Ints, other: GpuRows | None) -> None:
        """Gather rows into a new array, which is given back if that fails."""
        session = self.sessions[other is not None]
        moved = np.full(target.height, ZERO)
        places = source.places(index)
        if other is not None:
            theirs = index - (1 + source.count)
            places = np.where(theirs < 0, places, source.height + other.places(theirs))
        moved[target.lead : target.lead + target.count] = places

        def move() -> None:
            io = session.io_binding()
            _bind(io.bind_input, "rows", source.shape, source.block.address)
            if other is not None:
                _bind(io.bind_input, "others", other.shape, other.block.address)
            io.bind_cpu_input("index", moved)  # allocates, too: it copies the index to the GPU
            _bind(io.bind_output, "moved", target.shape, target.block.address)
            session.run_with_iobinding(io)

        with self.turns.take():
            try:
                self.with_room(move)
            except BaseException:
                self.give(target)
                raise


def _lead(row_bytes: int) -> int:
    """The number of zero rows that align a tensor."""
    return ALIGNMENT_BYTES // math.gcd(ALIGNMENT_BYTES, row_bytes)


def _height(count: int, row_bytes: int) -> int:
    """The total number of rows of a tensor that keeps the next one aligned."""
    lead = _lead(row_bytes)
    return lead * (1 + -(-count // lead))


def move_files() -> dict[bool, Path]:
    """The graphs that gather rows, from one array and from two."""
    return {two: Path(__file__).with_name(name) for two, name in _FILES.items()}


def _bind(bind: Any, name: str, shape: Sequence[int], address: int) -> None:
    bind(name, CUDA, 0, np.int32, shape, address)


class GpuTensors:
    """Memory for caches of one data type."""

    def __init__(self, mover: RowMover, dtype: DType) -> None:
        self._mover, self._dtype = mover, dtype

    def caches(self, tensors: int, rows: int, dim: int, height: int = 1) -> GpuCaches:
        """Caches of `rows` sentences without slots."""
        return GpuCaches(self._mover, tensors, rows, FLOAT_BYTES[self._dtype] * dim, height)


class GpuCaches:
    """The caches of a running batch; implements `serving.runtime.session.CacheMemory`.

    The number of slots is rounded up to a bucket. Some rows may belong to no sentence.
    """

    def __init__(
        self, mover: RowMover, tensors: int, sentences: int, row_bytes: int, height: int
    ) -> None:
        self._mover, self._sentences = mover, sentences
        self.height, self.capacity, self.layout = height, 0, 0
        self.rows = mover.empty(tensors, row_bytes)
        """The array of the caches. The graph reads and writes it in place."""

    @property
    def arrays(self) -> list[GpuTensor]:
        """The cache tensors."""
        return [GpuTensor(self.rows, number) for number in range(self.rows.tensors)]

    def resize(self, capacity: int) -> None:
        """Grow or shrink to the bucket of that many slots."""
        capacity = self._mover.round_capacity(capacity)
        if capacity != self.capacity:
            self._adopt(resized(self._own(), capacity))

    def repack(self, repack: Repack) -> None:
        """Keep the given rows and slots, in the given order."""
        kept = repacked(self._own(), repack)
        self._adopt(resized(kept, self._mover.round_capacity(kept.shape[2])))

    def extend(self, other: GpuCaches, sentences: Ints) -> None:
        """Put the sentences of the other caches into these rows, and the rest at the end."""
        theirs = other._own() + (1 + self.rows.count)
        self._adopt(extended(self._own(), theirs, sentences), other.rows if theirs.size else None)
        other.free()

    def lower(self, height: int) -> None:
        """Keep only the first `height` cache rows of each sentence."""
        self._adopt(self._own()[:, :height])

    def free(self) -> None:
        """Give back the memory."""
        self.capacity = 0
        self._empty()

    def _empty(self) -> None:
        self._mover.give(self.rows)
        self.rows = self._mover.empty(self.rows.tensors, self.rows.row_bytes)
        self.layout += 1

    def _own(self) -> Ints:
        return numbered(self._sentences, self.height, self.capacity)

    def _adopt(self, index_BHC: Ints, other: GpuRows | None = None) -> None:
        """Move the caches to a new array."""
        self._sentences, self.height, self.capacity = index_BHC.shape
        index_BHC = filled(index_BHC, self._mover.round_rows(self._sentences))
        if index_BHC.size:
            self.rows = self._mover.gather(self.rows, index_BHC, other)
            self.layout += 1
        else:
            self._empty()


class GpuSources:
    """The encoder's outputs for the sources of a batch; implements `SourceMemory`."""

    def __init__(self, mover: RowMover, rows: GpuRows, mask_BS: Floats, dtype: DType) -> None:
        """`rows` are those of the sentences in the mask, plus spare rows."""
        self._mover, self.rows, self.mask_BS, self._dtype = mover, rows, mask_BS, dtype
        self.layout = 0

    @classmethod
    def merged(cls, parts: Sequence[GpuSources], groups: Sequence[Sequence[int]]) -> GpuSources:
        """Merge several batches into one; the parts give back their memory."""
        indices = merged([part.mask_BS.shape for part in parts], groups)
        mask_BS = np.full(indices[0].shape, -np.inf, dtype=np.float32)
        whole = parts[0]
        for number, (part, index_BS) in enumerate(zip(parts, indices, strict=True)):
            length = part.mask_BS.shape[1]
            mask_BS[list(groups[number]), :length] = part.mask_BS
            if number == 0:
                whole._adopt(index_BS, mask_BS)
                continue
            theirs = index_BS + (1 + whole.rows.count)
            own = numbered(*mask_BS.shape)
            whole._adopt(np.where(index_BS > 0, theirs, own), mask_BS, part.rows)
            part.free()
        return whole

    def keep(self, rows: Ints) -> None:
        """Keep these rows, in this order."""
        self._adopt(self._own()[rows], self.mask_BS[rows])

    def extend(self, other: GpuSources, rows: Ints) -> None:
        """Put the other sentences into these rows, and the rest at the end; pad the shorter
        ones."""
        own, theirs = self._own(), other._own() + (1 + self.rows.count)
        index_BS = extended(own, theirs, rows)
        taken = places(rows, len(self.mask_BS), len(other.mask_BS))
        mask_BS = fill_padded(self.mask_BS, other.mask_BS, taken, len(index_BS), -np.inf)
        self._adopt(index_BS, mask_BS, other.rows)
        other.free()

    def trim(self, length: int) -> None:
        """Cut the sources to that many positions."""
        self._adopt(self._own()[:, :length], np.ascontiguousarray(self.mask_BS[:, :length]))

    def read(self, number: int, rows: Sequence[int]) -> Floats:
        """Copy some rows of one tensor to the host, in fp32."""
        number %= self.rows.tensors
        taken = self._mover.read(self.rows, number, self._own()[list(rows)])
        shape = len(rows), self.mask_BS.shape[1], -1
        if self._dtype == "bfloat16":  # the upper half of an fp32 number
            bits = np.frombuffer(taken, np.uint16).astype(np.uint32) << 16
            return bits.view(np.float32).reshape(shape)
        values: Floats = np.frombuffer(taken, self._dtype).reshape(shape)
        return values.astype(np.float32, copy=False)

    def free(self) -> None:
        """Give back the memory."""
        self._mover.give(self.rows)
        self.rows = self._mover.empty(self.rows.tensors, self.rows.row_bytes)
        self.layout += 1

    def _own(self) -> Ints:
        return numbered(*self.mask_BS.shape)

    def _adopt(self, index_BS: Ints, mask_BS: Floats, other: GpuRows | None = None) -> None:
        """Move the sources to a new array."""
        index_BS = filled(index_BS, self._mover.round_rows(len(index_BS)))
        self.rows, self.mask_BS = self._mover.gather(self.rows, index_BS, other), mask_BS
        self.layout += 1
