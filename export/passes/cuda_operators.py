"""The operators that ONNX Runtime computes on a GPU, from the table `cuda_operators.json`.

An operator without a kernel would run on the CPU: each call would copy its values to and fro, and
no CUDA graph could contain it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
from onnx import NodeProto, TensorProto, shape_inference

from export.errors import ExportError
from export.passes.graph_check import without_weights

_TABLE = Path(__file__).with_name("cuda_operators.json")
_NO_KERNEL = frozenset({"Constant"})
"""Operators that are gone before a graph runs."""


@functools.cache
def cuda_table() -> Mapping[str, Any]:
    """The table of kernels. `operators`: by name, kernels as lists of types by type parameter;
    `others`: operators of other domains than ONNX's, as lists of the types of their first input;
    `version`: that of ONNX Runtime."""
    table: dict[str, Any] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return table


def check_operators(model: onnx.ModelProto) -> None:
    """Raise ExportError, naming the operators and types, if some have no kernel on a GPU."""
    missing = sorted(set(_missing(model)))
    if missing:
        raise ExportError(
            f"onnxruntime-gpu {cuda_table()['version']} cannot compute {', '.join(missing)} on a "
            "GPU; use a block without that, another --precision, or --target cpu"
        )


def _missing(model: onnx.ModelProto) -> Iterator[str]:
    """Operators without a kernel, with the types that their inputs and outputs have."""
    light = without_weights(model)
    graph = shape_inference.infer_shapes(light, check_type=True, strict_mode=True).graph
    types = {i.name: _type_name(i.data_type) for i in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        types[value.name] = _type_name(value.type.tensor_type.elem_type)
    opset = next(entry.version for entry in model.opset_import if not entry.domain)
    for node in graph.node:
        if node.domain:
            known = cuda_table()["others"].get(f"{node.domain}.{node.op_type}", ())
            if types.get(node.input[0]) not in known:
                yield f"{node.domain}.{node.op_type}"
        elif node.op_type not in _NO_KERNEL:
            bound = _bound_types(node, types, opset)
            kernels = cuda_table()["operators"].get(node.op_type, ())
            if not any(_takes(kernel, bound) for kernel in kernels):
                yield f"{node.op_type} of {', '.join(sorted(set(bound.values())))}"


def _bound_types(node: NodeProto, types: Mapping[str, str], opset: int) -> dict[str, str]:
    """The type that each type parameter of a node's operator has."""
    schema = onnx.defs.get_schema(node.op_type, opset)
    bound: dict[str, str] = {}
    for names, formals in ((node.input, schema.inputs), (node.output, schema.outputs)):
        for place, name in enumerate(names):
            formal = formals[min(place, len(formals) - 1)]  # the last one may be variadic
            if name:
                bound[formal.type_str] = types[name]
    return bound


def _takes(kernel: Mapping[str, list[str]], bound: Mapping[str, str]) -> bool:
    return all(bound[name] in types for name, types in kernel.items() if name in bound)


def _type_name(element: int) -> str:
    """The name of a type in the table, which is ONNX's own in small letters."""
    return TensorProto.DataType.Name(element).lower()  # type: ignore[no-any-return]
