"""Graphs of encoders for a GPU, as far as a machine without one can tell: their types, the rules of
the CUDA kernels, what ONNX's own reference computes, and the CUDA session on a recorded device."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from export.arithmetic.half import HALF_TYPES, half_twin
from export.comparison.encoder import check_encoder, measure_encoder, read_all
from export.errors import ExportError
from export.gates.reference_run import beginnings, read_in_reference
from export.graphs.writing import ALLOWED, HEAD_UNIT, write_text_graph
from export.passes.cuda_operators import check_operators
from serving.bundle.encoder_tokenizer import EncodedText
from serving.bundle.manifest import Manifest
from serving.errors import DeviceMemoryError
from serving.queue.limits import GPU_LIMITS
from serving.runtime.device import open_device
from serving.runtime.gpu import cuda_switches
from serving.runtime.gpu.layouts import bucket, bucket_capacity
from serving.runtime.text_encoder import TextEncoder
from tests.integration.gpu.test_cuda_graphs import assert_finite_mask, types_of
from tests.integration.importing.test_encoders import POSITIONS
from tests.recorded_device import Recorded, recorded_gpu
from tests.unit.training.tiny_encoder import tiny_classifier, tiny_embedder
from training.models import TextModel

pytestmark = pytest.mark.usefixtures("traced_once")

MODELS = ["mean", "cls", "classifier", *POSITIONS]
PRECISIONS = ALLOWED["cuda"]
SIZES: dict[str, Any] = {"model_dim": 32, "max_positions": 128, "max_relative_distance": 4}
FP32_KEPT = {"LayerNormalization", "Softmax", "ReduceSum", "Gelu"}


@functools.cache
def model_named(name: str) -> TextModel:
    """An encoder with heads of 8 or 16 features."""
    if name == "classifier":
        return tiny_classifier(3, **SIZES)
    positions = {"block": "standard", **POSITIONS.get(name, {})}
    return tiny_embedder("cls" if name == "cls" else "mean", **SIZES | positions)


def texts(count: int = 24, longest: int = 40) -> list[EncodedText]:
    generator = np.random.default_rng(5)
    lengths = [*generator.integers(1, longest, count - 1), longest]
    return [
        EncodedText((2, *generator.integers(5, 37, n).tolist(), 3), (0,) * (n + 2)) for n in lengths
    ]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("encoders")


def write(place: Path, name: str, precision: str) -> tuple[Path, Manifest]:
    """The graph of a model for CUDA, written once."""
    folder = place / f"{name.replace(' ', '-')}-{precision}"
    made = folder / "made.json"
    if not made.exists():
        folder.mkdir()
        labels = ("a", "b", "c") if name == "classifier" else ()
        manifest = write_text_graph(
            model_named(name),
            folder,
            name="tiny",
            precision=precision,
            target="cuda",
            max_length=128,
            labels=labels,
        )
        assert (manifest.target, manifest.precision) == ("cuda", precision)
        made.write_text(manifest.model_dump_json())
    return folder, Manifest.model_validate_json(made.read_text())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_rules_of_cuda_kernels_hold(bundles: Path, name: str, precision: str) -> None:
    folder, manifest = write(bundles, name, precision)
    assert manifest.encoder is not None
    model = onnx.load(folder / manifest.encoder.file)
    onnx.checker.check_model(model, full_check=True)
    check_operators(model)
    assert not model.functions
    half = HALF_TYPES.get(precision)
    element = TensorProto.FLOAT if half is None else half.onnx
    types = types_of(model)
    producers = {output: node for node in model.graph.node for output in node.output}
    constants = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    assert types["read"] == types["mask"] == TensorProto.FLOAT
    for node in model.graph.node:
        if node.op_type in FP32_KEPT:
            assert types[node.input[0]] == TensorProto.FLOAT
        if node.op_type in ("Gemm", "MatMul") and node.input[1] in constants:
            assert types[node.output[0]] == element
        if node.op_type == "Attention":
            # The mean of a text's states, whose keys and values are one input, is fp32.
            own = TensorProto.FLOAT if node.input[1] == node.input[2] else element
            assert {types[each] for each in node.input} == {own}
            assert_finite_mask(node.input[3], producers, constants, own)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", HALF_TYPES)
def test_16_bits_compute_nearly_what_fp32_does_in_onnx_own_reference(
    bundles: Path, name: str, precision: str
) -> None:
    """Where every value is rounded to its type, as on a GPU."""
    folder, manifest = write(bundles, name, precision)
    model = model_named(name)
    parity = measure_encoder(
        model,
        half_twin(model, HALF_TYPES[precision], frozenset()),
        lambda given: read_in_reference(folder, manifest, given),
        beginnings(texts(3)),
        classes=name == "classifier",
    )
    assert parity.texts == 3
    assert parity.cosine_mean > 0.99
    assert parity.twin_cosine > 0.999
    assert 0 < parity.max_difference < (0.4 if precision == "bf16" else 0.05)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["fp32", "fp16", "w8a16"])
def test_the_graph_on_the_cpu_gives_what_the_model_does_but_for_rounding(
    bundles: Path, name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACARON_DEVICE", "cpu")
    folder, manifest = write(bundles, name, precision)
    model = model_named(name)
    half = HALF_TYPES.get(precision)
    twin = model if half is None else half_twin(model, half, frozenset())
    read = TextEncoder(folder, manifest, 1).run
    classes = name == "classifier"
    parity = measure_encoder(model, twin, read, texts(), classes=classes)
    check_encoder(parity, precision, classes=classes)
    assert parity.max_difference < (1e-4 if half is None else 0.1)


def test_heads_of_another_size_than_the_kernels_take_are_refused(tmp_path: Path) -> None:
    model = tiny_embedder("mean", **SIZES | {"num_heads": 8})
    with pytest.raises(ExportError, match=rf"a multiple of {HEAD_UNIT} features, got 4 .*cpu"):
        write_text_graph(
            model, tmp_path, name="tiny", precision="fp16", target="cuda", max_length=9
        )
    assert not list(tmp_path.iterdir())


# The CUDA session on a recorded device


@pytest.fixture
def gpu() -> Iterator[Recorded]:
    with recorded_gpu() as recorded:
        yield recorded


def both(bundles: Path, name: str, precision: str) -> tuple[TextEncoder, TextEncoder]:
    """The same graph on the CPU and on the recorded GPU."""
    folder, manifest = write(bundles, name, precision)
    on_cpu = manifest.model_copy(update={"target": "cpu"})
    return tuple(  # type: ignore[return-value]
        TextEncoder(folder, each, 1, open_device(folder, each)) for each in (on_cpu, manifest)
    )


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_outputs_are_those_of_the_cpu(
    bundles: Path, gpu: Recorded, name: str, precision: str
) -> None:
    cpu, cuda = both(bundles, name, precision)
    given = texts(90)
    wanted = cpu.run(given)
    assert gpu.runs == 0
    # Sizes are rounded up, and a product's last bit may depend on them.
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if precision == "fp32" else {"rtol": 0, "atol": 0.02}
    for _ in range(6):  # captured from the fourth on
        np.testing.assert_allclose(cuda.run(given), wanted, **tolerance)
    alone = np.concatenate([cuda.run([text]) for text in given[:9]])
    np.testing.assert_allclose(alone, wanted[:9], **tolerance)
    assert gpu.captures
    assert np.ptp(wanted, axis=0).mean() > 0.1


def test_sizes_come_in_buckets_and_what_is_met_often_is_captured(
    bundles: Path, gpu: Recorded
) -> None:
    cuda, generator = both(bundles, "mean", "fp16")[1], np.random.default_rng(1)
    given = texts(60)
    for _ in range(60):
        cuda.run([given[n] for n in generator.integers(0, 60, generator.integers(1, 40))])
    found = {(s["slots"][0], s["slots"][1], s["token_ids"][1]) for s in gpu.shapes}
    assert found == {(bucket(b), bucket_capacity(s), bucket(m, 8)) for b, s, m in found}
    assert len(found) < 30
    assert len(gpu.captures) > 3
    replayed = sum(capture.runs for capture in gpu.captures.values())
    assert replayed > len(gpu.shapes) / 3


def test_inputs_and_outputs_cross_in_one_copy_each_and_memory_is_flat(
    bundles: Path, gpu: Recorded
) -> None:
    cuda = both(bundles, "mean", "fp16")[1]
    given = texts(16)
    cuda.run(given)
    gpu.to_host = 0
    cuda.run(given)
    assert gpu.to_host == bucket(16) * 32 * 4
    for _ in range(6):
        cuda.run(given)
    kept = gpu.live_bytes
    for _ in range(20):
        cuda.run(given)
    assert gpu.live_bytes == kept


def test_without_cuda_graphs_sizes_are_those_of_the_texts(
    bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cuda_switches.GRAPHS_SWITCH, "off")
    with recorded_gpu() as gpu:
        cpu, cuda = both(bundles, "classifier", "fp32")
        given = texts(7)
        np.testing.assert_allclose(cuda.run(given), cpu.run(given), rtol=1e-4, atol=1e-5)
        (shapes,) = gpu.shapes
        assert shapes["slots"] == (7, 48)
        assert shapes["token_ids"] == (1, sum(len(text.ids) for text in given))
        assert not gpu.captures


def test_a_batch_of_the_gpus_limits_is_one_call(bundles: Path, gpu: Recorded) -> None:
    cuda = both(bundles, "mean", "fp16")[1]
    length = GPU_LIMITS.max_tokens // GPU_LIMITS.max_rows
    cuda.run(texts(GPU_LIMITS.max_rows, longest=length - 2))
    assert len(gpu.shapes) == 1


def test_too_little_memory_is_said_as_such(bundles: Path, gpu: Recorded) -> None:
    cuda = both(bundles, "mean", "fp16")[1]
    gpu.room = gpu.live_bytes
    with pytest.raises(DeviceMemoryError):
        cuda.run(texts(8))
    gpu.room = float("inf")
    model = half_twin(model_named("mean"), HALF_TYPES["fp16"], frozenset())
    np.testing.assert_allclose(cuda.run(texts(8)), read_all(model, texts(8)), atol=0.02)
