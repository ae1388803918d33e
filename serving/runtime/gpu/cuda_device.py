"""The first GPU by ONNX Runtime's CUDA provider: whether it is usable, and how graphs are
loaded."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnxruntime

from serving.bundle.graph import DType, Graph
from serving.bundle.manifest import Manifest
from serving.errors import BundleError
from serving.runtime.gpu.cuda_driver import DriverError, Gpu, look
from serving.runtime.gpu.cuda_memory import GpuSources, GpuTensors, RowMover, move_files
from serving.runtime.gpu.cuda_session import CudaSession, Lane
from serving.runtime.gpu.cuda_switches import GRAPHS_SWITCH, graphs_wanted, streams_wanted
from serving.runtime.gpu.sharing import Turns
from serving.runtime.session import DeviceUse

PROVIDER = "CUDAExecutionProvider"
_PACKAGE = "pip install '.[serve-cuda]'"
PACKAGE_NEEDED = f"onnxruntime-gpu is needed, in an environment without onnxruntime: {_PACKAGE}"
_CUDNN = ("libcudnn.so.9", "libcudnn.so")
_OWN_BYTES = 512 * 2**20
"""A safe estimate of what CUDA's libraries and the intermediate results of a step need besides
weights and caches."""
_ROUNDED = 2
"""Caches may take this multiple of their contents: sizes are rounded up to buckets, and joining
sentences are copied."""
_OPTIONS = {
    "device_id": "0",
    # Otherwise products of fp32 have 10 bits of precision.
    "use_tf32": "0",
    # The arena grows by what is missing, not to the next power of two.
    "arena_extend_strategy": "kSameAsRequested",
}

logger = logging.getLogger(__name__)


class NoDeviceError(Exception):
    """This process cannot compute on a GPU; the message gives the reason in one clause."""


class CudaDevice:
    """A GPU; implements `serving.runtime.session.Device`."""

    def __init__(self, mover: RowMover, use: DeviceUse, batches: int, *, graphs: bool) -> None:
        """Prepare a GPU for this many concurrent batches."""
        self._mover, self.use, self._batches, self._graphs = mover, use, batches, graphs

    def load(
        self,
        folder: Path,
        graph: Graph,
        threads: int,
        *,
        int8: bool,
        profile_prefix: Path | None = None,
    ) -> CudaSession:
        """Load a graph on the GPU. Raises BundleError if ONNX Runtime refuses it there."""
        del threads, int8
        # The encoder of a translation model runs once for many steps.
        often = any(tensor.is_cache or tensor.role == "packed_row" for tensor in graph.inputs)
        graphs = self._graphs and often
        session, captures = self._open_graph(folder, graph, profile_prefix, graphs=graphs)
        lanes = [Lane(session)]
        for _ in range(self._batches - 1):
            # With CUDA graphs a session has one stream, and reads the weights into memory again.
            if captures:
                session, _ = self._open_graph(folder, graph, None, graphs=True)
            lanes.append(Lane(session))
        return CudaSession(lanes, graph, self._mover, graphs=captures)

    def _open_graph(
        self, folder: Path, graph: Graph, profile_prefix: Path | None, *, graphs: bool
    ) -> tuple[onnxruntime.InferenceSession, bool]:
        """A graph's session, and whether it captures CUDA graphs. It needs one thread, for the few
        nodes that compute sizes."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # ONNX Runtime would plan, and keep, separate memory for each shape.
        options.enable_mem_pattern = False
        if profile_prefix is not None:
            options.enable_profiling, options.profile_file_prefix = True, str(profile_prefix)
        try:
            with self._mover.turns.take():
                return _capturing(folder / graph.file, options, graphs=graphs)
        except Exception as error:  # ONNX Runtime raises classes of its own, one for each status
            raise BundleError(
                f"{folder / graph.file}: ONNX Runtime {onnxruntime.__version__} cannot load the "
                f"graph on CUDA: {str(error).splitlines()[0]}; set MACARON_DEVICE=cpu to run it on "
                "the CPU, which is slower"
            ) from error

    def memory(self, dtype: DType) -> GpuTensors:
        """Memory on the GPU."""
        return GpuTensors(self._mover, dtype)

    def merge(self, parts: Sequence[GpuSources], groups: Sequence[Sequence[int]]) -> GpuSources:
        """Merge several batches of sources into one."""
        return GpuSources.merged(parts, groups)


@dataclass(frozen=True)
class _Opened:
    """State that all bundles of this process share."""

    gpu: Gpu
    mover: RowMover
    graphs: bool


def installed() -> tuple[str, list[str]]:
    """The version of ONNX Runtime and its execution providers."""
    return onnxruntime.__version__, onnxruntime.get_available_providers()


