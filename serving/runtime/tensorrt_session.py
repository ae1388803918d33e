"""Graphs on a GPU by TensorRT engines, in memory of the CUDA session's, which goes on to run the
graph itself for sizes that no engine takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from serving.bundle.manifest import DType, Graph, Tensor
from serving.runtime.cuda_driver import Stream
from serving.runtime.cuda_memory import LOCK, RowMover, on_gpu
from serving.runtime.cuda_session import ALIGNMENT_BYTES, Bound, CudaSession, Places, shape_of
from serving.runtime.layouts import bucket
from serving.runtime.tensorrt_engines import LoadedEngine


class TensorRtSession(CudaSession):
    """A graph by its engines; see `serving.runtime.session.GraphSession`."""

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        graph: Graph,
        mover: RowMover,
        engines: Iterable[LoadedEngine],
        stream: Stream,
    ) -> None:
        """`session` runs the graph where none of the engines does."""
        super().__init__(session, graph, mover, graphs=False)
        self._engines, self._stream = tuple(engines), stream
        self._scratch: onnxruntime.OrtValue | None = None
        self._scratch_size = 0

    def _execute(self, bound: Bound) -> None:
        engine = self._choose(bound.sizes)
        if engine is None:
            super()._execute(bound)
        else:
            self._compute(engine, bound.places, bound.sizes)

    def _run_encoder(
        self, inputs: Mapping[str, NDArray[Any]], outputs: Places, dtype: DType
    ) -> None:
        rows, length = next(iter(inputs.values())).shape
        sizes = {"B": rows, "S": length}
        engine = self._choose(sizes)
        if engine is None:
            super()._run_encoder(inputs, outputs, dtype)
            return
        offsets = _offsets([array.nbytes for array in inputs.values()])
        staged = np.zeros(offsets[-1], np.uint8)
        for offset, array in zip(offsets, inputs.values(), strict=False):
            staged[offset : offset + array.nbytes] = array.view(np.uint8).ravel()
        with LOCK:
            value = self._own.value("inputs", staged.size)
            value.update_inplace(staged)
            places = dict(outputs)
            for offset, (name, array) in zip(offsets, inputs.items(), strict=False):
                places[name] = list(array.shape), value.data_ptr() + offset
            self._compute(engine, places, sizes)

    def _choose(self, sizes: Mapping[str, int]) -> LoadedEngine | None:
        return next((each for each in self._engines if each.engine.takes(sizes)), None)

    def _compute(self, engine: LoadedEngine, places: Places, sizes: Mapping[str, int]) -> None:
        """Run an engine; outputs that have no place go where nobody looks at them."""
        shapes = {t.name: _engine_shape(t, places[t.name][0]) for t in self._graph.inputs}
        addresses = {name: address for name, (_, address) in places.items()}
        unwanted = [tensor for tensor in self._graph.outputs if tensor.name not in places]
        offsets = _offsets([_bytes(tensor, sizes) for tensor in unwanted])
        if offsets[-1] > self._scratch_size:
            self._scratch_size = bucket(offsets[-1], ALIGNMENT_BYTES)
            self._scratch = on_gpu(self._scratch_size)
        for tensor, offset in zip(unwanted, offsets, strict=False):
            assert self._scratch is not None
            addresses[tensor.name] = self._scratch.data_ptr() + offset
        engine.run(shapes, addresses, self._stream.handle)
        self._stream.wait()


def _offsets(sizes: Sequence[int]) -> list[int]:
    """Where tensors of so many bytes begin in a buffer, and the buffer's size."""
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
    return offsets


def _bytes(tensor: Tensor, sizes: Mapping[str, int]) -> int:
    """Of an output that is no cache and no source."""
    return math.prod(shape_of(tensor, sizes)) * np.dtype(tensor.dtype).itemsize


def _engine_shape(tensor: Tensor, shape: Sequence[int]) -> Sequence[int]:
    """The shape that the engine's input has: of caches without heads the same bytes as [B,1,C,D]
    (`export.static_caches`)."""
    if tensor.role == "self" and len(shape) == 3:
        return [shape[0], 1, *shape[1:]]
    return shape
