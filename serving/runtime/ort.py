"""ONNX Runtime on the CPU: loading graphs, unless they are programs, and running those it has."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from serving.arrays import Floats, Ints
from serving.bundle.graph import DType, Graph, Tensor
from serving.bundle.manifest import Manifest
from serving.errors import BundleError
from serving.runtime.cache_tensors import BlockPool, Sources
from serving.runtime.cpu_graphs import CpuGraph, CpuSession, load_program
from serving.runtime.graphs.file import ValueInfo
from serving.runtime.graphs.weights import MappedWeights
from serving.runtime.kernels import native_library
from serving.runtime.session import Binding, DeviceUse

if TYPE_CHECKING:  # imported later, so that processes without sessions do not load it
    import onnxruntime

if find_spec("onnxruntime") is None:  # reported at once, not when the first graph is loaded
    raise ModuleNotFoundError("No module named 'onnxruntime'", name="onnxruntime")

_TYPES: dict[str, DType] = {
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(bfloat16)": "bfloat16",
}
"""Types of numbers by the names that ONNX Runtime has for them."""
_INT8_PRODUCTS = "macaron.int8_products"
"""The entry of a session's options that tells serving/native/operators.cpp that the graph has int8
products."""
_MAPPED_FILE = "macaron.mapped_file"
"""The entry of a session's options that serving/native/mapped.h reads: the address and the size in
bytes of the mapped file with the weights."""
_SPIN_DURATION = "session.intra_op.spin_duration_us"
"""The entry of a session's options with the number of microseconds that a thread without work spins
for before it sleeps."""
_SPIN_US = 1000
"""Longer than the operators between two shared products take, and than the search between two
steps. By default threads spin for tens of milliseconds. That costs their processor, and may slow
down the thread that works: on a virtual machine all operators took 1.6 times as long beside one
that spins. Another time may make another number of threads the fastest: change
`serving.fastest._SESSIONS` with it."""
_FOLDER = "session.model_external_initializers_file_folder_path"
"""The entry of a session's options with the folder of the files that a graph loaded from bytes
refers to."""
EXACT_PRODUCTS = "session.x64quantprecision"
"""The entry of a session's options that makes ONNX Runtime's own int8 products exact on any
processor when it is 1, but slower without VNNI. serving/native/operators.cpp sets it as well if it
has no product of this project's own."""


def check_int8(folder: Path, manifest: Manifest) -> None:
    """Raise BundleError if a bundle needs exact int8 products and this machine has none."""
    if manifest.probe_file is not None:
        _probe_int8(_open(folder, manifest.probe_file, 1, int8=True), folder)


class OrtGraph:
    """A graph in a session of ONNX Runtime."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self.inputs = list(map(_value, session.get_inputs()))
        self.outputs = list(map(_value, session.get_outputs()))

    def bind(
        self, reads: Mapping[str, NDArray[Any]], writes: Mapping[str, NDArray[Any]]
    ) -> Callable[[], None]:
        """See `CpuGraph`."""
        import onnxruntime

        # On a CPU a value is the array's own memory; `bind_input` with an address is slower.
        value_of = onnxruntime.OrtValue.ortvalue_from_numpy
        io = self._session.io_binding()
        for name, array in reads.items():
            io.bind_ortvalue_input(name, value_of(array))
        for name, array in writes.items():
            io.bind_ortvalue_output(name, value_of(array))
        return functools.partial(self._session.run_with_iobinding, io)

    def call(
        self, reads: Mapping[str, NDArray[Any]], shapes: Mapping[str, Sequence[int]]
    ) -> list[NDArray[Any]]:
        """See `CpuGraph`."""
        found: list[NDArray[Any]] = self._session.run(list(shapes), reads)
        return found


class CpuDevice:
    """The CPU, which runs bundles of any target but those in bf16."""

    def __init__(self, use: DeviceUse) -> None:
        self.use = use

    def load(
        self,
        folder: Path,
        graph: Graph,
        threads: int,
        *,
        int8: bool,
        profile_prefix: Path | None = None,
    ) -> CpuSession:
        """Load a graph with this many intra-op threads; see `load_graph`. Raises BundleError, too,
        if its inputs or outputs are not those that the manifest names."""
        file = folder / graph.file
        loaded = _open(folder, graph.file, threads, int8=int8, profile_prefix=profile_prefix)
        _check_tensors(file, graph.inputs, loaded.inputs, "inputs")
        _check_tensors(file, graph.outputs, loaded.outputs, "outputs")
        return CpuSession(loaded, graph)

    def memory(self, dtype: DType) -> BlockPool:
        """A pool of blocks of that type."""
        return BlockPool(dtype)

    def merge(self, parts: Sequence[Sources], groups: Sequence[Sequence[int]]) -> Sources:
        """Merge several batches of sources into one."""
        return Sources.merged(parts, groups)


def write_positions(binding: Binding, slot_positions_BC: Ints) -> None:
    """Put the positions of slots into the input of this role. A device's caches may have more slots
    than these; no query sees them."""
    binding.inputs["slot_position"][:, : slot_positions_BC.shape[1]] = slot_positions_BC


def write_visible(binding: Binding, visible_BQC: Floats) -> None:
    """Put what queries may see into the input of this role. A device's caches may have more slots
    than the search knows of; no query sees them."""
    target_BQC = binding.inputs["visible"][:, 0]
    slots = visible_BQC.shape[-1]
    target_BQC[..., :slots] = visible_BQC
    target_BQC[..., slots:] = -np.inf


def names_by_role(graph: Graph) -> dict[str, list[str]]:
    """The names of a graph's inputs and outputs by role, in the order of the graph."""
    names: dict[str, list[str]] = {}
    for tensor in (*graph.inputs, *graph.outputs):
        names.setdefault(tensor.role, []).append(tensor.name)
    return names


