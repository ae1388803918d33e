"""Weights in blocks of int8: the numbers, and products that read them in ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from export.arithmetic.half import HALF_TYPES, BlockLinear, half_twin
from export.arithmetic.weight_only import BLOCK, dequantize_blocks, fits, quantize_blocks
from export.gates.reference_run import MatMulNBits
from export.passes.domains import MICROSOFT
from export.passes.quantize_weights import quantize_weights
from tests.unit.training.tiny import TINY, randomised


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(1, 9), st.floats(1e-4, 1e3), st.integers(0, 2**31))
def test_each_weight_is_within_half_a_level_of_its_block(
    blocks: int, outputs: int, size: float, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    weight_KN = (size * generator.normal(size=(blocks * BLOCK, outputs))).astype(np.float16)
    levels_NGW, scale_NG = quantize_blocks(weight_KN)
    assert levels_NGW.shape == (outputs, blocks, BLOCK)
    assert levels_NGW.min() >= 1  # of 255 levels none stands for less than -127
    found_KN = dequantize_blocks(levels_NGW, scale_NG).astype(np.float64)
    level_KN = np.repeat(scale_NG.T.astype(np.float64), BLOCK, axis=0)
    # A scale has 11 bits, fewer where it is small, and so has what comes of it: the largest of a
    # block may lie beyond its last level.
    most_KN = 0.5 * level_KN + np.abs(weight_KN.astype(np.float64)) * 2**-10 + 127 * 2**-25
    assert (np.abs(found_KN - weight_KN) <= most_KN).all()


def test_a_block_of_zeros_stays_zero() -> None:
    weight_KN = np.zeros((2 * BLOCK, 3), np.float16)
    weight_KN[BLOCK:, 1] = 2.0
    assert np.array_equal(dequantize_blocks(*quantize_blocks(weight_KN)), weight_KN)
    assert not fits(weight_KN[:-1])


def graph(*weights: np.ndarray, bias: np.ndarray | None = None) -> onnx.ModelProto:
    """Products one after the other, the last one with a bias."""
    nodes, name = [], "x"
    constants = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    for number in range(len(weights)):
        last = bias is not None and number == len(weights) - 1
        operands = [name, f"w{number}", *(["b"] if last else [])]
        name = "y" if number == len(weights) - 1 else f"y{number}"
        nodes.append(helper.make_node("Gemm" if last else "MatMul", operands, [name], name=name))
    if bias is not None:
        constants.append(numpy_helper.from_array(bias, "b"))
    half = TensorProto.FLOAT16
    made = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", half, ["M", weights[0].shape[0]])],
        [helper.make_tensor_value_info("y", half, ["M", weights[-1].shape[1]])],
        constants,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def test_products_read_levels_and_add_their_bias_afterwards() -> None:
    generator = np.random.default_rng(0)
    shapes = ((64, 48), (48, 96), (96, 5))  # 48 are no whole number of blocks
    weights = [generator.normal(size=shape).astype(np.float16) / 8 for shape in shapes]
    bias, x = generator.normal(size=5).astype(np.float16), generator.normal(size=(7, 64))
    model = quantize_weights(graph(*weights, bias=bias))
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == [
        "MatMulNBits", "MatMul", "MatMulNBits", "Add",
    ]  # fmt: skip
    assert {entry.domain for entry in model.opset_import} == {"", MICROSOFT}
    sizes = {i.name: len(i.raw_data) for i in model.graph.initializer}
    assert sizes["w0_levels"] == 64 * 48
    assert "w0" not in sizes
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(None, {"x": x.astype(np.float16)})
    first, plain, last = (dequantize_blocks(*quantize_blocks(w)) if fits(w) else w for w in weights)
    wanted = x.astype(np.float16).astype(np.float64) @ first @ plain @ last + bias
    np.testing.assert_allclose(found, wanted, rtol=0.01, atol=0.01)


def test_the_reference_computes_the_operator_as_onnx_runtime_does() -> None:
    generator = np.random.default_rng(1)
    weight, x = (generator.normal(size=s).astype(np.float16) for s in ((64, 9), (3, 64)))
    model = quantize_weights(graph(weight))
    reference = onnx.reference.ReferenceEvaluator(model, new_ops=[MatMulNBits])
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (found,), (wanted,) = (each.run(None, {"x": x}) for each in (reference, session))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, wanted, rtol=0.01, atol=0.02)


def test_a_twin_has_the_weights_that_levels_stand_for() -> None:
    model = randomised(replace(TINY, model_dim=32, ffn_dim=64))
    twin = half_twin(model, HALF_TYPES["w8a16"], frozenset())
    found = dict(twin.named_modules())
    layers = {name: m for name, m in found.items() if isinstance(m, BlockLinear)}
    linears = {n: m for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    weights = {name: linear.weight for name, linear in linears.items()}
    weights["output_layer"] = model.output_weight
    assert layers.keys() == weights.keys()
    for name, layer in layers.items():
        weight_KN = weights[name].detach().numpy().T.astype(np.float16)
        if fits(weight_KN):
            weight_KN = dequantize_blocks(*quantize_blocks(weight_KN))
        assert isinstance(layer.weight_NK, torch.Tensor)
        np.testing.assert_array_equal(layer.weight_NK.numpy().T, weight_KN.astype(np.float32))
    assert any(fits(weight.detach().numpy().T) for weight in weights.values())


@pytest.mark.parametrize("bias", [True, False])
def test_the_twin_computes_what_the_graph_does(bias: bool) -> None:
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(64, 9, bias=bias), torch.randn(5, 64)
    found = BlockLinear(linear.weight, linear.bias, torch.float16)(x).numpy()
    weight_KN = linear.weight.detach().numpy().T.astype(np.float16)
    given = linear.bias.detach().numpy().astype(np.float16) if bias else None
    session = onnxruntime.InferenceSession(
        quantize_weights(graph(weight_KN, bias=given)).SerializeToString(),
        providers=["CPUExecutionProvider"],
    )
    (wanted,) = session.run(None, {"x": x.numpy().astype(np.float16)})
    np.testing.assert_allclose(found, wanted, rtol=0.01, atol=0.005)
