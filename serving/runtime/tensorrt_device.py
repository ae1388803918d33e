"""The first GPU with a bundle's TensorRT engines, where all of them fit; else with its graphs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from serving.bundle.manifest import Graph, Manifest
from serving.runtime.cuda_device import (
    CudaDevice,
    NoDeviceError,
    needed_bytes,
    open_cuda,
    opened_mover,
)
from serving.runtime.cuda_driver import DriverError, Stream, look
from serving.runtime.cuda_memory import RowMover
from serving.runtime.session import DeviceUse
from serving.runtime.tensorrt_engines import (
    EngineError,
    LoadedEngine,
    fitting_library,
    load_engine,
)
from serving.runtime.tensorrt_session import TensorRtSession


class TensorRtDevice(CudaDevice):
    """A GPU and engines; see `serving.runtime.session.Device`."""

    def __init__(
        self, mover: RowMover, use: DeviceUse, engines: Sequence[LoadedEngine], stream: Stream
    ) -> None:
        super().__init__(mover, use, graphs=False)
        self._engines, self._stream = engines, stream

    def load(
        self,
        folder: Path,
        graph: Graph,
        threads: int,
        *,
        int8: bool,
        profile_prefix: Path | None = None,
    ) -> TensorRtSession:
        """A graph's engines, and the graph for sizes that they do not take; raises BundleError
        where ONNX Runtime refuses it."""
        del threads, int8
        session, _ = self._open_graph(folder, graph, profile_prefix)
        engines = [each for each in self._engines if each.engine.graph == graph.file]
        return TensorRtSession(session, graph, self._mover, engines, self._stream)


def open_tensorrt(folder: Path, manifest: Manifest, cache_bytes: int) -> CudaDevice:
    """The GPU for a bundle, with its engines where all of them fit this machine; else its graphs
    are run, and the device tells the reason. Raises NoDeviceError as `open_cuda` does."""
    cuda = open_cuda(folder, manifest, cache_bytes)
    try:
        return _open(folder, manifest, cache_bytes)
    except EngineError as error:
        cuda.use = DeviceUse(cuda.use.name, f"{cuda.use.reason}; without TensorRT: {error}")
        return cuda


def _open(folder: Path, manifest: Manifest, cache_bytes: int) -> TensorRtDevice:
    try:
        gpu = look()
        tensorrt = fitting_library(manifest, gpu)
        needed = sum(engine.bytes for engine in manifest.engines)
        left = gpu.free_bytes - needed_bytes(folder, manifest, cache_bytes)
        if left < needed:
            raise EngineError(
                f"its engines take {needed >> 20:,} MiB, and {max(left, 0) >> 20:,} MiB are free "
                "beside its graphs and caches"
            )
        engines = [load_engine(folder, engine, tensorrt) for engine in manifest.engines]
        stream = Stream()
    except DriverError as error:
        raise NoDeviceError(str(error)) from error
    capacities = {engine.capacity for engine in manifest.engines if engine.capacity is not None}
    mover = RowMover(opened_mover().sessions, graphs=False, capacities=sorted(capacities))
    reason = f"{gpu.name}, engines of {tensorrt.name} {tensorrt.version}"
    return TensorRtDevice(mover, DeviceUse("tensorrt", reason), engines, stream)
