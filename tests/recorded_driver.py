"""Streams and CUDA graphs of the NVIDIA driver, on the recorded GPU.

Work that is put into a capturing stream is not done but recorded; the graph does it at each launch,
if nothing has changed since. Synchronising, or a call from another thread, breaks a capture. Calls
return the driver's own errors where these are documented.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from serving.runtime.gpu import cuda_driver
from tests.recorded_device import Recorded

_UNSUPPORTED, _INVALIDATED, _WRONG_THREAD = 900, 901, 908
"""CUDA_ERROR_STREAM_CAPTURE_..."""
Op = Callable[[int], None]
"""Does something in the stream of that handle."""


@dataclass
class StreamCapture:
    """A capture that is still going on."""

    stream: int
    thread: int
    ops: list[Op] = field(default_factory=list)
    broken: bool = False


class RecordedDriver:
    """libcuda.so.1, as far as this project calls it beside `look`."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        self._handles = itertools.count(1000)
        self.streams: set[int] = set()
        self.graphs: dict[int, list[Op]] = {}
        self.instances: dict[int, list[Op]] = {}
        self.launches = 0
        self.capture: StreamCapture | None = None

    def put(self, stream: int, op: Op) -> None:
        """Have an operation done in a stream, or captured there."""
        assert stream in self.streams, "work for a stream that is none"
        if self.capture is None or self.capture.stream != stream:
            op(stream)
            return
        assert self.capture.thread == threading.get_ident(), "a capture of another thread"
        self.capture.ops.append(op)

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802
        version._obj.value = 13000
        return 0

    def cuInit(self, flags: ctypes.c_uint) -> int:  # noqa: N802
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 1
        return 0

    def cuStreamCreate(self, stream: Any, flags: ctypes.c_uint) -> int:  # noqa: N802
        # A copy in the default stream would wait for all others.
        assert flags.value == 1, "a stream that waits for the default stream"
        stream._obj.value = next(self._handles)
        self.streams.add(stream._obj.value)
        return 0

    def cuStreamSynchronize(self, stream: ctypes.c_void_p) -> int:  # noqa: N802
        assert stream.value in self.streams
        if self.capture is not None:
            self.capture.broken = True
            return _UNSUPPORTED
        with self._recorded.call():
            self._recorded.finish(stream.value)
        return 0

    def cuStreamBeginCapture_v2(self, stream: ctypes.c_void_p, mode: ctypes.c_int) -> int:  # noqa: N802
        assert mode.value == 1, "a mode in which a call of another thread breaks the capture"
        assert stream.value in self.streams
        self._recorded.begin_capture()
        self.capture = StreamCapture(stream.value, threading.get_ident())
        return 0

    def cuStreamEndCapture(self, stream: ctypes.c_void_p, graph: Any) -> int:  # noqa: N802
        assert self.capture is not None
        capture, self.capture = self.capture, None
        self._recorded.end_capture()
        assert capture.stream == stream.value
        if capture.thread != threading.get_ident():
            return _WRONG_THREAD
        if capture.broken:
            return _INVALIDATED
        graph._obj.value = next(self._handles)
        self.graphs[graph._obj.value] = capture.ops
        return 0

    def cuGraphInstantiateWithFlags(  # noqa: N802
        self, made: Any, graph: ctypes.c_void_p, flags: ctypes.c_ulonglong
    ) -> int:
        assert flags.value == 0
        assert graph.value is not None
        made._obj.value = next(self._handles)
        self.instances[made._obj.value] = self.graphs[graph.value]
        return 0

    def cuGraphDestroy(self, graph: ctypes.c_void_p) -> int:  # noqa: N802
        assert graph.value is not None
        del self.graphs[graph.value]
        return 0

    def cuGraphExecDestroy(self, made: ctypes.c_void_p) -> int:  # noqa: N802
        assert made.value is not None
        del self.instances[made.value]
        return 0

    def cuGraphLaunch(self, made: ctypes.c_void_p, stream: ctypes.c_void_p) -> int:  # noqa: N802
        assert made.value is not None
        assert stream.value in self.streams
        assert self.capture is None, "a graph is launched while another is captured"
        self.launches += 1
        with self._recorded.call():
            for op in self.instances[made.value]:
                op(stream.value)
        return 0


@contextmanager
def recorded_driver(recorded: Recorded) -> Iterator[RecordedDriver]:
    """The driver of a machine with that GPU."""
    driver = RecordedDriver(recorded)
    real = ctypes.CDLL

    def load(name: str, *arguments: Any, **options: Any) -> Any:
        return driver if name == "libcuda.so.1" else real(name, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_driver.ctypes, "CDLL", load)
        yield driver
