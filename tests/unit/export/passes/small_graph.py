"""Graphs of a few nodes, and what passes make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from export.arithmetic.quantize import ALIKE, Products
from export.passes.domains import MACARON, MICROSOFT
from export.passes.fusing.groups import Groups
from export.passes.int8.rewriting import Rewriting, Rule
from serving.runtime.ort import EXACT_PRODUCTS

Arrays = Mapping[str, NDArray[Any]]
Axes = Mapping[str, Sequence[str | int]]


def small_graph(
    nodes: Sequence[NodeProto],
    feed: Arrays,
    outputs: Sequence[str],
    constants: Arrays | None = None,
    axes: Axes | None = None,
) -> onnx.ModelProto:
    """A graph whose inputs are as `feed`; `axes` name those of inputs, and of values in floats that
    nothing else tells."""
    known = axes or {}
    values = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in known.items()
    }
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), known.get(name, value.shape)
        )
        for name, value in feed.items()
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        inputs,
        [values.get(name, onnx.ValueInfoProto(name=name)) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
        value_info=[v for k, v in values.items() if k not in feed and k not in outputs],
    )
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(model: onnx.ModelProto, feed: Arrays) -> list[NDArray[Any]]:
    """What ONNX Runtime computes, with integer products that are exact on every processor."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry(EXACT_PRODUCTS, "1")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(value) for value in session.run(None, dict(feed))]


def rewritten(
    model: onnx.ModelProto,
    *rules: Rule,
    int8: bool = False,
    flat_outputs: frozenset[str] = frozenset(),
    products: Products = ALIKE,
) -> onnx.ModelProto:
    """What these rules alone make of a graph."""
    return Rewriting(model, scaled={}, int8=int8, flat_outputs=flat_outputs, products=products).run(
        rules
    )


def check_fused(
    model: onnx.ModelProto,
    feed: Arrays,
    fusions: Mapping[str, Callable[[Groups, NodeProto], None]],
    calls: Sequence[str],
) -> list[NodeProto]:
    """Fuse at the nodes of these kinds: the graph then has those calls, which are returned, and
    computes the same to the bit; without calls it is as it was."""
    wanted, made = run(model, feed), onnx.ModelProto()
    made.CopyFrom(model)
    groups = Groups(made)
    for op_type, fuse_at in fusions.items():
        groups.each(op_type, fuse_at)
    groups.finish()
    found = [node for node in made.graph.node if node.domain == MACARON]
    assert [node.op_type for node in found] == list(calls)
    assert (made == model) is (not calls)
    for one, other in zip(run(made, feed), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    return found


def kinds(model: onnx.ModelProto) -> list[str]:
    """Its operators, in order."""
    return [node.op_type for node in model.graph.node]


def constants_of(model: onnx.ModelProto) -> dict[str, NDArray[Any]]:
    """Its constants by name."""
    return {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
