"""Graphs for a GPU as TensorRT takes them: computed as before, and, where TensorRT-RTX is
installed, parsed and built ahead of time, which needs no GPU."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import shape_inference

from serving.bundle.manifest import Graph
from tests.integration.static_caches import static_caches
from tests.integration.test_cuda_graphs import TRANSLATION, Written, write

pytestmark = pytest.mark.usefixtures("traced_once")

NAMES = ["standard", "macaron", "joint fast", "full standard pre", "cascade macaron post"]
CAPACITY = 64
BOUNDS = (
    {"B": 1, "Q": 1, "S": 8, "K": 1, "R": 1, "T": 2},
    {"B": 8, "Q": 5, "S": 32, "K": 5, "R": 1, "T": 10},
    {"B": 64, "Q": 64, "S": 256, "K": 64, "R": 64, "T": 90},
)
"""Least, usual and largest sizes of a profile."""


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tensorrt")


def caches_of(graph: Graph) -> list[str]:
    return [tensor.name for tensor in graph.inputs if tensor.role == "self"]


def step_of(written: Written) -> tuple[onnx.ModelProto, Graph]:
    return list(written.graphs())[-1]


def test_graphs_with_static_caches_compute_the_same_to_the_bit(bundles: Path) -> None:
    for name in NAMES:
        model, graph = step_of(write(bundles, name, "cuda", "fp16"))
        wanted = run(model, graph)
        static_caches(model, caches_of(graph), CAPACITY)
        onnx.checker.check_model(model, full_check=True)
        shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        for value in (*model.graph.input, *model.graph.output):
            if value.name.startswith("self"):
                dims = value.type.tensor_type.shape.dim
                assert len(dims) == 4
                assert dims[2].dim_value == CAPACITY
        for a, b in zip(wanted, run(model, graph), strict=True):
            assert np.array_equal(a.ravel(), b.ravel())


def run(model: onnx.ModelProto, graph: Graph) -> list[np.ndarray]:
    """Outputs of random inputs, without caches that no query sees."""
    random = np.random.default_rng(3)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds: dict[str, np.ndarray] = {}
    sizes = {"B": 2, "Q": 3, "C": CAPACITY, "S": 8, "BS": 16, "K": 3, "R": 1, "T": 4}
    ranks = {value.name: len(value.shape) for value in session.get_inputs()}
    for tensor in graph.inputs:
        shape = [sizes[axis] if isinstance(axis, str) else axis for axis in tensor.axes]
        if tensor.role == "visible":
            feeds[tensor.name] = np.zeros(shape, np.float32)
            feeds[tensor.name][..., 40:] = -np.inf
        elif tensor.dtype == "int64":
            highest = 30 if tensor.role in ("token", "label", "position") else 1
            feeds[tensor.name] = random.integers(0, highest, shape)
        else:
            value = random.normal(size=shape).astype(tensor.dtype)
            is_new = len(shape) < ranks[tensor.name]
            feeds[tensor.name] = value[:, None] if is_new else value
    found: list[np.ndarray] = session.run(None, feeds)
    return found


@pytest.fixture(scope="module")
def tensorrt() -> Any:
    return pytest.importorskip("tensorrt_rtx_bindings")


def parsed(tensorrt: Any, model: onnx.ModelProto) -> tuple[Any, Any, Any, list[str]]:
    """A builder, the network of a graph, its parser, and what the parser says against it."""
    logger = tensorrt.Logger(tensorrt.Logger.INTERNAL_ERROR)
    builder = tensorrt.Builder(logger)
    network = builder.create_network(0)
    parser = tensorrt.OnnxParser(network, logger)
    parser.parse(model.SerializeToString())
    return builder, network, parser, [parser.get_error(i).desc() for i in range(parser.num_errors)]


def decompose(tensorrt: Any, network: Any) -> None:
    """Let attention be computed without a fused kernel; the parser leaves its layers untyped."""
    for place in range(network.num_layers):
        layer = network.get_layer(place)
        if "ATTENTION" in str(layer.type):
            layer.__class__ = tensorrt.IAttentionInputLayer
            layer.attention.decomposable = True


def build(tensorrt: Any, model: onnx.ModelProto, graph: Graph, *, fused: bool) -> int:
    """Bytes of the engine of a graph, for sizes within the bounds."""
    builder, network, _parser, errors = parsed(tensorrt, model)
    assert errors == []
    if not fused:
        decompose(tensorrt, network)
    described = {tensor.name: tensor for tensor in graph.inputs}
    profile = builder.create_optimization_profile()
    for place in range(network.num_inputs):
        value = network.get_input(place)
        axes: list[str | int] = list(described[value.name].axes)
        if len(axes) < len(value.shape):
            axes.insert(1, 1)
        shapes = [
            [
                axis
                if isinstance(axis, int)
                else {**bound, "C": CAPACITY, "BS": bound["B"] * bound["S"]}[axis]
                for axis in axes
            ]
            for bound in BOUNDS
        ]
        profile.set_shape(value.name, *shapes)
    config = builder.create_builder_config()
    config.add_optimization_profile(profile)
    engine = builder.build_serialized_network(network, config)
    assert engine is not None
    return int(engine.nbytes)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_engines_are_parsed_and_built(
    bundles: Path, tensorrt: Any, name: str, precision: str
) -> None:
    for model, graph in write(bundles, name, "cuda", precision).graphs():
        static_caches(model, caches_of(graph), CAPACITY)
        start = time.perf_counter()
        # The tiny language models' heads of 8 features have no fused kernel there.
        size = build(tensorrt, model, graph, fused=name in TRANSLATION)
        seconds = time.perf_counter() - start
        print(f"{name} {precision} {graph.file}: {size / 1e6:.1f} MB in {seconds:.1f} s")
        assert size > 10_000


def test_caches_of_three_axes_are_refused(bundles: Path, tensorrt: Any) -> None:
    model, _ = step_of(write(bundles, "macaron", "cuda", "fp16"))
    assert "required to be 4D, got 3D" in " ".join(parsed(tensorrt, model)[3])


def test_caches_with_an_open_number_of_slots_are_refused(bundles: Path, tensorrt: Any) -> None:
    model, _ = step_of(write(bundles, "full standard pre", "cuda", "fp16"))
    assert "static sequence length" in " ".join(parsed(tensorrt, model)[3])
