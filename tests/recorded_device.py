"""A simulated GPU: ONNX Runtime's calls for CUDA, carried out on the CPU and recorded.

Operations that a GPU would not allow fail here: use of memory that was never written or has been
freed, shapes that do not fit, reads of the GPU's memory other than by a copy, use of memory in one
stream while another still writes it, other work while a CUDA graph is captured, and a captured
graph that runs on other addresses than it was captured on. Work that is put into a stream of the
driver (`tests.recorded_driver`) is done at once, and counts as done when the stream has been waited
for.
"""

from __future__ import annotations

import threading
import time
import types
import weakref
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from serving.runtime.gpu import cuda_device, cuda_memory, cuda_session
from serving.runtime.gpu.cuda_driver import Gpu
from serving.runtime.ort import load_graph

POISON = 0xFF
"""Byte that fills unwritten memory: fp16 and fp32 numbers of these bytes are NaN."""
SPACING = 1 << 40
"""The distance between the addresses of allocations, in bytes."""
NOTHING = np.empty(0, np.uint8)
NO_INDEX = 465152892
"""The index that TopK gave on an H200 for elements of -inf."""
CUDA_SHORT = "CUDA failure 2: out of memory ; GPU=0 ; hostname=here"
ARENA_SHORT = (
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Add "
    "node. Name:'add' Status Message: bfc_arena.cc:376 void* onnxruntime::BFCArena::"
    "AllocateRawInternal(size_t, bool) Failed to allocate memory for requested buffer of size 4096"
)
"""The error of ONNX Runtime when memory is too small."""
GPU = Gpu("Recorded GPU", (13, 0), (9, 0), 8 * 2**30, 16 * 2**30)


Span = tuple[int, int]
"""The first address of a piece of memory, and the address after its last."""


@dataclass
class Capture:
    """A captured CUDA graph: the addresses of its inputs and outputs."""

    places: dict[str, tuple[int, tuple[int, ...]]]
    serials: set[int]
    runs: int = 0


