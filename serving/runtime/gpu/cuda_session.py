"""Graphs on a GPU by ONNX Runtime's CUDA provider. Frequent shapes run as CUDA graphs.

The inputs of a step are copied to the GPU at once. Outputs are copied back only when they are read.
Everything that a graph reads and writes has a fixed address, so that ONNX Runtime can capture its
kernels once and launch them together. Each run is waited for before it returns: that orders the
streams of concurrent batches.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import onnxruntime
from numpy.typing import DTypeLike, NDArray

from serving.arrays import Floats, Ints
from serving.bundle.graph import FLOAT_BYTES, DType, Graph, Tensor
from serving.runtime.cache_tensors import CacheGroups
from serving.runtime.gpu.cuda_memory import (
    ALIGNMENT_BYTES,
    CUDA,
    GpuBlock,
    GpuCaches,
    GpuRows,
    GpuSources,
    GpuTensor,
    RowMover,
    on_gpu,
)
from serving.runtime.gpu.layouts import bucket, bucket_capacity
from serving.runtime.gpu.sharing import Turns
from serving.runtime.ort import names_by_role
from serving.search.ids import PAD_ID
from serving.search.prefix_tree import ALIGNMENT

MOST_BINDINGS = 128
"""Bindings without CUDA graphs that a thread keeps; the least recently used is dropped first."""
_RUNS_BEFORE_CAPTURE = 3
"""A capture takes longer than several runs, so a shape must occur this often first; the fewer
captures are left, the more often."""
MOST_GRAPHS = 512
"""Largest number of captures per session: ONNX Runtime 1.31 keeps every one, even if asked to
release it."""
_NO_GRAPH = -1
_GRAPH_ID = "gpu_graph_id"
_BF16 = 16
"""The number of the type in ONNX. NumPy has no such type."""
_CHOICES = frozenset(
    ("candidate_score", "candidate_token", "candidate_parent", "top_score", "top_token")
)
"""Roles of outputs that are read together."""
_DEAD = np.float32(-1e30)
"""The score of a dead beam on the GPU. TopK ignores values that are not above the lowest fp32 and
returns invalid indices for them."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Place:
    """The place of a tensor in a buffer."""

    offset: int
    shape: list[int]
    dtype: DTypeLike

    def of(self, buffer: NDArray[np.uint8]) -> NDArray[Any]:
        """The tensor as a view of the buffer's copy on the host."""
        size = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        return buffer[self.offset : self.offset + size].view(self.dtype).reshape(self.shape)


class _Layout:
    """Tensors one after another in a buffer."""

    def __init__(self) -> None:
        self.places: dict[str, _Place] = {}
        self.size = 0

    def add(self, tensor: Tensor, sizes: Mapping[str, int]) -> None:
        """Append a tensor."""
        place = self.places[tensor.role] = _Place(self.size, shape_of(tensor, sizes), tensor.dtype)
        size = math.prod(place.shape) * np.dtype(place.dtype).itemsize
        self.size += -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


Places = dict[str, tuple[list[int], int]]
"""Shapes and GPU addresses by tensor name."""


class Bound:
    """A graph bound to GPU addresses, with the host's copy of its inputs."""

    def __init__(
        self,
        io: onnxruntime.IOBinding,
        sizes: Mapping[str, int],
        inputs: _Layout,
        outputs: list[_Layout],
        blocks: Iterable[GpuBlock],
    ) -> None:
        """`blocks` are those that caches and sources lie in; a binding does not keep them."""
        self.sizes, self.places = sizes, Places()
        self._blocks = [weakref.ref(block) for block in blocks]
        self.io, self.outputs = io, outputs
        # Few sizes of the largest buffer, so that many bindings share it.
        self.staged = np.zeros(bucket(inputs.size, ALIGNMENT_BYTES), np.uint8)
        self.arrays = {role: place.of(self.staged) for role, place in inputs.places.items()}
        self.input_value: onnxruntime.OrtValue
        self.output_values: list[onnxruntime.OrtValue] = []
        self.runs, self.captured = 0, False
        self.tried = False
        """Whether a capture has been tried, which may have failed."""
        self.replay: Callable[[], None] | None = None
        """Launches the captured graph, if it is not one of ONNX Runtime's."""
        self.options = _run_options(_NO_GRAPH)

    @property
    def lost(self) -> bool:
        """Whether memory that it is bound to has been freed, so that it can never run again."""
        return any(block() is None for block in self._blocks)

    def mark(self, *, captured: bool) -> None:
        """Note whether it has a CUDA graph; the pool keeps the blocks of those that have one."""
        self.captured = captured
        for found in (block() for block in self._blocks):
            if found is not None:
                (found.captures.add if captured else found.captures.discard)(self)


