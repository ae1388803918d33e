"""Graphs on the CPU, with arrays bound to their inputs and outputs.

A graph becomes a program if it consists of operators that native code has: it runs in one call of
that code (serving/native/program.h). Any other graph runs in ONNX Runtime (`serving.runtime.ort`).
Both give the same numbers but for the rounding of norms, sums and functions.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from serving.arrays import Floats, Ints
from serving.bundle.graph import Graph
from serving.runtime.cache_tensors import (
    CacheGroups,
    Caches,
    Sources,
    aligned_empty,
    aligned_zeros,
)
from serving.runtime.graphs.file import DTYPES, GraphFile, Node, ValueInfo

_OPSETS = range(18, 25)
"""Versions of ONNX's operators that native code knows. The first is that whose Split has a number
of outputs."""
_AXES = 6
"""Most axes of a tensor."""
_MISSING = (0,) * (3 + _AXES)
_NUMBERS = {np.dtype(dtype): number for number, dtype in DTYPES.items()}
_STANDARD: dict[str, frozenset[str]] = {
    name: frozenset(attributes)
    for name, *attributes in (
        ("Add",),
        ("And",),
        ("Cast", "to"),
        ("Clip",),
        ("Concat", "axis"),
        ("ConstantOfShape",),
        ("Cos",),
        ("Div",),
        ("Equal",),
        ("Expand",),
        ("Gather", "axis"),
        ("GatherElements", "axis"),
        ("GatherND", "batch_dims"),
        ("Gelu",),
        ("Gemm", "transB"),
        ("Greater",),
        ("GreaterOrEqual",),
        ("Identity",),
        ("LayerNormalization", "axis", "epsilon"),
        ("Less",),
        ("Mul",),
        ("Not",),
        ("Or",),
        ("Pow",),
        ("QuantizeLinear",),
        ("RMSNormalization", "axis", "epsilon"),
        ("Range",),
        ("ReduceL2", "keepdims"),
        ("ReduceMean", "keepdims"),
        ("ReduceSum", "keepdims"),
        ("Relu",),
        ("Reshape", "allowzero"),
        ("Shape", "start", "end"),
        ("Sigmoid",),
        ("Sin",),
        ("Slice",),
        ("Softmax", "axis"),
        ("Split", "axis", "num_outputs"),
        ("Sqrt",),
        ("Squeeze",),
        ("Sub",),
        ("Tanh",),
        ("TensorScatter", "axis"),
        ("Transpose", *(f"perm.{axis}" for axis in range(_AXES))),
        ("Unsqueeze",),
        ("Where",),
    )
}
"""ONNX's operators that native code has (serving/native/standard.h), and the attributes that it
knows. Those of this project's own operators are all known."""
_DEFAULTS = {"alpha": 1.0, "beta": 1.0, "noop_with_empty_axes": 0, "stash_type": 1, "transA": 0}
"""Attributes that may be written out."""
_MOST_GEMMS = 2
"""Products of real numbers that a program may have, as the head of a classifier does. Where there
are more, ONNX Runtime is faster."""
_PRODUCT = ("com.microsoft", "MatMulIntegerToFloat")

logger = logging.getLogger(__name__)


class _Functions(NamedTuple):
    """The functions of the struct `ProgramFunctions` of serving/native/operators.cpp."""

    make: Callable[..., int | None]
    run: Callable[..., bool]
    free: Callable[..., None]
    reason: Callable[[], bytes]
    run_address: int


@functools.cache
def _functions(path: Path) -> _Functions:
    """The native functions of a library."""
    library = ctypes.CDLL(str(path))
    library.RegisterCustomOps.restype = ctypes.POINTER(ctypes.c_void_p * 4)
    library.RegisterCustomOps.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    make, run, free, reason = library.RegisterCustomOps(None, None).contents
    pointer = ctypes.c_void_p
    return _Functions(
        ctypes.CFUNCTYPE(pointer, ctypes.c_char_p, pointer, *[ctypes.c_size_t] * 3)(make),
        ctypes.CFUNCTYPE(ctypes.c_bool, pointer, pointer, pointer)(run),
        ctypes.CFUNCTYPE(None, pointer)(free),
        ctypes.CFUNCTYPE(ctypes.c_char_p)(reason),
        run,
    )


class CpuBinding:
    """Arrays that are bound to a graph's inputs and outputs: a run reads and writes these."""

    def __init__(
        self,
        run: Callable[[], None],
        inputs: dict[str, NDArray[Any]],
        outputs: dict[str, NDArray[Any]],
        caches: Sequence[Floats],
    ) -> None:
        self.inputs, self.outputs, self.caches = inputs, outputs, caches
        self.run = run
        """Run the graph on the contents of `inputs`. It is a function of the graph's own, because
        each step calls it."""


