"""What the NVIDIA driver says of the first GPU, asked without any library but the driver's own."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

_LIBRARY = "libcuda.so.1"
_NO_DEVICE, _TOO_OLD = 100, (35, 803)


class DriverError(Exception):
    """There is no GPU to compute on; the message says what there is, in one clause."""


@dataclass(frozen=True)
class Gpu:
    """A GPU and what is free of its memory."""

    name: str
    cuda: tuple[int, int]
    """The newest version of CUDA that the driver runs."""
    compute_capability: tuple[int, int]
    free_bytes: int
    total_bytes: int


def look(library: str = _LIBRARY) -> Gpu:
    """The GPU that CUDA numbers first; raises DriverError where there is none.

    Asking for free memory makes the context in which everything of this process computes there.
    """
    try:
        driver = ctypes.CDLL(library)
    except OSError as error:
        raise DriverError(f"no NVIDIA driver is installed ({library} is not found)") from error
    version = ctypes.c_int()
    _check(driver, "cuDriverGetVersion", ctypes.byref(version))
    cuda = version.value // 1000, version.value % 1000 // 10
    _check(driver, "cuInit", ctypes.c_uint(0), cuda=cuda)
    device, count = ctypes.c_int(), ctypes.c_int()
    _check(driver, "cuDeviceGetCount", ctypes.byref(count), cuda=cuda)
    if not count.value:
        raise DriverError("the NVIDIA driver finds no GPU (is CUDA_VISIBLE_DEVICES empty?)")
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


class Stream:
    """A stream of the first GPU's, in the context of this process, which `look` makes.

    It waits for what was copied before, as other streams than ONNX Runtime's do by default.
    """

    def __init__(self, library: str = _LIBRARY) -> None:
        self._driver = ctypes.CDLL(library)
        stream = ctypes.c_void_p()
        _check(self._driver, "cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(0))
        self.handle = stream.value or 0

    def wait(self) -> None:
        """Wait until all work in the stream is done; raises DriverError where it failed."""
        _check(self._driver, "cuStreamSynchronize", ctypes.c_void_p(self.handle))


def _check(
    driver: ctypes.CDLL, function: str, *arguments: object, cuda: tuple[int, int] = (0, 0)
) -> None:
    """Call a function of the driver; raises DriverError where it fails."""
    status = getattr(driver, function)(*arguments)
    if status == _NO_DEVICE:
        raise DriverError("the NVIDIA driver finds no GPU")
    if status in _TOO_OLD:
        raise DriverError(
            f"the NVIDIA driver is too old for this system (it runs CUDA {cuda[0]}.{cuda[1]})"
        )
    if status:
        raise DriverError(f"the NVIDIA driver failed: {function} gave error {status}")