def has_kernels() -> bool:
    """Whether sessions use this project's own operators."""
    return native_library() is not None


def register_kernels(options: onnxruntime.SessionOptions, *, int8: bool) -> None:
    """Let a session use this project's own operators if there are any, and exact products.

    `int8` is whether its graph has int8 products: these have a kernel in ONNX Runtime's own domain,
    which a graph that does not import that domain could then not use at all.
    """
    library = native_library()
    if library is None:
        options.add_session_config_entry(EXACT_PRODUCTS, "1")
        return
    if int8:
        options.add_session_config_entry(_INT8_PRODUCTS, "1")
    options.register_custom_ops_library(str(library))


def _open(
    folder: Path, file: str, threads: int, *, int8: bool, profile_prefix: Path | None = None
) -> CpuGraph:
    """A graph as a program if it can be one, else in ONNX Runtime; see `load_graph`."""
    library = native_library()
    if library is not None and profile_prefix is None:
        program = load_program(library, folder / file, threads)
        if program is not None:
            return program
    return OrtGraph(load_graph(folder, file, threads, int8=int8, profile_prefix=profile_prefix))


def load_graph(
    folder: Path, file: str, threads: int, *, int8: bool, profile_prefix: Path | None = None
) -> onnxruntime.InferenceSession:
    """Load one graph with this many intra-op threads. Raises BundleError if it is refused.

    `int8` is whether it has int8 products. With `profile_prefix`, ONNX Runtime writes a profile of
    all runs when the session ends.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry(_SPIN_DURATION, str(_SPIN_US))
    options.log_severity_level = 3
    if profile_prefix is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profile_prefix)
    try:
        weights = MappedWeights(folder / file)
        options.add_session_config_entry(_MAPPED_FILE, "{} {}".format(*weights.place()))
        register_kernels(options, int8=int8)
        values = list(map(onnxruntime.OrtValue.ortvalue_from_numpy, weights.arrays.values()))
        for name, value in zip(weights.arrays, values, strict=True):
            options.add_initializer(name, value)
        graph = weights.graph()
        if graph is not None:
            options.add_session_config_entry(_FOLDER, str(folder))
        session = onnxruntime.InferenceSession(
            folder / file if graph is None else graph,
            options,
            providers=["CPUExecutionProvider"],
            # Its kernel is several times slower on a CPU than Add and LayerNormalization.
            disabled_optimizers=["SkipLayerNormFusion"],
        )
        session.mapped_weights = weights, values  # of which it knows only addresses
        weights.release()
        return session
    except Exception as error:  # ONNX Runtime raises classes of its own, one for each status
        raise BundleError(
            f"{folder / file}: ONNX Runtime {onnxruntime.__version__} cannot load the graph: "
            f"{str(error).splitlines()[0]}"
        ) from error


@contextlib.contextmanager
def trying_out(folder: Path) -> Iterator[None]:
    """A context for one small call of a bundle's graphs on the CPU while the bundle is loaded: a
    fault that shows there would make the first request fail. Raises BundleError for any exception
    raised within."""
    try:
        yield
    except BundleError:
        raise
    except Exception as error:  # NumPy and ONNX Runtime have no common class of their own
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        raise BundleError(
            f"{folder}: the graphs do not run as its manifest describes them ({reason}); copy the "
            "bundle again, or export it again"
        ) from error


def _check_tensors(
    path: Path, named: Sequence[Tensor], found: Sequence[ValueInfo], kind: str
) -> None:
    """Raise BundleError if the inputs or outputs of a graph are not those that are named."""
    wanted, there = {each.name: each for each in named}, {each.name: each for each in found}
    if wanted.keys() != there.keys() or len(wanted) < len(named):
        other = min(wanted.keys() ^ there.keys(), default=named[0].name)
        raise BundleError(
            f"{path}: its {kind} are not those that the manifest names ({other!r}); copy the "
            "bundle again, or export it again"
        )
    for name, tensor in wanted.items():
        _, dtype, axes = there[name]
        fits = dtype == tensor.dtype and len(axes) == len(tensor.axes)
        if not fits or not all(map(_agree, tensor.axes, axes)):
            raise BundleError(
                f"{path}: {name!r} is {dtype} {list(axes)}, and the manifest says {tensor.dtype} "
                f"{list(tensor.axes)}; copy the bundle again, or export it again"
            )


def _value(found: onnxruntime.NodeArg) -> ValueInfo:
    return ValueInfo(found.name, _TYPES.get(found.type), found.shape)


def _agree(named: str | int, found: str | int | None) -> bool:
    """Whether an axis of a graph may be the one that the manifest names. A fixed size must be the
    same; an axis with a letter may have any size that the graph knows."""
    return named == found if isinstance(named, int) else True


def _probe_int8(probe: CpuGraph, folder: Path) -> None:
    """Compare an int8 product of extreme values with its exact result, stored in the graph.

    x86 processors without VNNI would saturate sums of two u8 x s8 products at 16 bits, were it not
    for what `register_kernels` does.
    """
    shapes = {value.name: [int(size or 0) for size in value.shape] for value in probe.outputs}
    found, wanted = probe.call({}, shapes)
    if not np.array_equal(found, wanted):
        import onnxruntime

        raise BundleError(
            f"{folder}: int8 products are not exact on this processor (ONNX Runtime "
            f"{onnxruntime.__version__}), so the int8 bundle would decode worse; export and serve "
            "an fp32 bundle on this machine"
        )
