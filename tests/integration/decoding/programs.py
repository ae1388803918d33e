"""Graphs as programs and in ONNX Runtime, and models of one call, for tests that compare both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from serving.runtime import kernels, ort
from serving.runtime.cpu_graphs import Program, load_program


def program_of(file: Path, threads: int = 1) -> Program:
    library = kernels.native_library()
    assert library is not None
    made = load_program(library, file, threads)
    assert made is not None, f"{file} is no program"
    return made


def session_of(file: Path) -> ort.OrtGraph:
    return ort.OrtGraph(ort.load_graph(file.parent, file.name, 1, int8=True))


def file_of(
    folder: Path,
    operator: str,
    inputs: Sequence[NDArray[Any] | None],
    outputs: Sequence[NDArray[Any]],
    **attributes: float | Sequence[int],
) -> Path:
    """A model of one call, whose inputs and outputs have the types and axes of these arrays."""
    names = ["" if array is None else f"i{place}" for place, array in enumerate(inputs)]
    results = [f"o{place}" for place in range(len(outputs))]
    node = helper.make_node(operator, names, results)
    node.attribute.extend(helper.make_attribute(*pair) for pair in attributes.items())
    return file_of_nodes(folder, [node], inputs, outputs)


def file_of_nodes(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[NDArray[Any] | None],
    outputs: Sequence[NDArray[Any]],
    constants: Mapping[str, NDArray[Any]] | None = None,
) -> Path:
    """A model with the inputs i0, i1, ... and the outputs o0, o1, ... of the types and axes of
    these arrays, and with constants by name."""

    def values(letter: str, arrays: Sequence[NDArray[Any] | None]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(
                f"{letter}{place}",
                helper.np_dtype_to_tensor_dtype(array.dtype),
                [None] * array.ndim,
            )
            for place, array in enumerate(arrays)
            if array is not None
        ]

    stored = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    ends = values("i", inputs), values("o", outputs)
    graph = helper.make_graph(list(nodes), "few", *ends, stored)
    opsets = [helper.make_opsetid("", 24)]
    file = folder / "few.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=11), file)
    return file


def counted(shape: Sequence[int], dtype: Any = np.float32) -> NDArray[Any]:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def ints(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)