@dataclass
class Recorded:
    """A record of the calls to the GPU."""

    to_host: int = 0
    """Bytes copied by now."""
    to_device: int = 0
    live: dict[int, tuple[int, np.ndarray]] = field(default_factory=dict)
    """Allocations by address: their serial number and bytes."""
    allocated: int = 0
    """Number of allocations so far, freed ones included."""
    runs: int = 0
    captures: dict[tuple[int, int, int], Capture] = field(default_factory=dict)
    """The captures by session, thread and graph id."""
    shapes: list[dict[str, tuple[int, ...]]] = field(default_factory=list)
    """The shapes of the tensors of every run by name, except runs that move rows."""
    gpu: Gpu = GPU
    most_at_once: int = 0
    """Threads that have used the GPU at a time."""
    linger_s: float = 0.0
    """Seconds that a run takes in addition to its time on the CPU."""
    capturing: Hashable = None
    """The owner of the capture of a CUDA graph that is going on."""
    room: float = float("inf")
    """Bytes that may be allocated."""
    most_rows: float = float("inf")
    """Largest number of rows of a step, or of texts of an encoder, for which intermediate results
    fit."""
    capture_fails: bool = False
    """Whether a capture needs more memory than there is."""
    refused: int = 0
    """Allocations and runs that did not fit."""
    unfinished: list[tuple[Hashable, Span, bool]] = field(default_factory=list)
    """The memory that work reads or writes in each stream, as long as nobody has waited for the
    work."""
    bindings: weakref.WeakSet[IOBinding] = field(default_factory=weakref.WeakSet)
    """The bindings that are still referenced."""
    _mutex: threading.RLock = field(default_factory=threading.RLock)
    _inside: dict[int, int] = field(default_factory=dict)
    """The depth of each thread's nested calls."""

    @property
    def live_bytes(self) -> int:
        """Bytes that are allocated now."""
        return sum(len(memory) for _, memory in list(self.live.values()))

    @contextmanager
    def call(self) -> Iterator[None]:
        """A call of some thread's; it must not come while another thread captures."""
        me = threading.get_ident()
        with self._mutex:
            assert self.capturing in (None, me), "a call breaks the capture of another thread"
            self._inside[me] = self._inside.get(me, 0) + 1
            self.most_at_once = max(self.most_at_once, len(self._inside))
        try:
            yield
        finally:
            with self._mutex:
                self._inside[me] -= 1
                if not self._inside[me]:
                    del self._inside[me]

    def begin_capture(self) -> None:
        """A capture of this thread's, which is in a call or not."""
        me = threading.get_ident()
        with self._mutex:
            others = self._inside.keys() - {me}
            assert not others, "a graph is captured while another thread uses the GPU"
            assert self.capturing is None, "two captures at once"
            self.capturing = me

    def end_capture(self) -> None:
        self.capturing = None

    def begin(self, stream: Hashable, reads: Iterable[Span], writes: Iterable[Span]) -> None:
        """Work in a stream begins, which `finish` ends."""
        with self._mutex:
            mine = [(span, False) for span in reads] + [(span, True) for span in writes]
            for (start, end), written in mine:
                for other, (first, last), writing in self.unfinished:
                    if other != stream and (written or writing) and start < last and first < end:
                        raise AssertionError(
                            f"memory is {'written' if written else 'read'} before the stream that "
                            f"{'writes' if writing else 'reads'} it was waited for"
                        )
            self.unfinished += [(stream, span, written) for span, written in mine]

    def finish(self, stream: Hashable) -> None:
        """All work in a stream is done."""
        with self._mutex:
            self.unfinished = [each for each in self.unfinished if each[0] != stream]

    @contextmanager
    def work(self, reads: Iterable[Span] = (), writes: Iterable[Span] = ()) -> Iterator[None]:
        """Do work of this thread in its own stream, and wait for it at once."""
        stream = "thread", threading.get_ident()
        with self.call():
            self.begin(stream, reads, writes)
            try:
                yield
            finally:
                self.finish(stream)

    def allocate(self, size: int) -> None:
        """Check that there is room for that many bytes more."""
        if self.live_bytes + size > self.room:
            self.refuse(f"{CUDA_SHORT}; expr=cudaMalloc((void**)&p, size);")

    def refuse(self, message: str) -> None:
        """Raise the error of too little memory."""
        self.refused += 1
        raise RuntimeError(message)

    def find(self, address: int, size: int) -> tuple[int, np.ndarray]:
        """The serial number of the allocation that holds all these bytes, and the bytes."""
        start = address // SPACING * SPACING
        # One lookup: while a thread iterates, another one, or the garbage collector in the middle
        # of it, may give memory back.
        serial, memory = self.live.get(start, (0, NOTHING))
        if address < start + len(memory):
            if address + size > start + len(memory):
                raise AssertionError("a tensor reaches over the end of its memory")
            return serial, memory[address - start : address - start + size]
        raise AssertionError("a tensor lies in memory that was given back or never taken")


class OrtValue:
    """Bytes on the GPU."""

    _mutex = threading.Lock()

    def __init__(self, recorded: Recorded, size: int) -> None:
        self._recorded, self._size = recorded, size
        assert recorded.capturing is None, "memory is allocated while a graph is captured"
        with recorded.call(), self._mutex:
            recorded.allocate(size)
            recorded.allocated += 1
            # A GPU reuses addresses. Here none is reused, so that nothing relies on it.
            self._address = recorded.allocated * SPACING
            recorded.live[self._address] = recorded.allocated, np.full(size, POISON, np.uint8)
        weakref.finalize(self, recorded.live.pop, self._address)

    @property
    def _span(self) -> Span:
        return self._address, self._address + self._size

    def data_ptr(self) -> int:
        return self._address

    def numpy(self) -> np.ndarray:
        self._check_copy()
        with self._recorded.work(reads=[self._span]):
            self._recorded.to_host += self._size
            return self._recorded.live[self._address][1].copy()

    def update_inplace(self, data: np.ndarray | OrtValue) -> None:
        self._check_copy()
        if isinstance(data, OrtValue):
            assert data._size == self._size
            with self._recorded.work(reads=[data._span], writes=[self._span]):
                self._recorded.live[self._address][1][:] = data._recorded.live[data._address][1]
            return
        assert (data.dtype, data.size) == (np.uint8, self._size)
        with self._recorded.work(writes=[self._span]):
            self._recorded.to_device += self._size
            self._recorded.live[self._address][1][:] = data

    def _check_copy(self) -> None:
        """A copy waits for the GPU, which nothing may that is captured."""
        assert self._recorded.capturing is None, "memory is copied while a graph is captured"

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise AssertionError("the GPU's memory is no array; copy it")


