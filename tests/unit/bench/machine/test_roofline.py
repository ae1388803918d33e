"""The products that are timed alone are those of the engine's graphs, on as many rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from bench.machine.roofline import PRODUCTS, BatchSize, ProductList, time_products
from export.arithmetic.activation_ranges import measure_translation_ranges
from export.arithmetic.quantize import Products, quantized_twin
from export.graphs.writing import write_graphs
from serving.bundle.manifest import Manifest
from serving.runtime.ort import register_kernels
from serving.search.beams.sentence import Sentence
from serving.search.options import SearchOptions
from tests.unit.bench.random_models import ending_joint_model, ending_model, sources
from training.models import TranslationModel

pytestmark = [pytest.mark.usefixtures("traced_once"), pytest.mark.slow]

SIZE = BatchSize(sentences=3, source_length=16, queries=5)
MODELS: dict[str, Callable[[], TranslationModel]] = {
    "transformer": lambda: ending_model(),
    "joint base": lambda: ending_joint_model(encoder_layers=0),
}


@dataclass(frozen=True)
class Graphs:
    """An int8 model's graphs."""

    model: TranslationModel
    folder: Path
    manifest: Manifest


@pytest.fixture(scope="module", params=product(MODELS, ["row", "static"]), ids=" ".join)
def graphs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Graphs:
    name, activations = request.param
    folder, model = tmp_path_factory.mktemp("graphs"), MODELS[name]()
    ranges = None
    if activations == "static":
        sentences = list(map(Sentence, sources(4)))
        ranges = measure_translation_ranges(quantized_twin(model), sentences, max_length=3)
    products = Products(ranges)
    manifest = write_graphs(model, folder, name="random", precision="int8", products=products)
    return Graphs(model, folder, manifest)


def lists_of(graphs: Graphs) -> tuple[ProductList, ProductList]:
    manifest = graphs.manifest
    assert manifest.encoder is not None
    return (
        ProductList(graphs.folder, manifest.encoder, 1),
        ProductList(graphs.folder, manifest.step, 1),
    )


def test_rows_are_those_of_the_whole_graph(graphs: Graphs) -> None:
    encoder, step = (products.count_rows(SIZE) for products in lists_of(graphs))
    positions, queries = 3 * 16, 3 * 5
    if graphs.model.decoder_kind == "joint":
        assert encoder == []  # Reformer-base has no PreNet
        # Two attentions (input, output) and two feed-forwards (up, down) a layer, then Reduction.
        assert step == [queries * 16] * (2 * 8 + 1) + [queries]
    else:
        assert encoder == [positions] * (2 * 4 + 3)  # source keys and values of three layers
        assert step == [queries] * (3 * 6 + 1)


def test_products_alone_compute_what_the_graph_computes(graphs: Graphs) -> None:
    """Run the list on the rows of one real step and compare with that step's own products."""
    step = lists_of(graphs)[1]
    whole = onnx.load(graphs.folder / "step.onnx")
    nodes = [node for node in whole.graph.node if node.op_type in PRODUCTS]
    shown = {node.output[0]: onnx.TensorProto.FLOAT for node in nodes}
    shown |= {node.input[0]: onnx.TensorProto.UINT8 for node in nodes}
    constants = {tensor.name for tensor in whole.graph.initializer}
    scales = {node.input[2] for node in nodes} - constants
    shown |= dict.fromkeys(scales, onnx.TensorProto.FLOAT)
    del whole.graph.output[:]
    whole.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in shown.items()
    )
    options = onnxruntime.SessionOptions()
    register_kernels(options, int8=True)
    session = onnxruntime.InferenceSession(
        whole.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    generator = np.random.default_rng(0)
    sizes = {"B": 3, "S": 16, "BS": 48, "K": 5, "Q": 5, "C": 8}
    feeds = {
        tensor.name: np.ones(
            [axis if isinstance(axis, int) else sizes[axis] for axis in tensor.axes], tensor.dtype
        )
        for tensor in graphs.manifest.step.inputs
    }
    feeds["token_ids"] = generator.integers(4, 200, (3, 5))
    values = dict(zip(shown, session.run(list(shown), feeds), strict=True))
    alone = step.alone
    inputs = {value.name: _flat(values[value.name]) for value in alone.get_inputs()}
    names = [value.name for value in alone.get_outputs()]
    assert names == [node.output[0] for node in nodes]
    for name, found in zip(names, alone.run(names, inputs), strict=True):
        np.testing.assert_array_equal(found, _flat(values[name]))


def _flat(array: NDArray[Any]) -> NDArray[Any]:
    return array.reshape(-1, array.shape[-1])


@pytest.mark.parametrize("workers", [1, 2])
def test_calls_are_timed_once_a_repetition(graphs: Graphs, workers: int) -> None:
    ids = sources(9)
    # The shortest outputs: these models may end by themselves.
    options = SearchOptions(beam_size=2, max_length=1, loop_guard=False)
    seconds = time_products(
        graphs.folder,
        graphs.manifest,
        [ids[:5], ids[5:]],
        options,
        workers=workers,
        threads=1,
        repetitions=3,
    )
    assert len(seconds) == 3
    assert all(0 < each < 10 for each in seconds)
