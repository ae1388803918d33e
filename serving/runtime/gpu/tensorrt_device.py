"""The first GPU with a bundle's TensorRT engines if all of them fit, otherwise with its graphs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from serving.bundle.graph import Graph
from serving.bundle.manifest import Manifest
from serving.runtime.gpu.cuda_device import (
    CudaDevice,
    NoDeviceError,
    needed_bytes,
    open_cuda,
    opened_mover,
)
from serving.runtime.gpu.cuda_driver import DriverError, Stream, look
from serving.runtime.gpu.cuda_memory import RowMover
from serving.runtime.gpu.cuda_switches import GRAPHS_SWITCH, graphs_wanted
from serving.runtime.gpu.tensorrt_engines import EngineError, fitting_library, load_engine
from serving.runtime.gpu.tensorrt_session import EngineLane, EngineStream, TensorRtSession
from serving.runtime.session import DeviceUse


class TensorRtDevice(CudaDevice):
    """A GPU with engines; implements `serving.runtime.session.Device`."""

    def __init__(
        self,
        mover: RowMover,
        use: DeviceUse,
        streams: Sequence[EngineStream],
        *,
        graphs: bool,
    ) -> None:
        """Each stream computes one batch at a time. With `graphs`, the work of engines is
        captured."""
        super().__init__(mover, use, len(streams), graphs=graphs)
        self._streams = streams

    def load(
        self,
        folder: Path,
        graph: Graph,
        threads: int,
        *,
        int8: bool,
        profile_prefix: Path | None = None,
    ) -> TensorRtSession:
        """A graph's engines, and the graph for sizes that they do not support. Raises BundleError
        if ONNX Runtime refuses it."""
        del threads, int8
        session, _ = self._open_graph(folder, graph, profile_prefix, graphs=False)
        lanes = [EngineLane(session, graph.file, stream) for stream in self._streams]
        return TensorRtSession(lanes, graph, self._mover, graphs=self._graphs)


def open_tensorrt(
    folder: Path, manifest: Manifest, cache_bytes: int, batches: int = 1
) -> CudaDevice:
    """Open the GPU for a bundle, with its engines if all of them fit. Otherwise its graphs run, and
    the device's `reason` says why. Raises as `open_cuda` does."""
    cuda = open_cuda(folder, manifest, cache_bytes, batches)
    try:
        return _open(folder, manifest, cache_bytes, batches)
    except EngineError as error:
        cuda.use = DeviceUse(cuda.use.name, f"{cuda.use.reason}; without TensorRT: {error}")
        return cuda


def _open(folder: Path, manifest: Manifest, cache_bytes: int, batches: int) -> TensorRtDevice:
    opened = opened_mover()
    try:
        gpu = look()
        tensorrt = fitting_library(manifest, gpu)
        needed = sum(engine.bytes for engine in manifest.engines)
        left = gpu.free_bytes - needed_bytes(folder, manifest, cache_bytes, batches=1)
        _check_room(needed, left, "its engines take")
        with opened.turns.take():
            engines = [load_engine(folder, engine, tensorrt) for engine in manifest.engines]
            activations = max(engine.activation_bytes for engine in engines)
            _check_room(needed + batches * activations, left, "its engines and what they make take")
            streams = [EngineStream(Stream(), engines) for _ in range(batches)]
    except DriverError as error:
        raise NoDeviceError(str(error)) from error
    graphs = graphs_wanted(os.environ)
    mover = RowMover(
        opened.sessions,
        opened.turns,
        graphs=graphs,
        capacities=sorted({e.capacity for e in manifest.engines if e.capacity is not None}),
        most_rows=_most_rows(manifest),
    )
    reason = f"{gpu.name}, engines of {tensorrt.name} {tensorrt.version}"
    reason += ", CUDA graphs" if graphs else f", no CUDA graphs ({GRAPHS_SWITCH}=off)"
    reason += f", {batches} streams" if batches > 1 else ""
    return TensorRtDevice(mover, DeviceUse("tensorrt", reason), streams, graphs=graphs)


def _check_room(needed: int, left: int, what: str) -> None:
    if left < needed:
        raise EngineError(
            f"{what} {needed >> 20:,} MiB, and {max(left, 0) >> 20:,} MiB are free beside its "
            "graphs and caches"
        )


def _most_rows(manifest: Manifest) -> int:
    """The largest number of rows that may be padded to a bucket without exceeding the engines; none
    if their number of rows depends on the sources."""
    if any("BS" in engine.profile for engine in manifest.engines):
        return 0
    return min(engine.profile["B"][2] for engine in manifest.engines)