class CpuGraph(Protocol):
    """A graph that runs on the CPU: in ONNX Runtime, or as a program."""

    @property
    def inputs(self) -> Sequence[ValueInfo]: ...

    @property
    def outputs(self) -> Sequence[ValueInfo]: ...

    def bind(
        self, reads: Mapping[str, NDArray[Any]], writes: Mapping[str, NDArray[Any]]
    ) -> Callable[[], None]:
        """A function that runs the graph on arrays for its inputs and outputs, by name. Outputs
        that are not named are not wanted. The function keeps the arrays alive."""
        ...

    def call(
        self, reads: Mapping[str, NDArray[Any]], shapes: Mapping[str, Sequence[int]]
    ) -> list[NDArray[Any]]:
        """Run the graph once; returns new arrays of these shapes, by the names of outputs."""
        ...


class CpuSession:
    """A graph on the CPU, whose tensors are NumPy arrays."""

    def __init__(self, loaded: CpuGraph, graph: Graph) -> None:
        self._loaded, self._graph = loaded, graph
        tensors = (*graph.inputs, *graph.outputs)
        self._cached = frozenset(tensor.name for tensor in tensors if tensor.is_cache)

    def bind(
        self,
        sizes: Mapping[str, int],
        caches: Caches | CacheGroups,
        sources: Sources | None = None,
        given: Mapping[str, Sequence[NDArray[Any]]] | None = None,
        unwanted: Collection[str] = (),
    ) -> CpuBinding:
        """Bind an array to every input and output; see `GraphSession`."""
        waiting = {role: iter(arrays) for role, arrays in (given or {}).items()}
        if sources is not None:
            waiting["source"] = iter(sources.tensors)
        graph = self._graph
        inputs, outputs = dict[str, NDArray[Any]](), dict[str, NDArray[Any]]()
        reads, writes = dict[str, NDArray[Any]](), dict[str, NDArray[Any]]()
        for tensors, named in ((graph.inputs, reads), (graph.outputs, writes)):
            cached = [tensor for tensor in tensors if tensor.name in self._cached]
            for tensor, array in zip(cached, caches.arrays, strict=True):
                named[tensor.name] = array.reshape(_shape(tensor.axes, sizes))
        for tensor in graph.inputs:
            if tensor.role in waiting:
                reads[tensor.name] = next(waiting[tensor.role])
            elif tensor.name not in self._cached:
                array = aligned_zeros(_shape(tensor.axes, sizes), tensor.dtype)
                reads[tensor.name] = inputs[tensor.role] = array
        for tensor in graph.outputs:
            if tensor.name not in self._cached and tensor.role not in unwanted:
                array = aligned_zeros(_shape(tensor.axes, sizes), tensor.dtype)
                writes[tensor.name] = outputs[tensor.role] = array
        run = self._loaded.bind(reads, writes)
        return CpuBinding(run, inputs, outputs, list(caches.arrays))

    def encode(self, ids_BS: Ints, mask_BS: Floats) -> Sources:
        """Run an encoder's graph."""
        return Sources(self._call({"token": ids_BS, "source_mask": mask_BS}), mask_BS)

    def read(self, packed: Mapping[str, NDArray[Any]]) -> Floats:
        """Run the graph of an encoder alone; see `GraphSession`."""
        found_BW: Floats = self._call(packed)[0]
        return found_BW

    def _call(self, given: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Run the graph once, on arrays by role; returns the outputs."""
        reads, sizes = dict[str, NDArray[Any]](), dict[str, int]()
        for tensor in self._graph.inputs:
            reads[tensor.name] = given[tensor.role]
            for axis, size in zip(tensor.axes, given[tensor.role].shape, strict=True):
                if isinstance(axis, str):
                    sizes[axis] = size
        shapes = {tensor.name: _shape(tensor.axes, sizes) for tensor in self._graph.outputs}
        return self._loaded.call(reads, shapes)


class Program:
    """A graph that native code runs."""

    def __init__(self, functions: _Functions, graph: GraphFile, threads: int) -> None:
        """Runs share their work out to so many threads, of which the calling one is the first.

        Raises ValueError if native code refuses the graph.
        """
        self.inputs, self.outputs = graph.inputs, graph.outputs
        self.functions, self._graph = functions, graph
        table = _table(list(graph.constants.values()))
        made = functions.make(_text(graph).encode(), table.ctypes.data, threads, *graph.place())
        if not made:
            raise ValueError(functions.reason().decode())
        self.made: int = made
        graph.release()

    def __del__(self) -> None:
        if hasattr(self, "made"):
            self.functions.free(self.made)

    def bind(
        self, reads: Mapping[str, NDArray[Any]], writes: Mapping[str, NDArray[Any]]
    ) -> BoundProgram:
        """Bind contiguous arrays to its inputs and outputs, by name. Outputs that are not named are
        not wanted."""
        given = _table([reads[value.name] for value in self.inputs])
        wanted = _table([writes.get(value.name) for value in self.outputs])
        return BoundProgram(self, given, wanted, (reads, writes))

    def call(
        self, reads: Mapping[str, NDArray[Any]], shapes: Mapping[str, Sequence[int]]
    ) -> list[NDArray[Any]]:
        """Run the program once; returns new arrays of these shapes, by the names of outputs."""
        dtypes = {value.name: np.dtype(value.dtype) for value in self.outputs if value.dtype}
        writes = {name: aligned_empty(shape, dtypes[name]) for name, shape in shapes.items()}
        given = {name: np.asarray(array, order="C") for name, array in reads.items()}
        self.bind(given, writes)()
        return list(writes.values())


class BoundProgram:
    """A program with arrays for its inputs and outputs. A call runs it."""

    def __init__(
        self, program: Program, given: NDArray[np.int64], wanted: NDArray[np.int64], held: object
    ) -> None:
        """`held` are the arrays that the tables have the addresses of."""
        functions = program.functions
        self._held = program, given, wanted, held
        self._reason = functions.reason
        arguments = program.made, given.ctypes.data, wanted.ctypes.data
        self.addresses = (functions.run_address, *arguments)
        """The struct `StepGraph` of serving/native/beams.h."""
        self._run: Callable[[], bool] = functools.partial(functions.run, *arguments)

    def __call__(self) -> None:
        """Raises RuntimeError if an operator refuses its inputs."""
        if self._run():
            self.fail()

    def fail(self) -> NoReturn:
        """Raise RuntimeError with the reason for which the last run on this thread has failed."""
        raise RuntimeError(self._reason().decode())


def load_program(library: Path, file: Path, threads: int) -> Program | None:
    """The program of an ONNX file, which runs on so many threads.

    None if it has an operator that the library of native code does not know, or more products of
    real numbers than a head has, or if the file is damaged, which ONNX Runtime reports.
    """
    try:
        graph = GraphFile(file)
        if graph.opsets.get("", 0) not in _OPSETS or not all(map(_known, graph.nodes)):
            return None
        if sum(node.operator == "Gemm" for node in graph.nodes) > _MOST_GEMMS:
            return None
        return Program(_functions(library), graph, threads)
    except (OSError, ArithmeticError, LookupError, ValueError) as error:
        logger.debug("%s is not run as a program: %s", file, error)
        return None


def _known(node: Node) -> bool:
    if None in node.attributes.values():
        return False
    if node.domain == "macaron":
        return node.operator not in _STANDARD
    if (node.domain, node.operator) == _PRODUCT:
        return True
    if node.domain or node.operator not in _STANDARD:
        return False
    default = {name for name, value in node.attributes.items() if _DEFAULTS.get(name) == value}
    return node.attributes.keys() - default <= _STANDARD[node.operator]


def _text(graph: GraphFile) -> str:
    """The program in the form that native code reads (serving/native/program.h)."""
    names = [*(value.name for value in graph.inputs), *graph.constants]
    names += [output for node in graph.nodes for output in node.outputs if output]
    number = {name: place for place, name in enumerate(names)}
    if len(number) < len(names):
        raise ValueError("two values have the same name")
    number[""] = -1
    outputs = [str(number[value.name]) for value in graph.outputs]
    types = [_NUMBERS[np.dtype(value.dtype)] for value in graph.inputs if value.dtype]
    if len(types) < len(graph.inputs):
        raise ValueError("an input has an unknown type of numbers")
    head = len(graph.inputs), len(graph.constants), len(names), len(outputs), *types, *outputs
    lines = [" ".join(map(str, head))]
    for node in graph.nodes:
        words: list[object] = [node.operator]
        for values in (node.inputs, node.outputs):
            words += [len(values), *(number[name] for name in values)]
        words.append(len(node.attributes))
        for name, value in node.attributes.items():
            real = isinstance(value, float)
            bits = struct.unpack("<q", struct.pack("<d", value))[0] if real else value
            words += [name, int(real), bits]
        lines.append(" ".join(map(str, words)))
    return "\n".join(lines)


def _table(arrays: Sequence[NDArray[Any] | None]) -> NDArray[np.int64]:
    """The structs `Tensor` of serving/native/program.h for these arrays: address, type, number of
    axes, axes."""
    numbers: list[int] = []
    for array in arrays:
        if array is None:
            numbers += _MISSING
            continue
        shape = array.shape
        if not array.flags.c_contiguous or len(shape) > _AXES:
            raise ValueError(f"arrays must be contiguous and have at most {_AXES} axes")
        numbers += array.__array_interface__["data"][0], _NUMBERS[array.dtype], len(shape)
        numbers += shape + (0,) * (_AXES - len(shape))
    return np.array(numbers, np.int64)


def _shape(axes: Sequence[str | int], sizes: Mapping[str, int]) -> list[int]:
    return [axis if isinstance(axis, int) else sizes[axis] for axis in axes]
