"""The tensors of a running batch in the memory of a GPU: they never cross to the host.

All tensors of one shape lie in one array [T, L + N, D], whose first rows are zeros: one
(`serving.runtime.gpu.layouts`), or as many as let each tensor begin where TensorRT wants it. Every
change of layout is one gather of rows into another block.

Shape letters: T tensors, B sentences, H cache rows of a sentence, C slots, S source positions,
R some sentences, D model, N rows.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

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
"""Blocks have this many bytes, times 1, 2, 3, 4, 6, 8, 12 and so on."""
ALIGNMENT_BYTES = 256
"""Tensors that share a buffer begin at multiples: an allocation of their own would, and TensorRT
wants it."""
_KEPT = 16
"""Blocks kept while unused; of these the longest unused goes first."""
_WORD = 4
"""Bytes of the elements that are moved, whatever numbers they are parts of."""
_FILES = {False: "rows.onnx", True: "rows_of_two.onnx"}
_SHORT = ("Failed to allocate memory", "out of memory", "ALLOC_FAILED")
"""One of them stands in each message of ONNX Runtime's that ends a run for want of memory: its
arena's, CUDA's, and those of cuBLAS and cuDNN."""

T = TypeVar("T")


def in_memory(act: Callable[[], T]) -> T:
    """What `act` gives; raises DeviceMemoryError where the GPU's memory does not suffice for it."""
    try:
        return act()
    except Exception as error:  # ONNX Runtime raises classes of its own, one for each status
        if isinstance(error, DeviceMemoryError) or not any(said in str(error) for said in _SHORT):
            raise
        said = str(error).splitlines()[-1]
    raise DeviceMemoryError(f"the GPU's memory does not suffice: {said}")


def on_gpu(count: int) -> onnxruntime.OrtValue:
    """So many bytes of the GPU's memory, with whatever they hold."""
    return onnxruntime.OrtValue.ortvalue_from_shape_and_type([count], np.uint8, CUDA, 0)


@dataclass(frozen=True, eq=False)
class GpuBlock:
    """A piece of the GPU's memory."""

    value: onnxruntime.OrtValue
    size: int
    address: int
    serial: int
    """No other block ever has the same, though its address may come again."""


class GpuBlocks:
    """Memory that goes from one batch to the next; threads share it.

    What was done with a block is done when it is given back: whoever takes it next may work in
    another stream.
    """

    _serials = itertools.count(1)

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._mutex = threading.Lock()
        self._free: list[GpuBlock] = []
        """The longest unused first."""

    def take(self, size: int) -> GpuBlock:
        """A block of the bucket of that many bytes: the first one that was made, where several are
        free, so that the same few are used whatever came before."""
        size = bucket(size, _UNIT)
        with self._mutex:
            fitting = [block for block in self._free if block.size == size]
            if fitting:
                block = min(fitting, key=lambda block: block.serial)
                self._free.remove(block)
                return block
        with self._turns.take():
            value = on_gpu(size)
        return GpuBlock(value, size, value.data_ptr(), next(self._serials))

    def give(self, block: GpuBlock) -> None:
        """Give a block back, which nobody may use any more."""
        with self._turns.take(), self._mutex:  # what goes is freed
            self._free.append(block)
            del self._free[: max(0, len(self._free) - _KEPT)]

    def release(self) -> int:
        """Free what nobody uses; returns how many blocks those were."""
        with self._turns.take(), self._mutex:
            count = len(self._free)
            self._free.clear()
        return count


