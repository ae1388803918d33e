"""What the NVIDIA driver reports about the first GPU. It needs no other library."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import re
import uuid
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from serving.errors import DeviceLostError
from serving.runtime.gpu.cuda_switches import VISIBLE

_LIBRARY = "libcuda.so.1"
_NO_DEVICE, _TOO_OLD, _MISMATCH = 100, 35, 803
_NON_BLOCKING, _THREAD_LOCAL = 1, 1
"""CU_STREAM_NON_BLOCKING: otherwise a copy by ONNX Runtime, which is in the default stream, would
wait for the work of all batches. CU_STREAM_CAPTURE_MODE_THREAD_LOCAL."""
_LOST = frozenset((214, 220, 226, 700, 702, 709, 710, *range(714, 720), 721, 810, 911, 999))
"""The failures after which CUDA says that the process must be ended to go on (driver_types.h), and
those of a broken GPU or context: uncorrectable memory or links, a context that is gone, unknown."""
_FAILURE = re.compile(r"(?:CUDA failure|returned error) (\d+)[^;\n]*")
"""A failure of CUDA as ONNX Runtime or `DriverError` reports it, with its number."""


class DriverError(Exception):
    """There is no usable GPU; the message gives the reason in one clause."""


def device_lost(error: Exception) -> DeviceLostError | None:
    """The error to raise instead of one after which this process cannot use the GPU any more; None
    for any other."""
    found = _FAILURE.search(str(error))
    if found is None or int(found[1]) not in _LOST:
        return None
    return DeviceLostError(f"the GPU has failed ({found[0].strip()}); try again")


@dataclass(frozen=True)
class Gpu:
    """A GPU and its free memory."""

    name: str
    cuda: tuple[int, int]
    """The newest CUDA version that the driver supports."""
    compute_capability: tuple[int, int]
    free_bytes: int
    total_bytes: int


def visible_gpus(environ: Mapping[str, str], library: str = _LIBRARY) -> list[str]:
    """The GPUs that CUDA shows, by their names for CUDA_VISIBLE_DEVICES. Without a driver they are
    those that the variable names."""
    named, names = environ.get(VISIBLE), list[str]()
    if named is not None:
        parts = (name.strip() for name in named.split(","))
        names = list(itertools.takewhile(lambda name: name not in ("", "-1"), parts))
    try:
        count = _begin(library)[2]
    except DriverError:
        return names
    # CUDA shows none from the first name on that is no GPU's.
    return names[:count] if named is not None else [str(number) for number in range(count)]


def first_uuid(library: str = _LIBRARY) -> str:
    """The name of the GPU that CUDA lists first, as nvidia-smi knows it. Raises DriverError if
    there is none. It takes no memory of the GPU."""
    driver, _, _ = _begin(library)
    device, found = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    _check(driver, "cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
    _check(driver, "cuDeviceGetUuid", ctypes.byref(found), device)
    return f"GPU-{uuid.UUID(bytes=bytes(found))}"


def look(library: str = _LIBRARY) -> Gpu:
    """The GPU that CUDA lists first. Raises DriverError if there is none.

    Reading its free memory creates the CUDA context of this process.
    """
    driver, cuda, _ = _begin(library)
    device = ctypes.c_int()
    _check(driver, "cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
    name = ctypes.create_string_buffer(128)
    _check(driver, "cuDeviceGetName", name, ctypes.c_int(len(name)), device)
    major, minor = ctypes.c_int(), ctypes.c_int()
    for attribute, value in ((75, major), (76, minor)):
        _check(driver, "cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), device)
    context = ctypes.c_void_p()
    _check(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    _check(driver, "cuCtxSetCurrent", context)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _check(driver, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return Gpu(
        name.value.decode(errors="replace"),
        cuda,
        (major.value, minor.value),
        free.value,
        total.value,
    )


def _begin(library: str) -> tuple[ctypes.CDLL, tuple[int, int], int]:
    """The driver, the newest CUDA version that it supports, and the number of GPUs. Raises
    DriverError if there is none."""
    try:
        driver = ctypes.CDLL(library)
    except OSError as error:
        raise DriverError(f"no NVIDIA driver is installed ({library} is not found)") from error
    version = ctypes.c_int()
    _check(driver, "cuDriverGetVersion", ctypes.byref(version))
    cuda = version.value // 1000, version.value % 1000 // 10
    _check(driver, "cuInit", ctypes.c_uint(0), cuda=cuda)
    count = ctypes.c_int()
    _check(driver, "cuDeviceGetCount", ctypes.byref(count), cuda=cuda)
    if not count.value:
        raise DriverError(f"the NVIDIA driver finds no GPU (is {VISIBLE} empty?)")
    return driver, cuda, count.value


class Stream:
    """A stream of the first GPU, in the context of this process, which `look` creates.

    It does not synchronise with other streams. Its inputs must be ready, and its outputs are ready
    for others after `wait`.
    """

    def __init__(self, library: str = _LIBRARY) -> None:
        self._driver = ctypes.CDLL(library)
        stream = ctypes.c_void_p()
        _check(self._driver, "cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING))
        self.handle = stream.value or 0

    def wait(self) -> None:
        """Wait until all work in the stream is done. Raises DriverError if it failed."""
        _check(self._driver, "cuStreamSynchronize", ctypes.c_void_p(self.handle))

    def capture(self, work: Callable[[], None]) -> CapturedGraph:
        """Capture what `work` puts into the stream as a graph. Capturing does not run it.

        Nothing else may use the GPU meanwhile. Raises DriverError if something cannot be captured,
        and whatever `work` raises; the stream stays usable.
        """
        stream, graph = ctypes.c_void_p(self.handle), ctypes.c_void_p()
        mode = ctypes.c_int(_THREAD_LOCAL)
        _check(self._driver, "cuStreamBeginCapture_v2", stream, mode)
        try:
            work()
        except BaseException:
            # Ends the capture; fails if the work has broken it.
            with contextlib.suppress(DriverError):
                _check(self._driver, "cuStreamEndCapture", stream, ctypes.byref(graph))
                _check(self._driver, "cuGraphDestroy", graph)
            raise
        _check(self._driver, "cuStreamEndCapture", stream, ctypes.byref(graph))
        return CapturedGraph(self._driver, self.handle, graph)


class CapturedGraph:
    """Work that is started all at once, on the addresses that it was captured with."""

    def __init__(self, driver: ctypes.CDLL, stream: int, graph: ctypes.c_void_p) -> None:
        """Instantiate a graph of the driver, and destroy it, for a stream. Raises DriverError."""
        self._driver, self._stream = driver, ctypes.c_void_p(stream)
        self._made = ctypes.c_void_p()
        try:
            made, none = ctypes.byref(self._made), ctypes.c_ulonglong(0)
            _check(driver, "cuGraphInstantiateWithFlags", made, graph, none)
        finally:
            _check(driver, "cuGraphDestroy", graph)
        # Not at the end of the process: the driver may be gone by then.
        weakref.finalize(self, driver.cuGraphExecDestroy, self._made).atexit = False

    def launch(self) -> None:
        """Put the work into the stream. Raises DriverError."""
        _check(self._driver, "cuGraphLaunch", self._made, self._stream)


def _check(
    driver: ctypes.CDLL, function: str, *arguments: object, cuda: tuple[int, int] = (0, 0)
) -> None:
    """Call a function of the driver. Raises DriverError if it fails."""
    status = getattr(driver, function)(*arguments)
    if status == _NO_DEVICE:
        raise DriverError("the NVIDIA driver finds no GPU")
    if status == _TOO_OLD:
        raise DriverError(
            f"the NVIDIA driver is too old for this system (it runs CUDA {cuda[0]}.{cuda[1]})"
        )
    if status == _MISMATCH:
        raise DriverError(
            f"the NVIDIA driver's library for CUDA {cuda[0]}.{cuda[1]} does not fit the driver "
            "that the system has loaded: restart the machine if the driver was upgraded"
        )
    if status:
        raise DriverError(f"the NVIDIA driver failed: {function} returned error {status}")
