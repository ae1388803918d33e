"""The int8 product, this project's own on most processors, beside exact integers."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from export.passes.domains import MICROSOFT
from serving.runtime import kernels
from serving.runtime.ort import register_kernels

pytestmark = pytest.mark.skipif(
    kernels.find_compiler(os.environ) is None, reason="needs a C++ compiler"
)

ZERO_POINT = 128
ACTIVATION_SCALE = np.array([0.03], np.float32)


@cache
def weights(inputs: int, outputs: int) -> tuple[NDArray[np.int8], NDArray[Any], NDArray[Any]]:
    """Levels, scales and bias."""
    generator = np.random.default_rng(inputs * outputs)
    levels = generator.integers(-128, 128, (inputs, outputs)).astype(np.int8)
    levels[:, 0], levels[:, -1] = -128, 127
    scale, bias = generator.random((2, outputs), np.float32)
    return levels, scale + 0.5, bias


@cache
def session(
    inputs: int, outputs: int, *, bias: bool, constant: bool = True, zero_point: bool = False
) -> onnxruntime.InferenceSession:
    """One product as bundles have it, on two threads."""
    levels, scale, added = weights(inputs, outputs)
    constants: dict[str, NDArray[Any]] = {
        "weight_scale": scale,
        "zero": np.array(ZERO_POINT, np.uint8),
    }
    given = [
        helper.make_tensor_value_info("rows", TensorProto.UINT8, [None, None, None]),
        helper.make_tensor_value_info("scales", TensorProto.FLOAT, None),
    ]
    operands = ["rows", "weight", "scales", "weight_scale", "zero", "", ""]
    if constant:
        constants["weight"] = levels
    else:
        given.append(helper.make_tensor_value_info("weight", TensorProto.INT8, [inputs, None]))
    if zero_point:
        constants["weight_zero"] = np.array(1, np.int8)
        operands[5] = "weight_zero"
    if bias:
        constants["bias"] = added
        operands[6] = "bias"
    node = helper.make_node("MatMulIntegerToFloat", operands, ["out"], domain=MICROSOFT)
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph([node], "product", given, [out], initializers)
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 2
    assert kernels.native_library() is not None, "the kernels do not compile; see the log"
    register_kernels(options, int8=True)
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def random_rows(seed: int, rows: int, inputs: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (1, rows, inputs)).astype(np.uint8)


def run(
    rows: NDArray[np.uint8], outputs: int, scales: NDArray[Any], *, bias: bool
) -> NDArray[np.float32]:
    feed = {"rows": rows, "scales": scales}
    (out,) = session(rows.shape[-1], outputs, bias=bias).run(None, feed)
    return np.asarray(out)


def exact(
    rows: NDArray[np.uint8], outputs: int, scales: NDArray[Any], *, bias: bool
) -> NDArray[np.float64]:
    levels, scale, added = weights(rows.shape[-1], outputs)
    product = (rows.astype(np.int64) - ZERO_POINT) @ levels.astype(np.int64)
    return product * (scales.astype(np.float64) * scale) + (added if bias else 0.0)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    rows=st.integers(1, 70),
    inputs=st.sampled_from([1, 40, 64, 130, 512]),
    outputs=st.sampled_from([1, 16, 33, 64, 700]),
    each_row=st.booleans(),
)
@example(seed=1, rows=160, inputs=256, outputs=2048, each_row=False)
@example(seed=2, rows=160, inputs=1024, outputs=256, each_row=False)
def test_is_exact_but_for_the_rounding_of_its_scales(
    seed: int, rows: int, inputs: int, outputs: int, each_row: bool
) -> None:
    given_rows, bias, scales = random_rows(seed, rows, inputs), not each_row, ACTIVATION_SCALE[0]
    if each_row:  # where ONNX Runtime would scale the bias too, bundles add it afterwards
        scales = np.random.default_rng(seed).random((rows, 1), np.float32) + 0.5
    found = run(given_rows, outputs, np.asarray(scales), bias=bias)
    wanted = exact(given_rows, outputs, np.asarray(scales), bias=bias)
    assert found.shape == wanted.shape
    size = np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * size)


def test_the_largest_products_are_exact() -> None:
    """Their sums are those of which 16 bits lose the most."""
    rows = np.full((1, 7, 512), 255, np.uint8)
    rows[:, ::2, ::3] = 0
    found = run(rows, 700, np.asarray(ACTIVATION_SCALE[0]), bias=False)
    wanted = exact(rows, 700, np.asarray(ACTIVATION_SCALE[0]), bias=False)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(2, 50))
def test_a_row_comes_out_the_same_alone(seed: int, rows: int) -> None:
    given_rows, scale = random_rows(seed, rows, 130), np.asarray(ACTIVATION_SCALE[0])
    together = run(given_rows, 700, scale, bias=True)
    for row in (0, rows // 2, rows - 1):
        alone = run(given_rows[:, row : row + 1], 700, scale, bias=True)
        assert np.array_equal(alone[0, 0], together[0, row])


def has_product() -> bool:
    """As best_unit of serving/native/product_operator.h finds it."""
    features = set(kernels.processor_features().split())
    if "avx512f" in features:
        return bool({"amx_int8", "avx512_vnni"} & features)
    return "avx2" in features


needs_products = pytest.mark.skipif(
    not has_product(),
    reason="needs a processor with AMX, AVX-512 VNNI, or AVX2 without AVX-512",
)


@needs_products
def test_rows_and_scales_that_do_not_fit_are_refused() -> None:
    rows, scale = random_rows(4, 3, 64), np.asarray(ACTIVATION_SCALE[0])
    product = session(64, 32, bias=True)
    for feed in (
        {"rows": rows[..., :16], "scales": scale},
        {"rows": rows, "scales": scale.repeat(2)},
    ):
        with pytest.raises(Exception, match="rows, their scales, weights' scales and bias must be"):
            product.run(None, feed)


@needs_products
def test_a_zero_point_of_weights_is_refused() -> None:
    product = session(64, 32, bias=False, zero_point=True)
    feed = {"rows": random_rows(4, 2, 64), "scales": np.asarray(ACTIVATION_SCALE[0])}
    with pytest.raises(Exception, match="weights must have no zero point"):
        product.run(None, feed)


@needs_products
def test_a_weight_that_is_no_constant_is_refused() -> None:
    with pytest.raises(Exception, match="weights must be constants"):
        session(64, 64, bias=False, constant=False)


LOADED = """
import sys
from pathlib import Path
import numpy as np
from bench.machine.memory import current_rss, peak_rss
from serving.runtime.ort import load_graph
folder = Path(sys.argv[1])
load_graph(folder, "small.onnx", 1, int8=True)
before = current_rss()
session = load_graph(folder, "large.onnx", 1, int8=True)
grown = peak_rss() - before
rows = np.load(folder / "rows.npy")
found = session.run(None, {"rows": rows})
wanted = np.load(folder / "wanted.npy")
assert all(np.array_equal(part, wanted) for part in found), "other numbers"
print(grown)
"""


@pytest.mark.skipif(
    "avx512_vnni" not in kernels.processor_features().split(),
    reason="ONNX Runtime's own product may be used, which is not this project's",
)
def test_weights_are_in_memory_once_while_they_are_laid_out(tmp_path: Path) -> None:
    inputs, outputs, count = 1024, 4096, 16
    levels = np.random.default_rng(0).integers(-127, 128, (inputs, outputs)).astype(np.int8)
    rows = random_rows(1, 3, inputs)
    for name, weights_of_file in (("small", 1), ("large", count)):
        constants = {"scale": np.ones(1, np.float32), "zero": np.array(ZERO_POINT, np.uint8)}
        constants |= {f"weight_{i}": levels for i in range(weights_of_file)}
        nodes = [
            helper.make_node(
                "MatMulIntegerToFloat",
                ["rows", f"weight_{i}", "scale", "scale", "zero"],
                [f"out_{i}"],
                domain=MICROSOFT,
            )
            for i in range(weights_of_file)
        ]
        given = [helper.make_tensor_value_info("rows", TensorProto.UINT8, [None, None, inputs])]
        made = [
            helper.make_tensor_value_info(f"out_{i}", TensorProto.FLOAT, None)
            for i in range(weights_of_file)
        ]
        initializers = [numpy_helper.from_array(value, key) for key, value in constants.items()]
        graph = helper.make_graph(nodes, name, given, made, initializers)
        opsets = [helper.make_opsetid("", 24), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        (tmp_path / f"{name}.onnx").write_bytes(model.SerializeToString())
    np.save(tmp_path / "rows.npy", rows)
    wanted = (rows.astype(np.int64) - ZERO_POINT) @ levels.astype(np.int64)
    np.save(tmp_path / "wanted.npy", wanted.astype(np.float32))
    command = [sys.executable, "-c", LOADED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1.25 * count * levels.nbytes