class IOBinding:
    """Addresses by name; it keeps no memory alive."""

    def __init__(self, recorded: Recorded) -> None:
        recorded.bindings.add(self)
        self._recorded = recorded
        self.inputs: dict[str, tuple[int, Any, tuple[int, ...]]] = {}
        self.outputs: dict[str, tuple[int, Any, tuple[int, ...]]] = {}
        self.on_host: dict[str, np.ndarray] = {}

    def bind_input(
        self, name: str, kind: str, number: int, element: Any, shape: Any, address: int
    ) -> None:
        assert (kind, number) == ("cuda", 0)
        self.inputs[name] = address, element, tuple(shape)

    def bind_output(
        self, name: str, kind: str, number: int, element: Any, shape: Any, address: int
    ) -> None:
        assert (kind, number) == ("cuda", 0)
        self.outputs[name] = address, element, tuple(shape)

    def bind_cpu_input(self, name: str, array: np.ndarray) -> None:
        assert array.flags.c_contiguous
        with self._recorded.call():  # what the graph reads is a copy in the GPU's memory
            self._recorded.allocate(array.nbytes)
        self.on_host[name] = array


class InferenceSession:
    """A session whose nodes run on the CPU, on memory that counts as the GPU's."""

    def __init__(
        self,
        recorded: Recorded,
        path: Path,
        options: onnxruntime.SessionOptions,
        *,
        providers: list[Any],
        enable_fallback: int,
    ) -> None:
        assert enable_fallback == 0, "ONNX Runtime would go on without the GPU"
        assert [p if isinstance(p, str) else p[0] for p in providers] == [
            "CUDAExecutionProvider",
            "CPUExecutionProvider",
        ]
        assert recorded.capturing is None, "a session is opened while a graph is captured"
        self._graphs = providers[0][1].get("enable_cuda_graph") == "1"
        self._stream = threading.Lock()
        """The stream of a session with CUDA graphs; in other sessions each run has its own."""
        self._recorded, self._moves = recorded, path.name in ("rows.onnx", "rows_of_two.onnx")
        self._session = load_graph(path.parent, path.name, 1, int8=False)
        self._types = {v.name: v.type for v in self._session.get_inputs()}
        self._types |= {v.name: v.type for v in self._session.get_outputs()}

    def get_providers(self) -> list[str]:
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]

    def io_binding(self) -> IOBinding:
        return IOBinding(self._recorded)

    def run_with_iobinding(
        self, io: IOBinding, options: onnxruntime.RunOptions | None = None
    ) -> None:
        assert self._recorded.capturing is None, "ONNX Runtime runs while a graph is captured"
        if not self._graphs:
            self._run(io)
            return
        if not self._stream.acquire(blocking=False):
            raise AssertionError("two runs at once in the one stream of a session")
        try:
            if (number := _graph_id(options)) != -1:
                self._replay(io, number)
            self._run(io)
        finally:
            self._stream.release()

    def _replay(self, io: IOBinding, number: int) -> None:
        """Record the addresses that a graph is captured on, or check that they are still the
        same."""
        assert not io.on_host, "a captured graph does not see what lies on the host"
        places = {n: (a, s) for n, (a, _, s) in (*io.inputs.items(), *io.outputs.items())}
        serials = {self._recorded.find(address, 1)[0] for address, _ in places.values()}
        key = id(self), threading.get_ident(), number
        if key not in self._recorded.captures:
            self._recorded.begin_capture()
            try:
                if self._recorded.capture_fails:
                    self._recorded.refuse(ARENA_SHORT)
                self._run(io)  # once more, as before a capture
            finally:
                self._recorded.end_capture()
            self._recorded.captures[key] = Capture(places, serials)
        capture = self._recorded.captures[key]
        assert capture.places == places, "a captured graph is run on other addresses or shapes"
        assert capture.serials == serials, "a captured graph is run on other memory"
        capture.runs += 1

    def _run(self, io: IOBinding) -> None:
        assert io.inputs.keys() | io.on_host.keys() == {
            value.name for value in self._session.get_inputs()
        }
        real = self._session.io_binding()
        taken: dict[str, Span] = {}
        for name, array in io.on_host.items():
            self._recorded.to_device += array.nbytes
            real.bind_cpu_input(name, array)
        rows = next((s[0] for n, (_, _, s) in io.inputs.items() if n in ("visible", "slots")), 0)
        if rows > self._recorded.most_rows:
            self._recorded.refuse(ARENA_SHORT)
        views, found = [], {}
        spans: dict[bool, list[Span]] = {False: [], True: []}
        for bind, places in (
            (real.bind_ortvalue_input, io.inputs),
            (real.bind_ortvalue_output, io.outputs),
        ):
            for name, (address, element, shape) in places.items():
                dtype = np.dtype(element)
                assert self._types[name] == TYPES[dtype], name
                size = int(np.prod(shape)) * dtype.itemsize
                _, memory = self._recorded.find(address, max(size, 1))
                view = memory[:size].view(dtype).reshape(shape)
                if places is io.outputs:
                    self._check_apart(name, (address, address + size), taken)
                taken.setdefault(name, (address, address + size))
                spans[places is io.outputs].append((address, address + size))
                found[name] = view
                views.append(onnxruntime.OrtValue.ortvalue_from_numpy(view))
                bind(name, views[-1])
        with self._recorded.work(reads=spans[False], writes=spans[True]):
            self._session.run_with_iobinding(real)
            _choose_as_a_gpu(found)
            time.sleep(self._recorded.linger_s)
        self._recorded.runs += 1
        if not self._moves:
            self._recorded.shapes.append({n: s for n, (_, _, s) in io.inputs.items()})

    def _check_apart(
        self, name: str, place: tuple[int, int], taken: dict[str, tuple[int, int]]
    ) -> None:
        """Check that an output overlaps no input other than its own cache."""
        for other, (start, end) in taken.items():
            if place[0] < end and start < place[1]:
                assert name == f"{other}_out", f"{name} lies over {other}"
                assert place == (start, end)