def open_cuda(folder: Path, manifest: Manifest, cache_bytes: int, batches: int = 1) -> CudaDevice:
    """Open the GPU for a bundle with this many concurrent batches, whose caches may take
    `cache_bytes` in total.

    Raises NoDeviceError, before anything is loaded, if there is no usable GPU or too little of its
    memory is free.
    """
    opened = _open()
    try:
        gpu = look()
    except DriverError as error:
        raise NoDeviceError(str(error)) from error
    weights = weight_bytes(folder, manifest, batches)
    needed = needed_bytes(folder, manifest, cache_bytes, batches)
    if gpu.free_bytes < needed:
        raise NoDeviceError(
            f"{_mib(gpu.free_bytes)} of {_mib(gpu.total_bytes)} of {gpu.name}'s memory are free, "
            f"and {_mib(needed)} are needed: {_mib(weights)} for weights, "
            f"{_mib(_ROUNDED * cache_bytes)} for what batches may take, {_mib(_OWN_BYTES)} for "
            "CUDA; let batches take less, or free some"
        )
    graphs = "CUDA graphs" if opened.graphs else f"no CUDA graphs ({GRAPHS_SWITCH}=off)"
    streams = f", {batches} streams" if batches > 1 else ""
    use = DeviceUse("cuda", f"{gpu.name}, {graphs}{streams}")
    return CudaDevice(opened.mover, use, batches, graphs=opened.graphs)


def needed_bytes(folder: Path, manifest: Manifest, cache_bytes: int, batches: int) -> int:
    """GPU memory that must be free for a bundle's graphs and batches."""
    return weight_bytes(folder, manifest, batches) + _ROUNDED * cache_bytes + _OWN_BYTES


def weight_bytes(folder: Path, manifest: Manifest, batches: int = 1) -> int:
    """Bytes of a bundle's graphs with their weights. Each batch has its own step graph, or its own
    graph of an encoder alone, and each graph its own copy of the weights that they share."""
    encoders = [manifest.encoder.file] if manifest.encoder is not None else []
    graphs = encoders * batches
    if manifest.step is not None:
        graphs = [manifest.step.file] * batches + encoders
    shared = [path.name for path in folder.glob("*.bin")] * len(graphs)
    return sum((folder / name).stat().st_size for name in (*graphs, *shared))


def opened_mover() -> RowMover:
    """The mover of rows on the GPU that `open_cuda` opened."""
    return _open().mover


@functools.cache
def _open() -> _Opened:
    """Look for the GPU and load the graphs that move memory there, once for all bundles."""
    if PROVIDER not in onnxruntime.get_available_providers():
        raise NoDeviceError(
            f"ONNX Runtime {onnxruntime.__version__} here is the package for the CPU "
            f"({PACKAGE_NEEDED})"
        )
    graphs, turns = graphs_wanted(os.environ), Turns(streams_wanted(os.environ))
    try:
        gpu = look()
    except DriverError as error:
        raise NoDeviceError(str(error)) from error
    needed = onnxruntime.cuda_version
    if needed and gpu.cuda[0] < int(needed.split(".")[0]):
        raise NoDeviceError(
            f"the NVIDIA driver runs CUDA {gpu.cuda[0]}.{gpu.cuda[1]} at most, and "
            f"onnxruntime-gpu {onnxruntime.__version__} needs CUDA {needed}: install a newer driver"
        )
    with contextlib.redirect_stdout(io.StringIO()):  # it prints the libraries that it does not find
        onnxruntime.preload_dlls()
    # It would log the same again, and warn at each session about things that are not faults.
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.enable_mem_pattern = False
    try:
        sessions = {
            two: _session(path, options, graphs=False) for two, path in move_files().items()
        }
    except NoDeviceError:
        raise
    except Exception as error:
        raise NoDeviceError(
            f"ONNX Runtime {onnxruntime.__version__} cannot use {gpu.name}: "
            f"{str(error).splitlines()[0]}"
        ) from error
    if not has_cudnn():
        raise NoDeviceError(
            f"cuDNN 9 is not found ({_CUDNN[0]}), which kernels of ONNX Runtime need (install what "
            f"it needs: {_PACKAGE})"
        )
    return _Opened(gpu, RowMover(sessions, turns, graphs=graphs), graphs)


def _session(
    path: Path, options: onnxruntime.SessionOptions, *, graphs: bool
) -> onnxruntime.InferenceSession:
    """A session on the GPU, or an error: ONNX Runtime would fall back to the CPU with a warning."""
    cuda = _OPTIONS | ({"enable_cuda_graph": "1"} if graphs else {})
    session = onnxruntime.InferenceSession(
        path,
        options,
        providers=[(PROVIDER, cuda), "CPUExecutionProvider"],
        enable_fallback=0,
    )
    if session.get_providers()[0] != PROVIDER:
        raise NoDeviceError(_missing_library())
    return session


def _capturing(
    path: Path, options: onnxruntime.SessionOptions, *, graphs: bool
) -> tuple[onnxruntime.InferenceSession, bool]:
    """A session, and whether it captures CUDA graphs. If ONNX Runtime finds a node that cannot be
    captured, the session runs without."""
    if graphs:
        try:
            return _session(path, options, graphs=True), True
        except NoDeviceError:
            raise
        except Exception as error:
            logger.warning("%s: runs without CUDA graphs: %s", path, str(error).splitlines()[0])
    return _session(path, options, graphs=False), False


def has_cudnn() -> bool:
    """Whether ONNX Runtime finds cuDNN when the first kernel needs it."""
    for name in _CUDNN:
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)
            return True
    return False


def _missing_library() -> str:
    """The CUDA library that the provider does not find."""
    library = Path(onnxruntime.__file__).parent / "capi" / "libonnxruntime_providers_cuda.so"
    reason = "its CUDA provider does not start"
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        reason = str(error).splitlines()[0]
    return f"{reason} (install what it needs: {_PACKAGE})"


def _mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"