class Lane:
    """Runs one batch at a time, in a stream of its own. Threads that share a lane take turns."""

    def __init__(
        self, session: onnxruntime.InferenceSession, lock: threading.Lock | None = None
    ) -> None:
        """A session that captures CUDA graphs has one stream and therefore one lane. Other sessions
        run each call in a stream of its own and may serve several lanes. `lock` is for lanes that
        share a stream."""
        self.session, self.lock = session, lock or threading.Lock()
        self.threads = 0
        """Number of threads that use the lane."""


class _Own(threading.local):
    """The state of one thread: ONNX Runtime keeps captured graphs by thread, and a thread reads its
    outputs while others run."""

    ran: Bound | None = None
    """The last run, whose outputs are in the buffers."""

    def __init__(self, lanes: Sequence[Lane], mutex: threading.Lock) -> None:
        """Take the lane with the fewest threads, until the thread ends."""
        with mutex:
            self.lane = min(lanes, key=lambda lane: lane.threads)
            self.lane.threads += 1
        self._here = _Here()
        weakref.finalize(self._here, _leave, self.lane, mutex)
        self.bound: OrderedDict[object, Bound] = OrderedDict()
        self.values: WeakValueDictionary[tuple[str, int], onnxruntime.OrtValue]
        self.values = WeakValueDictionary()
        """The buffers that bindings use."""

    def value(self, use: str, size: int) -> onnxruntime.OrtValue:
        """The buffer of this size for this use. There is only one, which the bindings that use it
        keep."""
        value = self.values.get((use, size))
        if value is None:
            value = self.values[use, size] = on_gpu(size)
        return value


class _Here:
    """Thread-local state."""


def _leave(lane: Lane, mutex: threading.Lock) -> None:
    with mutex:
        lane.threads -= 1


class _Outputs(Mapping[str, Any]):
    """The outputs of the last run by role. They are copied to the host when they are read."""

    def __init__(self, own: _Own, bound: Bound, lengths: Mapping[str, int], turns: Turns) -> None:
        """`lengths` are the lengths of the first axes without the padding of a bucket."""
        self._own, self._bound, self._lengths, self._turns = own, bound, lengths, turns
        self._found: dict[str, NDArray[Any]] = {}

    def forget(self) -> None:
        """Drop the copies, because another run has begun."""
        self._found.clear()

    def shape(self, role: str) -> tuple[int, ...]:
        """The shape of an output."""
        place = next(each.places[role] for each in self._bound.outputs if role in each.places)
        return self._lengths[role], *place.shape[1:]

    def copied(self, role: str) -> NDArray[Any]:
        """An output on the host. The thread must not have begun another run since."""
        if role not in self._found:
            if self._own.ran is not self._bound:
                raise RuntimeError(f"another run has taken the place of {role}")
            number = next(n for n, each in enumerate(self._bound.outputs) if role in each.places)
            with self._turns.take():
                buffer = self._bound.output_values[number].numpy()
            for name, place in self._bound.outputs[number].places.items():
                self._found[name] = place.of(buffer)[: self._lengths[name]]
            scores = self._found.get("candidate_score")
            if scores is not None:
                scores[scores <= _DEAD] = -np.inf
        return self._found[role]

    def __getitem__(self, role: str) -> Any:
        return LaterArray(self, role) if role == "logits" else self.copied(role)

    def __contains__(self, role: object) -> bool:
        return role in self._lengths

    def __iter__(self) -> Iterator[str]:
        return iter(self._lengths)

    def __len__(self) -> int:
        return len(self._lengths)


class LaterArray:
    """Logits, which are large and rarely read. They are copied to the host on first use."""

    def __init__(self, outputs: _Outputs, role: str) -> None:
        self._outputs, self._role = outputs, role
        self.shape = outputs.shape(role)

    def __getitem__(self, key: Any) -> Any:
        return self._outputs.copied(self._role)[key]

    def reshape(self, *shape: Any) -> NDArray[Any]:
        """The array in another shape."""
        return self._outputs.copied(self._role).reshape(*shape)