def _choose_as_a_gpu(found: dict[str, np.ndarray]) -> None:
    """Do as CUDA's TopK, which ignores elements of -inf: it gives the lowest number and an invalid
    index for them."""
    scores = found.get("candidate_scores")
    if scores is None:
        return
    none = np.isneginf(scores)
    scores[none] = np.finfo(np.float32).min
    for name in ("candidate_tokens", "candidate_parents"):
        found[name][none] = NO_INDEX


def _graph_id(options: onnxruntime.RunOptions | None) -> int:
    """The id of a CUDA graph in the options; 0 if none is given, as in ONNX Runtime."""
    try:
        return int(options.get_run_config_entry("gpu_graph_id")) if options else 0
    except RuntimeError:
        return 0


TYPES = {
    np.dtype(np.float32): "tensor(float)",
    np.dtype(np.float16): "tensor(float16)",
    np.dtype(np.int64): "tensor(int64)",
    np.dtype(np.int32): "tensor(int32)",
}


@contextmanager
def recorded_gpu(gpu: Gpu = GPU) -> Iterator[Recorded]:
    """A machine with this GPU and onnxruntime-gpu."""
    recorded = Recorded(gpu=gpu)

    def value(shape: list[int], element: Any, kind: str, number: int) -> OrtValue:
        assert (element, kind, number, len(shape)) == (np.uint8, "cuda", 0, 1)
        return OrtValue(recorded, shape[0])

    fake = types.SimpleNamespace(
        __file__=onnxruntime.__file__,
        __version__="1.31.1",
        cuda_version="13.0",
        preload_dlls=lambda: None,
        set_default_logger_severity=lambda _: None,
        get_available_providers=lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"],
        OrtValue=types.SimpleNamespace(ortvalue_from_shape_and_type=value),
        InferenceSession=lambda *a, **k: InferenceSession(recorded, *a, **k),
        RunOptions=onnxruntime.RunOptions,
        SessionOptions=onnxruntime.SessionOptions,
    )
    with pytest.MonkeyPatch.context() as patch:
        for module in (cuda_memory, cuda_session, cuda_device):
            patch.setattr(module, "onnxruntime", fake)
        patch.setattr(cuda_device, "look", lambda: recorded.gpu)
        patch.setattr(cuda_device, "has_cudnn", lambda: True)
        cuda_device._open.cache_clear()
        try:
            yield recorded
        finally:
            cuda_device._open.cache_clear()
