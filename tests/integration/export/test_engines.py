"""Graphs for a GPU as TensorRT takes them: computed as before, and, where TensorRT-RTX is
installed, built into bundles with engines by the command, which needs no GPU."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import shape_inference

from export.__main__ import main
from export.engines.builder import EngineBuilder, input_shapes
from export.engines.profiles import choose_sizes
from export.engines.static_caches import drop_softmax_precision, static_caches
from export.errors import ExportError
from serving.bundle.folder import file_hash, read_manifest, write_manifest
from serving.bundle.graph import Graph
from serving.bundle.manifest import CARD, Manifest
from serving.runtime.gpu.tensorrt_engines import EngineError, load_engine
from serving.runtime.gpu.tensorrt_library import TensorRT, find_tensorrt
from tests.integration.gpu.test_cuda_graphs import LANGUAGE, Written, write

pytestmark = pytest.mark.usefixtures("traced_once")

NAMES = ["standard", "macaron", "joint fast", "full standard pre", "cascade macaron post"]
CAPACITY = 64
SOURCE = "source=32:128,"
PROFILE = f"rows=8:32,{SOURCE}beam=5,capacity=64"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tensorrt")


def bundle_of(bundles: Path, name: str, precision: str, target: str = "cuda") -> Path:
    """A bundle of a tiny model; its tokenizer is only bytes."""
    written = write(bundles, name, target, precision)
    folder = bundles / "whole" / written.folder.name
    if not folder.exists():
        shutil.copytree(written.folder, folder)
        (folder / "made.json").unlink()
        (folder / "tokenizer.model").write_bytes(b"the bytes of a tokenizer")
        write_manifest(folder, written.manifest.model_copy(update={"target": target}))
    return folder


def caches_of(graph: Graph) -> list[str]:
    return [tensor.name for tensor in graph.inputs if tensor.role == "self"]


def step_of(written: Written) -> tuple[onnx.ModelProto, Graph]:
    return list(written.graphs())[-1]


def test_graphs_with_static_caches_compute_the_same_to_the_bit(bundles: Path) -> None:
    for name in NAMES:
        model, graph = step_of(write(bundles, name, "cuda", "fp16"))
        wanted = run(model, graph)
        drop_softmax_precision(model)
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
def tensorrt() -> TensorRT:
    pytest.importorskip("tensorrt_rtx_bindings")
    return find_tensorrt("tensorrt_rtx")


@pytest.fixture(autouse=True)
def no_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def build(bundle: Path, out: Path, profile: str = PROFILE) -> int:
    command = ["engine", str(bundle), str(out), "--library", "tensorrt_rtx"]
    return main([*command, "--profile", profile])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "precision",
    ["fp16", *(pytest.param(each, marks=pytest.mark.slow) for each in ("bf16", "fp32"))],
)
def test_a_bundle_with_engines_is_built_and_read_back(
    bundles: Path,
    tmp_path: Path,
    tensorrt: TensorRT,
    name: str,
    precision: str,
    capsys: pytest.CaptureFixture[str],
    record_property: Callable[[str, object], None],
) -> None:
    bundle, out = bundle_of(bundles, name, precision), tmp_path / "out"
    assert build(bundle, out, PROFILE.replace(SOURCE, "") if name in LANGUAGE else PROFILE) == 0
    report = json.loads(capsys.readouterr().out)
    before, manifest = read_manifest(bundle), read_manifest(out)
    assert manifest.files == before.files
    assert manifest.name == "out"
    graphs = [graph.file for graph in (manifest.encoder, manifest.step) if graph]
    assert [engine.graph for engine in manifest.engines] == graphs
    for engine, told in zip(manifest.engines, report["engines"], strict=True):
        built = f"{engine.bytes / 1e6:.1f} MB in {engine.build_seconds} s"
        record_property("told", f"{name} {precision} {engine.file}: {built}")
        assert told["bytes"] == engine.bytes == (out / engine.file).stat().st_size > 10_000
        assert engine.sha256 == file_hash(out / engine.file)
        assert (engine.library, engine.version) == ("tensorrt_rtx", tensorrt.version)
        assert (engine.gpu, engine.compute_capability) == ("any", None)
        assert engine.precision == precision
        assert f"for any GPU, by tensorrt_rtx {tensorrt.version}" in (out / CARD).read_text()
        assert engine.capacity == (None if engine.graph == "encoder.onnx" else CAPACITY)
        assert engine.profile["B"] == (1, 8, 32)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_a_build_that_was_ended_goes_on_with_the_engines_that_it_had(
    bundles: Path,
    tmp_path: Path,
    tensorrt: TensorRT,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bundle, out = bundle_of(bundles, "macaron", "fp16"), tmp_path / "out"
    profile, whole = "source=64,capacity=64,128", EngineBuilder.build
    built: list[int] = []

    def ended(builder: EngineBuilder, model: onnx.ModelProto, *more: Any) -> Any:
        if len(built) == 2:
            raise KeyboardInterrupt
        built.append(1)
        return whole(builder, model, *more)

    monkeypatch.setattr(EngineBuilder, "build", ended)
    assert build(bundle, out, profile) == 130
    assert not out.exists()
    # What the kill left half written has no note beside it.
    (tmp_path / ".out.engines" / "step-128.engine").write_bytes(b"half")
    monkeypatch.setattr(EngineBuilder, "build", lambda *all_: built.append(1) or whole(*all_))
    caplog.clear()
    with caplog.at_level("INFO", logger="export"):
        assert build(bundle, out, profile) == 0
    assert len(built) == 3
    told = [record.getMessage() for record in caplog.records]
    assert ["built before" in line for line in told] == [True, True, False]
    assert "step-128.engine (3 of 3): built in" in told[2]
    capacities = [engine.capacity for engine in read_manifest(out).engines]
    assert capacities == [None, 64, 128]


def refused(tensorrt: TensorRT, written: Written) -> str:
    """What is said of a step graph whose caches are left as they are."""
    model, graph = step_of(written)
    drop_softmax_precision(model)
    spans = choose_sizes(written.manifest, None).spans() | {"C": (64, 64, 64)}
    axes = {tensor.name: tensor.axes for tensor in graph.inputs}
    with pytest.raises(ExportError) as error:
        EngineBuilder(tensorrt, None).build(model, input_shapes(model, axes, spans), graph.file)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_caches_of_three_axes_are_refused(bundles: Path, tensorrt: TensorRT) -> None:
    message = refused(tensorrt, write(bundles, "macaron", "cuda", "fp16"))
    assert "required to be 4D, got 3D" in message
    assert "step.onnx: tensorrt_rtx" in message
    assert "(TensorScatter)" in message


def test_caches_with_an_open_number_of_slots_are_refused(bundles: Path, tensorrt: TensorRT) -> None:
    message = refused(tensorrt, write(bundles, LANGUAGE[0], "cuda", "fp16"))
    assert "static sequence length" in message


def test_a_damaged_engine_is_refused_by_the_library_in_one_line(
    bundles: Path, tmp_path: Path, tensorrt: TensorRT
) -> None:
    assert build(bundle_of(bundles, "macaron", "fp16"), tmp_path / "out") == 0
    engine = read_manifest(tmp_path / "out").engines[0]
    file = tmp_path / "out" / engine.file
    file.write_bytes(file.read_bytes()[:1000])
    kept = engine.model_copy(update={"sha256": file_hash(file)})
    with pytest.raises(EngineError, match=r"encoder.engine is refused by tensorrt_rtx") as error:
        load_engine(tmp_path / "out", kept, tensorrt)
    assert "\n" not in str(error.value)


def test_timings_are_not_asked_of_a_library_that_takes_none(
    bundles: Path, tmp_path: Path, tensorrt: TensorRT, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["engine", str(bundle_of(bundles, "macaron", "fp16")), str(tmp_path / "out")]
    options = ["--library", tensorrt.name, "--timing-cache", str(tmp_path / "timings")]
    assert main([*command, *options]) == 1
    assert "--timing-cache needs --library tensorrt" in capsys.readouterr().err


def test_a_bundle_for_the_cpu_is_refused_with_the_command_that_makes_another(
    bundles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundle_of(bundles, "macaron", "int8", "cpu")
    assert main(["engine", str(bundle), str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert "this one is for cpu (int8)" in error
    assert "--target cuda --precision fp16" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_manifest_without_engines_is_read_as_before(bundles: Path) -> None:
    bundle = bundle_of(bundles, "macaron", "fp16")
    tree = json.loads((bundle / "manifest.json").read_text())
    del tree["engines"]
    assert Manifest.model_validate(tree) == read_manifest(bundle)
