"""What is of 16 bits in a graph for a GPU, and what its masks hold."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from export.errors import ExportError
from export.passes.mixed_precision import MASK_FILL, mixed_precision

HALF = TensorProto.FLOAT16
BATCH, SLOTS, DIM = 2, 8, 16


def layer() -> onnx.ModelProto:
    """Norm, query, attention under a mask that is made of [B,C], feed-forward, head."""
    node = helper.make_node
    nodes = [
        node("LayerNormalization", ["x", "gain", "shift"], ["norm"], axis=-1),
        node("MatMul", ["norm", "query_weight"], ["query"]),
        node("Unsqueeze", ["mask", "axes"], ["mask_4d"]),
        node("Expand", ["mask_4d", "mask_shape"], ["mask_all"]),
        node(
            "Attention",
            ["query", "keys", "values", "mask_all"],
            ["seen"],
            q_num_heads=2,
            kv_num_heads=2,
        ),
        node("MatMul", ["seen", "up_weight"], ["up"]),
        node("Relu", ["up"], ["positive"]),
        node("MatMul", ["positive", "down_weight"], ["down"]),
        node("Add", ["x", "down"], ["residual"]),
        node("MatMul", ["residual", "head_weight"], ["logits"]),
        node("LogSoftmax", ["logits"], ["log_probs"], axis=-1),
    ]
    random = np.random.default_rng(1)
    sizes = {"query": (DIM, DIM), "up": (DIM, 3 * DIM), "down": (3 * DIM, DIM), "head": (DIM, DIM)}
    weights = {"gain": np.ones(DIM), "shift": np.zeros(DIM)}
    weights |= {
        f"{name}_weight": random.normal(size=(rows, columns)) * rows**-0.5
        for name, (rows, columns) in sizes.items()
    }
    constants = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()]
    constants.append(numpy_helper.from_array(np.array([1, 2]), "axes"))
    constants.append(numpy_helper.from_array(np.array([1, 1, 3, 1]), "mask_shape"))
    shapes = {
        "x": [BATCH, 3, DIM],
        "mask": [BATCH, SLOTS],
        "keys": [BATCH, SLOTS, DIM],
        "values": [BATCH, SLOTS, DIM],
    }
    inputs = [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in shapes.items()]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [BATCH, 3, width])
        for name, width in (("log_probs", DIM), ("up", 3 * DIM))
    ]
    graph = helper.make_graph(nodes, "layer", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


def typed(element: int, exact: Collection[str] = ()) -> tuple[onnx.ModelProto, dict[str, int]]:
    """The layer with that type, and the types of all of its values."""
    model = mixed_precision(layer(), element, half=("keys", "values"), exact=exact)
    onnx.checker.check_model(model, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    infos = (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output)
    return model, {info.name: info.type.tensor_type.elem_type for info in infos}


def run(model: onnx.ModelProto) -> np.ndarray:
    """Log-probabilities of random inputs, one slot of which each sentence does not see."""
    random = np.random.default_rng(2)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    mask = np.zeros((BATCH, SLOTS), np.float32)
    mask[:, 3] = -np.inf
    memory = [random.normal(size=(BATCH, SLOTS, DIM)).astype(np.float16) for _ in range(2)]
    if session.get_inputs()[2].type == "tensor(float)":
        memory = [tensor.astype(np.float32) for tensor in memory]
    x = random.normal(size=(BATCH, 3, DIM)).astype(np.float32)
    feeds = {"x": x, "mask": mask, "keys": memory[0], "values": memory[1]}
    result: np.ndarray = session.run(["log_probs"], feeds)[0]
    return result


@pytest.mark.parametrize("element", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_products_attention_and_what_is_between_are_of_16_bits_and_nothing_else(
    element: int,
) -> None:
    model, types = typed(element)
    half = {"keys", "values", "norm_half", "query", "seen", "up_made", "positive", "down"}
    half |= {"mask_mask", "mask_4d_mask", "mask_all_mask", "residual_half", "logits_narrow"}
    assert {name for name, found in types.items() if found == element} == half
    (attention,) = [node for node in model.graph.node if node.op_type == "Attention"]
    attributes = {a.name: helper.get_attribute_value(a) for a in attention.attribute}
    assert attributes["softmax_precision"] == TensorProto.FLOAT
    weights = {i.name: i.data_type for i in model.graph.initializer if i.name.endswith("weight")}
    assert not weights  # their fp32 forms are gone
    assert types["logits"] == types["log_probs"] == TensorProto.FLOAT


def test_the_product_of_logits_stays_fp32_where_it_is_named() -> None:
    model, types = typed(HALF, ["head_weight"])
    weights = {i.name: i.data_type for i in model.graph.initializer if i.name.endswith("weight")}
    assert weights == {"head_weight": TensorProto.FLOAT}
    assert "logits_narrow" not in types
    wanted, found, narrow = run(layer()), run(model), run(typed(HALF)[0])
    assert 0 < np.abs(wanted - found).max() < np.abs(wanted - narrow).max()


def test_half_the_bits_make_nearly_the_same_numbers() -> None:
    wanted, found = run(layer()), run(typed(HALF)[0])
    assert 0 < np.abs(wanted - found).max() < 0.01
    assert np.array_equal(run(typed(TensorProto.FLOAT)[0]), wanted)


@pytest.mark.parametrize("element", MASK_FILL)
def test_no_mask_of_attention_has_infinities(element: int) -> None:
    model, _ = typed(element)
    nodes = {output: node for node in model.graph.node for output in node.output}
    (attention,) = [node for node in model.graph.node if node.op_type == "Attention"]
    before: list[NodeProto] = []
    name = attention.input[3]
    while name in nodes:
        before.append(nodes[name])
        name = nodes[name].input[0]
    assert name == "mask"
    kinds = [node.op_type for node in before[::-1]]
    # Clipped where the mask is smallest.
    cast = [] if element == TensorProto.FLOAT else ["Cast"]
    assert kinds == ["Clip", *cast, "Unsqueeze", "Expand"]
    constants = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    assert constants[before[-1].input[1]] == np.float32(MASK_FILL[element])


def test_a_product_kept_exact_is_fp32_and_what_reads_it_is_not() -> None:
    model, types = typed(HALF, exact={"up_weight"})
    assert types["up"] == TensorProto.FLOAT
    assert types["seen"] == types["down"] == HALF
    kept = {i.name: i.data_type for i in model.graph.initializer}
    assert kept["up_weight"] == TensorProto.FLOAT
    assert kept["down_weight_half"] == HALF
    assert np.abs(run(model) - run(layer())).max() < 0.01


def test_attention_on_what_is_too_large_for_it_is_refused() -> None:
    with pytest.raises(ExportError, match=r"Attention reads query.* --precision bf16 or fp32"):
        typed(HALF, exact={"query_weight"})