class CudaBinding:
    """The binding of a batch; implements `serving.runtime.session.Binding`."""

    def __init__(
        self, session: CudaSession, own: _Own, bound: Bound, lengths: Mapping[str, int]
    ) -> None:
        """`lengths` are the lengths of the first axes of all inputs and outputs, by role."""
        self._session, self._bound = session, bound
        self.inputs = {role: array[: lengths[role]] for role, array in bound.arrays.items()}
        found = [role for layout in bound.outputs for role in layout.places]
        found_lengths = {role: lengths[role] for role in found}
        self._outputs = _Outputs(own, bound, found_lengths, session.turns)
        self.outputs: Mapping[str, Any] = self._outputs

    def run(self) -> None:
        """Run the graph on the contents of `inputs`."""
        self._outputs.forget()
        self._session.run(self._bound)


class CudaSession:
    """A graph on the GPU; implements `serving.runtime.session.GraphSession`."""

    def __init__(
        self, lanes: Sequence[Lane], graph: Graph, mover: RowMover, *, graphs: bool
    ) -> None:
        """Each lane computes one batch at a time. With `graphs`, CUDA graphs are captured."""
        self._graph, self._mover, self.turns = graph, mover, mover.turns
        self._graphs, self._captured = graphs, 0
        self._own = _Own(lanes, threading.Lock())

    def bind(
        self,
        sizes: Mapping[str, int],
        caches: GpuCaches | CacheGroups,
        sources: GpuSources | None = None,
        given: Mapping[str, Sequence[NDArray[Any]]] | None = None,
        unwanted: Collection[str] = (),
    ) -> CudaBinding:
        """Bind the graph. The same memory with the same sizes gives the earlier binding again."""
        rows = sizes["B"]
        full = self._mover.round_rows(rows)
        grown = {**sizes, "B": full}
        grown |= {axis: sizes[axis] // rows * full for axis in ("M", "BS") if axis in sizes}
        cached, rows_of = caches.arrays, sources.rows if sources else None
        serials = tuple(block.serial for block in _blocks(cached, rows_of))
        key = serials, tuple(sorted(grown.items())), frozenset(unwanted)
        bound = self._met(key, lambda: self._bind(grown, cached, rows_of, unwanted))
        lengths: dict[str, int] = {
            tensor.role: shape_of(tensor, sizes)[0]
            for tensor in (*self._graph.inputs, *self._graph.outputs)
            if not _in_memory(tensor)
        }
        if full > rows:
            _fill_rows(bound.arrays, rows)
        for role, arrays in (given or {}).items():
            bound.arrays[role][:rows] = arrays[0]
        return CudaBinding(self, self._own, bound, lengths)

    def run(self, bound: Bound) -> None:
        """Run the bound graph. It is captured after a few runs.

        Raises IndexError for slots outside the caches, because a GPU would silently read and write
        elsewhere.
        """
        _check_slots(bound.arrays)
        if "score" in bound.arrays:
            np.maximum(bound.arrays["score"], _DEAD, out=bound.arrays["score"])
        captures = self._graphs and self._worth_capturing(bound)
        own = self._own
        with self.turns.alone() if captures else self.turns.take(), own.lane.lock:
            bound.runs += 1
            own.ran = bound
            bound.input_value.update_inplace(bound.staged)
            if captures:
                bound.tried = True
                self._capture(bound)
            self._mover.with_room(
                lambda: self._execute(bound), lambda: self._give_up(bound, first=captures)
            )

    def _worth_capturing(self, bound: Bound) -> bool:
        """Whether a shape has occurred often enough for one of the captures that are left."""
        if bound.tried or bound.runs < _RUNS_BEFORE_CAPTURE:
            return False
        left = self._captures_left()
        return left > 0 and bound.runs >= _RUNS_BEFORE_CAPTURE * (MOST_GRAPHS // left)

    def _captures_left(self) -> int:
        return MOST_GRAPHS - self._captured

    def _give_up(self, bound: Bound, *, first: bool) -> int:
        """Drop the graph of a binding whose `first` run may have failed, and the buffers of others;
        returns their number. ONNX Runtime frees none of its graphs, it only stops using them."""
        freed = self._drop_plain(bound)
        if first and bound.captured:
            bound.options = _run_options(_NO_GRAPH)
            bound.mark(captured=False)
            freed += 1
        return freed

    def _capture(self, bound: Bound) -> None:
        """Capture the next run of the binding, which then uses the GPU alone."""
        self._captured += 1
        bound.options = _run_options(self._captured)
        bound.mark(captured=True)

    def _execute(self, bound: Bound) -> None:
        self._own.lane.session.run_with_iobinding(bound.io, bound.options)

    def encode(self, ids_BS: Ints, mask_BS: Floats) -> GpuSources:
        """Run an encoder's graph."""
        rows, length = ids_BS.shape
        full = self._mover.round_rows(rows)
        names = names_by_role(self._graph)
        full_ids_BS = np.full((full, length), PAD_ID, dtype=np.int64)
        full_mask_BS = np.zeros((full, length), dtype=np.float32)
        full_ids_BS[:rows], full_mask_BS[:rows] = ids_BS, mask_BS
        tensors = [tensor for tensor in self._graph.outputs if tensor.role == "source"]
        dtype, dim = tensors[0].dtype, tensors[0].axes[-1]
        assert isinstance(dim, int)
        made = self._mover.new(len(tensors), full * length, FLOAT_BYTES[dtype] * dim)
        inputs: dict[str, NDArray[Any]]
        inputs = {names["token"][0]: full_ids_BS, names["source_mask"][0]: full_mask_BS}
        outputs = {
            tensor.name: ([full, length, dim], made.address(number))
            for number, tensor in enumerate(tensors)
        }
        try:
            self._run_encoder(inputs, outputs, dtype)
        except BaseException:
            self._mover.give(made)
            raise
        return GpuSources(self._mover, made, mask_BS, dtype)

    def _run_encoder(
        self, inputs: Mapping[str, NDArray[Any]], outputs: Places, dtype: DType
    ) -> None:
        """Run an encoder's graph on arrays of the host; the outputs have this type."""
        lane = self._own.lane

        def run() -> None:
            io = lane.session.io_binding()
            for name, array in inputs.items():
                io.bind_cpu_input(name, array)
            for name, place in outputs.items():
                io.bind_output(name, CUDA, 0, _element(dtype), *place)
            lane.session.run_with_iobinding(io)

        with self.turns.take(), lane.lock:
            self._mover.with_room(run)

    def read(self, packed: Mapping[str, NDArray[Any]]) -> Floats:
        """Run the graph of an encoder alone."""
        rows, length = packed["source_mask"].shape
        sizes = {"B": rows, "S": length, "M": packed["token"].shape[1]}
        if self._graphs:
            sizes = {"B": bucket(rows), "S": bucket_capacity(length)}
            sizes["M"] = bucket(packed["token"].shape[1], ALIGNMENT)
        bound = self._met(tuple(sizes.values()), lambda: self._bind(sizes, (), None, ()))
        _lay_out(bound.arrays, packed)
        output = self._graph.outputs[0].role
        lengths: dict[str, int] = {role: len(array) for role, array in bound.arrays.items()}
        binding = CudaBinding(self, self._own, bound, {**lengths, output: rows})
        binding.run()
        found_BW: Floats = binding.outputs[output]
        return found_BW

    def _met(self, key: object, bind: Callable[[], Bound]) -> Bound:
        """The binding that this thread keeps under `key`; otherwise a new one, made by `bind`."""
        bound = self._own.bound.get(key)
        if bound is None:
            bound = self._mover.with_room(bind, self._drop_plain)
            with self.turns.take():  # what drops out may free memory
                self._keep(key, bound)
        self._own.bound.move_to_end(key)
        return bound

    def _drop_plain(self, but: Bound | None = None) -> int:
        """Drop the other bindings of this thread without a CUDA graph; returns the number of
        buffers that this frees."""
        kept, before = self._own.bound, len(self._own.values)
        with self.turns.take():
            for key in [key for key, each in kept.items() if not (each.captured or each is but)]:
                del kept[key]
        return before - len(self._own.values)

    def _keep(self, key: object, bound: Bound) -> None:
        """Keep a binding, in place of those that are lost and of the least recently used one
        without a CUDA graph."""
        kept = self._own.bound
        for lost in [other for other, each in kept.items() if each.lost]:
            del kept[lost]
        plain = [other for other, each in kept.items() if not each.captured]
        if len(plain) >= MOST_BINDINGS:
            del kept[plain[0]]
        kept[key] = bound

    def _bind(
        self,
        sizes: Mapping[str, int],
        caches: Sequence[GpuTensor],
        sources: GpuRows | None,
        unwanted: Collection[str],
    ) -> Bound:
        """Bind every input and output to an address."""
        inputs = _Layout()
        for tensor in self._graph.inputs:
            if not _in_memory(tensor):
                inputs.add(tensor, sizes)
        outputs: dict[str, _Layout] = {}
        for tensor in self._graph.outputs:
            if not tensor.is_cache and tensor.role not in unwanted:
                use: str = "choices" if tensor.role in _CHOICES else tensor.role
                outputs.setdefault(use, _Layout()).add(tensor, sizes)
        with self.turns.take():
            io = self._own.lane.session.io_binding()
            blocks = _blocks(caches, sources)
            bound = Bound(io, sizes, inputs, list(outputs.values()), blocks)
            bound.input_value = self._own.value("inputs", bound.staged.size)
            places: dict[str, tuple[onnxruntime.OrtValue, int]]
            places = {r: (bound.input_value, p.offset) for r, p in inputs.places.items()}
            for buffer, layout in outputs.items():
                value = self._own.value(buffer, layout.size)
                bound.output_values.append(value)
                places |= {r: (value, p.offset) for r, p in layout.places.items()}
            for bind, tensors in (
                (io.bind_input, self._graph.inputs),
                (io.bind_output, self._graph.outputs),
            ):
                cached, numbers = iter(caches), itertools.count()
                for tensor in tensors:
                    if tensor.is_cache:
                        address = next(cached).address
                    elif tensor.role == "source":
                        assert sources is not None
                        address = sources.address(next(numbers))
                    elif tensor.role in unwanted:
                        continue
                    else:
                        value, offset = places[tensor.role]
                        address = value.data_ptr() + offset
                    place = bound.places[tensor.name] = shape_of(tensor, sizes), address
                    bind(tensor.name, CUDA, 0, _element(tensor.dtype), *place)
        return bound


def _blocks(caches: Sequence[GpuTensor], sources: GpuRows | None) -> list[GpuBlock]:
    """The blocks that caches and sources lie in; tensors of one shape and type share one."""
    blocks = [tensor.rows.block for tensor in caches]
    return list(dict.fromkeys(blocks if sources is None else [*blocks, sources.block]))


def _run_options(graph_id: int) -> onnxruntime.RunOptions:
    options = onnxruntime.RunOptions()
    options.add_run_config_entry(_GRAPH_ID, str(graph_id))
    return options


def _fill_rows(arrays: Mapping[str, NDArray[Any]], rows: int) -> None:
    """Fill the padding rows of a bucket with harmless values."""
    for role, array in arrays.items():
        array[rows:] = -np.inf if role in ("visible", "source_mask") else 0
    for role in {"visible", "source_mask"} & arrays.keys():
        arrays[role][rows:, ..., 0] = 0.0


def _check_slots(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise IndexError if a step would write or read slots outside of its caches."""
    if "visible" not in arrays:
        return
    queries, slots = arrays["visible"].shape[2:]
    last = int(arrays["write_index"].max()) + queries
    if last > slots:
        raise IndexError(f"a step would write slot {last - 1} of caches of {slots} slots")
    if "ancestor" in arrays and (last := int(arrays["ancestor"].max())) >= slots:
        raise IndexError(f"a step would read slot {last} of caches of {slots} slots")


def _lay_out(arrays: Mapping[str, NDArray[Any]], packed: Mapping[str, NDArray[Any]]) -> None:
    """Copy packed texts into inputs of a bucket's sizes. The unused places are filled with harmless
    values: further ids are padding, and further texts see the first id alone."""
    (rows, length), width = packed["slot"].shape, arrays["slot"].shape[1]
    ids = packed["token"].shape[1]
    for role, array in arrays.items():
        array.fill(-np.inf if role == "source_mask" else 0)
    arrays["source_mask"][:, 0] = 0.0
    for role in ("token", "position", "segment"):
        arrays[role][:, :ids] = packed[role]
    for role in ("slot", "source_mask"):
        arrays[role][:rows, :length] = packed[role]
    row_M, place_M = np.divmod(packed["packed_row"], length)
    arrays["packed_row"][:ids] = row_M * width + place_M


def _in_memory(tensor: Tensor) -> bool:
    """Whether a tensor lies in the memory of the batch, rather than among the copied inputs and
    outputs."""
    return tensor.is_cache or tensor.role == "source"


def shape_of(tensor: Tensor, sizes: Mapping[str, int]) -> list[int]:
    """The shape of a tensor of the manifest, with sizes by axis letter."""
    return [axis if isinstance(axis, int) else sizes[axis] for axis in tensor.axes]


def _element(dtype: str) -> Any:
    return _BF16 if dtype == "bfloat16" else np.dtype(dtype).type