@dataclass(frozen=True)
class GpuRows:
    """An array [T, L + N, D] in a block, N filled up to a multiple of L."""

    block: GpuBlock
    pool: GpuBlocks
    """Where the block comes from."""
    tensors: int
    count: int
    """N"""
    row_bytes: int

    @property
    def lead(self) -> int:
        """L, rows of zeros before the first row of a tensor."""
        return _lead(self.row_bytes)

    @property
    def height(self) -> int:
        """All rows of a tensor."""
        return _height(self.count, self.row_bytes)

    @property
    def shape(self) -> list[int]:
        """Its shape as words."""
        return [self.tensors, self.height, self.row_bytes // _WORD]

    def address(self, tensor: int) -> int:
        """Where the first row of one of the tensors is, rows of zeros not counted."""
        return self.block.address + (tensor * self.height + self.lead) * self.row_bytes

    def places(self, index: Ints) -> Ints:
        """The place of each row of an index (of `layouts`) among all of a tensor."""
        return np.where(index > ZERO, index + (self.lead - 1), 0)


@dataclass(frozen=True)
class GpuTensor:
    """One of the tensors of an array."""

    rows: GpuRows
    number: int

    @property
    def address(self) -> int:
        """Where its first row is."""
        return self.rows.address(self.number)


class RowMover:
    """Gathers rows of arrays on the GPU, and gives them memory."""

    def __init__(
        self,
        sessions: dict[bool, onnxruntime.InferenceSession],
        turns: Turns,
        *,
        graphs: bool,
        capacities: Sequence[int] = (),
        most_rows: int | None = None,
    ) -> None:
        """`sessions` are those of `move_files`; they run for several threads at once, each run in a
        stream of its own, for which it waits. With `graphs` batches have few numbers of rows, of
        those up to `most_rows`, and stay where they are where they can, so that few CUDA graphs do
        for all. Caches have these `capacities`, as far as they go."""
        self.sessions, self.turns = sessions, turns
        self._graphs, self._capacities, self._most_rows = graphs, sorted(capacities), most_rows
        self._caches, self._sources = GpuBlocks(turns), GpuBlocks(turns)
        self._mutex = threading.Lock()
        self._zeros: dict[tuple[int, int], GpuRows] = {}

    def with_room(self, act: Callable[[], T], give_up: Callable[[], int] = lambda: 0) -> T:
        """What `act` gives, which is tried again where memory is short, once blocks that nobody
        uses, and what `give_up` lets go and counts, are freed.

        Raises DeviceMemoryError where it is short still.
        """
        try:
            return in_memory(act)
        except DeviceMemoryError:
            if not self._caches.release() + self._sources.release() + give_up():
                raise
        return in_memory(act)

    def round_rows(self, rows: int) -> int:
        """How many rows a batch of that many sentences has on the GPU."""
        if not self._graphs:
            return rows
        full = bucket(rows)
        return full if self._most_rows is None else min(full, max(rows, self._most_rows))

    def round_capacity(self, slots: int) -> int:
        """How many slots caches of that many have on the GPU."""
        fitting = (capacity for capacity in self._capacities if capacity >= slots > 0)
        return next(fitting, bucket_capacity(slots))

    def new(self, tensors: int, count: int, row_bytes: int) -> GpuRows:
        """An array for sources, all zeros."""
        rows = self._take(self._sources, tensors, count, row_bytes)
        self._run(rows, self.empty(tensors, row_bytes), np.full(count, ZERO), None)
        return rows

    def empty(self, tensors: int, row_bytes: int) -> GpuRows:
        """An array for caches of no rows but those of zeros; it is shared and never given back."""
        key = tensors, row_bytes
        with self.turns.take(), self._mutex:
            if key not in self._zeros:
                rows = self._take(self._caches, tensors, 0, row_bytes)
                rows.block.value.update_inplace(np.zeros(rows.block.size, np.uint8))
                self._zeros[key] = rows
            return self._zeros[key]

    def gather(self, source: GpuRows, index: Ints, other: GpuRows | None = None) -> GpuRows:
        """The rows of that index, in which those of the other array count on from the source's. The
        source is given back, or its memory is that of what is returned."""
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
        """Give an array's memory back."""
        if rows.count:
            rows.pool.give(rows.block)

    def read(self, source: GpuRows, tensor: int, index: Ints) -> bytes:
        """Rows of one tensor, copied to the host."""
        one = replace(source, tensors=1)
        shift = tensor * source.height * source.row_bytes
        with self.turns.take():
            value = self.with_room(lambda: on_gpu(index.size * source.row_bytes))
            io = self.sessions[False].io_binding()
            _bind(io.bind_input, "rows", one.shape, source.block.address + shift)
            io.bind_cpu_input("index", source.places(index.ravel()))
            shape = [1, index.size, one.shape[2]]
            _bind(io.bind_output, "moved", shape, value.data_ptr())
            self.sessions[False].run_with_iobinding(io)
            return bytes(value.numpy())

    def _take(self, pool: GpuBlocks, tensors: int, count: int, row_bytes: int) -> GpuRows:
        size = tensors * _height(count, row_bytes) * row_bytes
        block = self.with_room(lambda: pool.take(size))
        return GpuRows(block, pool, tensors, count, row_bytes)

    def _run(self, target: GpuRows, source: GpuRows, index: Ints, other: GpuRows | None) -> None:
        session = self.sessions[other is not None]
        moved = np.full(target.height, ZERO)
        places = source.places(index)
        if other is not None:
            theirs = index - (1 + source.count)
            places = np.where(theirs < 0, places, source.height + other.places(theirs))
        moved[target.lead : target.lead + target.count] = places
        with self.turns.take():
            io = session.io_binding()
            _bind(io.bind_input, "rows", source.shape, source.block.address)
            if other is not None:
                _bind(io.bind_input, "others", other.shape, other.block.address)
            io.bind_cpu_input("index", moved)
            _bind(io.bind_output, "moved", target.shape, target.block.address)
            self.with_room(lambda: session.run_with_iobinding(io))


def _lead(row_bytes: int) -> int:
    """Rows of zeros after which a tensor begins at a multiple of the alignment."""
    return ALIGNMENT_BYTES // math.gcd(ALIGNMENT_BYTES, row_bytes)


def _height(count: int, row_bytes: int) -> int:
    """All rows of a tensor of so many, such that the next one is aligned as it is."""
    lead = _lead(row_bytes)
    return lead * (1 + -(-count // lead))


def move_files() -> dict[bool, Path]:
    """The graphs that gather rows, of one array and of two."""
    return {two: Path(__file__).with_name(name) for two, name in _FILES.items()}


def _bind(bind: Any, name: str, shape: Sequence[int], address: int) -> None:
    bind(name, CUDA, 0, np.int32, shape, address)


class GpuTensors:
    """Memory for caches of one type of numbers."""

    def __init__(self, mover: RowMover, dtype: DType) -> None:
        self._mover, self._dtype = mover, dtype

    def caches(self, tensors: int, rows: int, dim: int, height: int = 1) -> GpuCaches:
        """Caches of `rows` sentences without slots."""
        return GpuCaches(self._mover, tensors, rows, FLOAT_BYTES[self._dtype] * dim, height)


class GpuCaches:
    """The caches of a running batch; see `serving.runtime.session.CacheMemory`.

    There are as many slots as the bucket of those asked for, and rows for sentences that are not.
    """

    def __init__(
        self, mover: RowMover, tensors: int, sentences: int, row_bytes: int, height: int
    ) -> None:
        self._mover, self._sentences = mover, sentences
        self.height, self.capacity, self.layout = height, 0, 0
        self.rows = mover.empty(tensors, row_bytes)
        """Where they are; the graph reads and writes them in place."""

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
        """Put the other's sentences in the place of these, the rest behind all."""
        theirs = other._own() + (1 + self.rows.count)
        self._adopt(extended(self._own(), theirs, sentences), other.rows if theirs.size else None)
        other.free()

    def lower(self, height: int) -> None:
        """Keep only the first `height` cache rows of each sentence."""
        self._adopt(self._own()[:, :height])

    def free(self) -> None:
        """Give the memory back."""
        self.capacity = 0
        self._empty()

    def _empty(self) -> None:
        self._mover.give(self.rows)
        self.rows = self._mover.empty(self.rows.tensors, self.rows.row_bytes)
        self.layout += 1

    def _own(self) -> Ints:
        return numbered(self._sentences, self.height, self.capacity)

    def _adopt(self, index_BHC: Ints, other: GpuRows | None = None) -> None:
        """Lay the caches out anew."""
        self._sentences, self.height, self.capacity = index_BHC.shape
        index_BHC = filled(index_BHC, self._mover.round_rows(self._sentences))
        if index_BHC.size:
            self.rows = self._mover.gather(self.rows, index_BHC, other)
            self.layout += 1
        else:
            self._empty()


class GpuSources:
    """What the encoder made of the sources of a batch; see `SourceMemory`."""

    def __init__(self, mover: RowMover, rows: GpuRows, mask_BS: Floats, dtype: DType) -> None:
        """`rows` are those of the sentences of the mask, and of as many more as are to be there."""
        self._mover, self.rows, self.mask_BS, self._dtype = mover, rows, mask_BS, dtype
        self.layout = 0

    @classmethod
    def merged(cls, parts: Sequence[GpuSources], groups: Sequence[Sequence[int]]) -> GpuSources:
        """One batch of several; the parts give their memory back."""
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
        """Put the other's sentences into these rows, the rest behind all, and pad the shorter."""
        own, theirs = self._own(), other._own() + (1 + self.rows.count)
        index_BS = extended(own, theirs, rows)
        taken = places(rows, len(self.mask_BS), len(other.mask_BS))
        mask_BS = fill_padded(self.mask_BS, other.mask_BS, taken, len(index_BS), -np.inf)
        self._adopt(index_BS, mask_BS, other.rows)
        other.free()

    def trim(self, length: int) -> None:
        """Cut sources to that many positions."""
        self._adopt(self._own()[:, :length], np.ascontiguousarray(self.mask_BS[:, :length]))

    def read(self, number: int, rows: Sequence[int]) -> Floats:
        """Some rows of one tensor in fp32, copied to the host."""
        number %= self.rows.tensors
        taken = self._mover.read(self.rows, number, self._own()[list(rows)])
        shape = len(rows), self.mask_BS.shape[1], -1
        if self._dtype == "bfloat16":  # the upper half of an fp32 number
            bits = np.frombuffer(taken, np.uint16).astype(np.uint32) << 16
            return bits.view(np.float32).reshape(shape)
        values: Floats = np.frombuffer(taken, self._dtype).reshape(shape)
        return values.astype(np.float32, copy=False)

    def free(self) -> None:
        """Give the memory back."""
        self._mover.give(self.rows)
        self.rows = self._mover.empty(self.rows.tensors, self.rows.row_bytes)
        self.layout += 1

    def _own(self) -> Ints:
        return numbered(*self.mask_BS.shape)

    def _adopt(self, index_BS: Ints, mask_BS: Floats, other: GpuRows | None = None) -> None:
        """Lay the sources out anew."""
        index_BS = filled(index_BS, self._mover.round_rows(len(index_BS)))
        self.rows, self.mask_BS = self._mover.gather(self.rows, index_BS, other), mask_BS
        self.layout += 1
