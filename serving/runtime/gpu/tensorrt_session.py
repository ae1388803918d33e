"""Graphs on a GPU by TensorRT engines, in the memory of the CUDA session, which runs the graph
itself for sizes that no engine supports.

The work of an engine for a bucket of sizes, bound to the same memory, is captured as a CUDA graph.
A graph is bound to its context as well as to addresses, so each has a context of its own. All
contexts that run in one stream share the memory for activations.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from serving.bundle.graph import DType, Tensor
from serving.runtime.gpu.cuda_driver import CapturedGraph, DriverError, Stream
from serving.runtime.gpu.cuda_memory import ALIGNMENT_BYTES, on_gpu
from serving.runtime.gpu.cuda_session import (
    MOST_GRAPHS,
    Bound,
    CudaSession,
    Lane,
    Places,
    shape_of,
)
from serving.runtime.gpu.layouts import bucket
from serving.runtime.gpu.tensorrt_engines import EngineContext, EngineError, LoadedEngine

logger = logging.getLogger(__name__)


class EngineStream:
    """A stream in which the engines of one batch run, each in a context of its own, and the memory
    for activations that they share."""

    def __init__(self, stream: Stream, engines: Sequence[LoadedEngine]) -> None:
        """Raises EngineError if a context cannot be created."""
        self.stream, self.lock = stream, threading.Lock()
        self._activations = on_gpu(max(1, *(engine.activation_bytes for engine in engines)))
        self.contexts = [(engine, self.new_context(engine)) for engine in engines]

    def new_context(self, engine: LoadedEngine) -> EngineContext:
        """A context that shares the activation memory of this stream."""
        return engine.context(self._activations.data_ptr())


class EngineLane(Lane):
    """A lane (see `Lane`). The lanes of several graphs may share a stream."""

    def __init__(
        self, session: onnxruntime.InferenceSession, file: str, engines: EngineStream
    ) -> None:
        """`file` is that of the graph. `session` runs it if none of its engines does."""
        super().__init__(session, engines.lock)
        self.stream, self.new_context = engines.stream, engines.new_context
        self._engines = [pair for pair in engines.contexts if pair[0].engine.graph == file]
        self.scratch_memory: onnxruntime.OrtValue | None = None
        """Memory for outputs that nobody reads."""
        self._scratch_size = 0

    def choose(self, sizes: Mapping[str, int]) -> tuple[LoadedEngine, EngineContext] | None:
        """The engine for these sizes, with the context in which it runs without a graph."""
        return next((pair for pair in self._engines if pair[0].engine.takes(sizes)), None)

    def scratch(self, size: int) -> int:
        """An address to which this many bytes can be written and are never read. Graphs that write
        to an earlier, smaller one keep it."""
        if size > self._scratch_size:
            full = bucket(size, ALIGNMENT_BYTES)
            self.scratch_memory, self._scratch_size = on_gpu(full), full
        return self.scratch_memory.data_ptr() if self.scratch_memory is not None else 0


class TensorRtSession(CudaSession):
    """A graph with its engines; implements `serving.runtime.session.GraphSession`."""

    def _captures_left(self) -> int:
        """Graphs that this thread may still capture; those that were dropped do not count."""
        return MOST_GRAPHS - sum(each.captured for each in self._own.bound.values())

    def _capture(self, bound: Bound) -> None:
        """Capture the work of an engine on a binding, in a context of the graph's own."""
        lane = self._lane()
        chosen = lane.choose(bound.sizes)
        if chosen is None:
            return
        try:
            context = lane.new_context(chosen[0])
            context.bind(*self._placed(bound.places, bound.sizes))
            # Extra work of the library for a new shape must not be part of the graph.
            context.run(lane.stream.handle)
            lane.stream.wait()
            graph = lane.stream.capture(lambda: context.run_captured(lane.stream.handle))
        except (DriverError, EngineError, RuntimeError) as error:
            logger.warning("%s: runs without CUDA graphs: %s", chosen[0].engine.file, error)
            self._graphs = False
            return
        bound.replay = _Replay(graph, context, lane.scratch_memory)
        bound.mark(captured=True)

    def _give_up(self, bound: Bound, *, first: bool) -> int:
        """Drop the captured graphs and contexts of this thread, except that of the current
        binding, and the buffers of others."""
        del first
        kept = self._own.bound
        gone = [key for key, each in kept.items() if each.replay is not None and each is not bound]
        for key in gone:
            del kept[key]
        return len(gone) + self._drop_plain(bound)

    def _execute(self, bound: Bound) -> None:
        lane = self._lane()
        if bound.replay is not None:
            bound.replay()
            lane.stream.wait()
            return
        chosen = lane.choose(bound.sizes)
        if chosen is None:
            super()._execute(bound)
        else:
            self._compute(chosen[1], bound.places, bound.sizes)

    def _run_encoder(
        self, inputs: Mapping[str, NDArray[Any]], outputs: Places, dtype: DType
    ) -> None:
        rows, length = next(iter(inputs.values())).shape
        sizes = {"B": rows, "S": length}
        lane = self._lane()
        chosen = lane.choose(sizes)
        if chosen is None:
            super()._run_encoder(inputs, outputs, dtype)
            return
        offsets = _offsets([array.nbytes for array in inputs.values()])
        staged = np.zeros(offsets[-1], np.uint8)
        for offset, array in zip(offsets, inputs.values(), strict=False):
            staged[offset : offset + array.nbytes] = array.view(np.uint8).ravel()

        def run() -> None:
            value = self._own.value("inputs", staged.size)
            value.update_inplace(staged)
            places = dict(outputs)
            for offset, (name, array) in zip(offsets, inputs.items(), strict=False):
                places[name] = list(array.shape), value.data_ptr() + offset
            self._compute(chosen[1], places, sizes)

        with self.turns.take(), lane.lock:
            self._mover.with_room(run)

    def _lane(self) -> EngineLane:
        lane = self._own.lane
        assert isinstance(lane, EngineLane)
        return lane

    def _compute(self, context: EngineContext, places: Places, sizes: Mapping[str, int]) -> None:
        """Run an engine, and wait for it."""
        stream = self._lane().stream
        context.bind(*self._placed(places, sizes))
        context.run(stream.handle)
        stream.wait()

    def _placed(
        self, places: Places, sizes: Mapping[str, int]
    ) -> tuple[dict[str, Sequence[int]], dict[str, int]]:
        """Shapes of an engine's inputs, and all addresses. Outputs without a place go to scratch
        memory."""
        shapes = {t.name: _engine_shape(t, places[t.name][0]) for t in self._graph.inputs}
        addresses = {name: address for name, (_, address) in places.items()}
        unwanted = [tensor for tensor in self._graph.outputs if tensor.name not in places]
        offsets = _offsets([_bytes(tensor, sizes) for tensor in unwanted])
        scratch = self._lane().scratch(offsets[-1])
        for tensor, offset in zip(unwanted, offsets, strict=False):
            addresses[tensor.name] = scratch + offset
        return shapes, addresses


class _Replay:
    """A captured graph, with the objects that it depends on."""

    def __init__(self, graph: CapturedGraph, *held: object) -> None:
        self._graph, self._held = graph, held

    def __call__(self) -> None:
        self._graph.launch()


def _offsets(sizes: Sequence[int]) -> list[int]:
    """The offsets of tensors of these sizes in a buffer, and the size of the buffer."""
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
    return offsets


def _bytes(tensor: Tensor, sizes: Mapping[str, int]) -> int:
    """The size of an output that is neither cache nor source."""
    return math.prod(shape_of(tensor, sizes)) * np.dtype(tensor.dtype).itemsize


def _engine_shape(tensor: Tensor, shape: Sequence[int]) -> Sequence[int]:
    """The shape of the engine's input. Caches without heads have the same bytes as [B,1,C,D]
    (`export.engines.static_caches`)."""
    if tensor.role == "self" and len(shape) == 3:
        return [shape[0], 1, *shape[1:]]
    return shape
