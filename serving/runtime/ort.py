"""ONNX Runtime sessions: loading graphs, and binding arrays to their inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from serving.arrays import Floats
from serving.bundle.manifest import Graph, Manifest
from serving.errors import BundleError
from serving.runtime.kernels import native_library

_INT8_PRODUCTS = "macaron.int8_products"
"""The entry of a session's options that serving/native/operators.cpp looks for."""
_EXACT_PRODUCTS = "session.x64quantprecision"
"""ONNX Runtime's own int8 products are exact on any processor where this is 1, and slower without
VNNI. serving/native/operators.cpp sets it, too, where it has no product of this project's own."""


@dataclass(frozen=True)
class Binding:
    """Arrays that are bound to a graph's inputs and outputs: a run reads and writes these."""

    io: onnxruntime.IOBinding
    inputs: dict[str, NDArray[Any]]
    """By role; the caller writes them before each run."""
    outputs: dict[str, NDArray[Any]]
    """By role; each run writes them anew."""
    held: tuple[NDArray[Any], ...]
    """Arrays of which the binding knows only addresses: they must live as long as it does."""


class Bindings:
    """The bindings of a running batch; a new layout of its caches makes all of them void."""

    def __init__(self) -> None:
        self._layout = 0
        self._made: dict[Hashable, Binding] = {}

    def get(self, layout: int, key: Hashable, make: Callable[[], Binding]) -> Binding:
        """The binding of that key to caches of that layout, made where there is none."""
        if layout != self._layout:
            self._made.clear()
            self._layout = layout
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def clear(self) -> None:
        """Forget all bindings, as must be done before the caches' memory is given back: they hold
        pointers into it."""
        self._made.clear()


def check_int8(folder: Path, manifest: Manifest) -> None:
    """Raise BundleError where a bundle needs exact int8 products and this machine has none."""
    if manifest.probe_file is not None:
        _probe_int8(load_graph(folder, manifest.probe_file, 1, int8=True), folder)


def bind(
    session: onnxruntime.InferenceSession,
    graph: Graph,
    sizes: Mapping[str, int],
    caches: Sequence[Floats],
    others: Mapping[str, Sequence[NDArray[Any]]],
    unwanted: Collection[str] = (),
) -> Binding:
    """Bind an array to every input and output of a graph.

    `caches` are read and written in place; `others`, by role, are read. Arrays for all other
    tensors are allocated, with `sizes` by letter of the axis. Outputs of the roles `unwanted` are
    left out.
    """
    io = session.io_binding()
    given: dict[str, Iterator[NDArray[Any]]] = {
        role: iter(arrays) for role, arrays in others.items()
    }
    # On a CPU these values are the arrays' own memory; `bind_input` with an address is slower.
    cache_values = [onnxruntime.OrtValue.ortvalue_from_numpy(cache) for cache in caches]
    read, written = iter(cache_values), iter(cache_values)
    inputs: dict[str, NDArray[Any]] = {}
    for tensor in graph.inputs:
        if tensor.role == "self":
            io.bind_ortvalue_input(tensor.name, next(read))
        elif tensor.role in given:
            io.bind_cpu_input(tensor.name, next(given[tensor.role]))
        else:
            array = inputs[tensor.role] = _allocate(tensor.axes, tensor.dtype, sizes)
            io.bind_cpu_input(tensor.name, array)
    outputs: dict[str, NDArray[Any]] = {}
    for tensor in graph.outputs:
        if tensor.role == "self":
            io.bind_ortvalue_output(tensor.name, next(written))
        elif tensor.role not in unwanted:
            array = outputs[tensor.role] = _allocate(tensor.axes, tensor.dtype, sizes)
            value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
            io.bind_ortvalue_output(tensor.name, value)
    held = tuple(array for arrays in (caches, *others.values()) for array in arrays)
    return Binding(io, inputs, outputs, held)


def names_by_role(graph: Graph) -> dict[str, list[str]]:
    """The names of a graph's inputs and outputs by role, in the order of the graph."""
    names: dict[str, list[str]] = {}
    for tensor in (*graph.inputs, *graph.outputs):
        names.setdefault(tensor.role, []).append(tensor.name)
    return names


def _allocate(axes: Sequence[str | int], dtype: str, sizes: Mapping[str, int]) -> NDArray[Any]:
    shape = [axis if isinstance(axis, int) else sizes[axis] for axis in axes]
    return np.zeros(shape, dtype=dtype)


def has_kernels() -> bool:
    """Whether sessions have this project's own operators."""
    return native_library() is not None


def register_kernels(options: onnxruntime.SessionOptions, *, int8: bool) -> None:
    """Have a session use this project's own operators where there are any, and exact products.

    `int8` where its graph has int8 products: these have a kernel in ONNX Runtime's own domain,
    which a graph that does not import that domain could then not use at all.
    """
    library = native_library()
    if library is None:
        options.add_session_config_entry(_EXACT_PRODUCTS, "1")
        return
    if int8:
        options.add_session_config_entry(_INT8_PRODUCTS, "1")
    options.register_custom_ops_library(str(library))


def load_graph(
    folder: Path, file: str, threads: int, *, int8: bool, profile_prefix: Path | None = None
) -> onnxruntime.InferenceSession:
    """One graph with that many intra-op threads; raises BundleError where it is refused.

    `int8` says whether it has int8 products. With `profile_prefix` ONNX Runtime writes a profile of
    all runs when the session ends.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    register_kernels(options, int8=int8)
    if profile_prefix is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profile_prefix)
    try:
        return onnxruntime.InferenceSession(
            folder / file,
            options,
            providers=["CPUExecutionProvider"],
            # Its kernel is several times slower on a CPU than Add and LayerNormalization.
            disabled_optimizers=["SkipLayerNormFusion"],
        )
    except Exception as error:  # ONNX Runtime raises classes of its own, one for each status
        raise BundleError(
            f"{folder / file}: ONNX Runtime {onnxruntime.__version__} cannot load the graph: "
            f"{str(error).splitlines()[0]}"
        ) from error


def _probe_int8(session: onnxruntime.InferenceSession, folder: Path) -> None:
    """Compare an int8 product of extreme values with its exact result, stored in the graph.

    x86 processors without VNNI would saturate sums of two u8 x s8 products at 16 bits, were it not
    for what `register_kernels` does.
    """
    found, wanted = session.run(None, {})
    if not np.array_equal(found, wanted):
        raise BundleError(
            f"{folder}: int8 products are not exact on this processor (ONNX Runtime "
            f"{onnxruntime.__version__}), so the int8 bundle would decode worse; export and serve "
            "an fp32 bundle on this machine"
        )
