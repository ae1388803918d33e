"""Bundles of encoders for a GPU: the gates of their exports, and a service with and without a
GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from export.arithmetic.half import HalfFit
from export.bundles.subject import Form
from export.engines.engine import export_engines
from export.errors import ExportError, ParityError
from export.importing import bundle as importing
from export.importing.bundle import import_bundle
from export.importing.model import Declared
from export.texts.texts import Texts
from serving.bundle.folder import read_manifest
from serving.encoding.presets import load_reader
from serving.encoding.reader import Embedder
from serving.encoding.scheduler import TextScheduler
from serving.errors import BundleError
from serving.runtime.gpu import cuda_switches
from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.bundles import load_bundles
from serving.server.models.registry import Registry
from tests.conftest import TinyEncoders
from tests.recorded_device import recorded_gpu
from tests.toy.encoders import LABELS, LINES, write_lines

MEAN = Declared(pooling="mean")


@pytest.fixture(scope="module")
def bundles(tiny_encoders: TinyEncoders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An embedder and a classifier in fp16."""
    folder = tmp_path_factory.mktemp("fp16")
    texts = Texts(text=write_lines(folder))
    form = Form("fp16", "cuda")
    import_bundle(tiny_encoders.embedder, folder / "bundles" / "embedder", form, texts, MEAN)
    import_bundle(tiny_encoders.classifier, folder / "bundles" / "classifier", form, texts)
    return folder / "bundles"


def test_the_manifest_reports_the_figures_of_the_gates_and_which_did_not_run(bundles: Path) -> None:
    for name in ("embedder", "classifier"):
        manifest = read_manifest(bundles / name)
        assert (manifest.target, manifest.precision) == ("cuda", "fp16")
        parity = manifest.parity
        assert 0.999 < parity["cosine_mean"] <= 1
        assert parity["texts"] == parity["rounded_in_pytorch"]["texts"] == len(LINES)
        assert 0.999 < parity["rounded_in_pytorch"]["cosine_mean"] <= 1
        assert "twin_cosine" not in parity["rounded_in_pytorch"]
        assert parity["onnx_reference"]["texts"] == 2
        assert 0 < parity["onnx_reference"]["max_difference"] < 0.05
        assert "CPUExecutionProvider" in parity["run_on"]
        assert ["on a CUDA device" in gate for gate in parity["gates_not_run"]] == [True]
        assert parity["fp16"]["kept_fp32"] == []
        assert "head" not in parity
        count = 2 * 4 + 2 * (name == "classifier")
        assert len(parity["fp16"]["magnitudes"]) == count


def test_bf16_is_gated_where_it_can_be_with_the_tasks_metric(
    tiny_encoders: TinyEncoders, tmp_path: Path
) -> None:
    task = tmp_path / "task.tsv"
    lines = [f"{line}\t{LABELS[number % 3]}" for number, line in enumerate(LINES)]
    task.write_text("\n".join(lines) + "\n")
    texts = Texts(text=write_lines(tmp_path), task=task)
    out = tmp_path / "out"
    import_bundle(tiny_encoders.classifier, out, Form("bf16", "cuda"), texts)
    manifest = read_manifest(out)
    parity = manifest.parity
    assert parity.keys() == {"data", "rounded_in_pytorch", "onnx_reference", "gates_not_run"}
    rounded = parity["rounded_in_pytorch"]
    assert rounded["metric_checkpoint"] == pytest.approx(rounded["metric_bundle"], abs=0.5)
    assert 0 < rounded["probability_change"] < 0.02
    assert manifest.quality == ()
    assert [gate.split(":")[0] for gate in parity["gates_not_run"]] == [
        "on a CUDA device",
        "the graph in a session",
    ]


def changed(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the model of what is imported."""
    read = importing.read_encoder

    def reading(*given: Any) -> Any:
        found = read(*given)
        with torch.no_grad():
            change(found.model.encoder.layers[0])
        return found

    monkeypatch.setattr(importing, "read_encoder", reading)


def test_what_comes_near_the_largest_number_of_fp16_stays_fp32_and_is_named(
    tiny_encoders: TinyEncoders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(layer: Any) -> None:
        layer.ffn.up_proj.weight[0], layer.ffn.up_proj.bias[0] = 0.0, 30_000.0
        layer.ffn.down_proj.weight[:, 0] = 0.0

    changed(monkeypatch, change)
    texts = Texts(text=write_lines(tmp_path))
    manifest = import_bundle(
        tiny_encoders.embedder, tmp_path / "out", Form("fp16", "cuda"), texts, MEAN
    )
    names = manifest.parity["fp16"]["kept_fp32"]
    assert [name.rpartition("layers.0.ffn.")[2] for name in names] == ["down_proj", "up_proj"]
    assert manifest.parity["fp32_products"] == 2


def test_attention_on_numbers_too_large_for_fp16_is_refused(
    tiny_encoders: TinyEncoders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(layer: Any) -> None:
        layer.self_attention.in_proj.bias[-1] = 30_000.0

    changed(monkeypatch, change)
    texts = Texts(text=write_lines(tmp_path))
    with pytest.raises(ExportError, match="--precision bf16 or fp32"):
        import_bundle(tiny_encoders.embedder, tmp_path / "out", Form("fp16", "cuda"), texts, MEAN)
    assert not (tmp_path / "out").exists()


def test_what_would_overflow_fails_where_it_was_not_measured(
    tiny_encoders: TinyEncoders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(layer: Any) -> None:
        layer.ffn.up_proj.weight[0, 0], layer.ffn.up_proj.bias[0] = 60_000.0, 60_000.0
        layer.ffn.down_proj.weight[:, 0] = 0.0

    changed(monkeypatch, change)
    unmeasured = HalfFit(frozenset(), {})
    monkeypatch.setattr("export.arithmetic.choice.fit_half", lambda *_: unmeasured)
    texts = Texts(text=write_lines(tmp_path))
    with pytest.raises(ParityError, match="in PyTorch is nan in the mean"):
        import_bundle(tiny_encoders.embedder, tmp_path / "out", Form("fp16", "cuda"), texts, MEAN)
    assert not (tmp_path / "out").exists()


def test_no_engines_are_built_of_an_encoder(bundles: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="no engines are built for an encoder"):
        export_engines(bundles / "embedder", tmp_path / "out", library="tensorrt")


def test_a_service_without_a_gpu_runs_it_only_where_it_is_told_to(
    bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BundleError, match=r"for cuda.*computes on the CPU.*MACARON_DEVICE=cpu"):
        Embedder(bundles / "embedder")
    monkeypatch.setenv("MACARON_DEVICE", "cpu")
    embedder = Embedder(bundles / "embedder")
    assert embedder.device.name == "cpu"
    assert np.isfinite(embedder.embed(LINES)).all()


def test_a_service_with_a_gpu_runs_it_there_and_says_so(
    bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(bundles=bundles, threads=1)
    answers = []
    for device, used in (("auto", "cuda"), ("cpu", "cpu")):
        monkeypatch.setenv("MACARON_DEVICE", device)
        registry = Registry(settings)
        with recorded_gpu() as gpu:
            try:
                registry.start(load_bundles(settings))
                with TestClient(create_app(registry, settings)) as client:
                    cards = client.get("/models").json()["models"]
                    limits = client.get("/limits").json()["batches"]
                    asked = {"model": "embedder", "input": LINES}
                    data = client.post("/v1/embeddings", json=asked).json()["data"]
                    classes = client.post("/classify", json={"q": LINES}).json()
            finally:
                registry.close()
            assert {card["device"] for card in cards} == {used}
            reason = {"cuda": "Recorded GPU, CUDA graphs", "cpu": "MACARON_DEVICE=cpu"}[used]
            assert all(reason in card["device_reason"] for card in cards)
            assert ("256" in str(limits)) == (used == "cuda")
            assert (gpu.runs > 1) == (used == "cuda")
        vectors = np.array([each["embedding"] for each in data])
        answers.append((vectors, [each["label"] for each in classes["classifications"]]))
    np.testing.assert_allclose(answers[0][0], answers[1][0], atol=0.01)
    assert answers[0][1] == answers[1][1]


def test_texts_that_do_not_fit_the_memory_at_once_are_read_all_the_same(bundles: Path) -> None:
    with recorded_gpu() as gpu:
        reader = load_reader(bundles / "embedder", "throughput", 2)
        assert reader.workers == 1
        wanted = reader.read(LINES)
        gpu.most_rows = 5
        scheduler = TextScheduler(reader)
        tickets = scheduler.submit_all([reader.encode(line) for line in LINES])
        found = np.stack([ticket.result(60) for ticket in tickets])
        scheduler.close()
        np.testing.assert_allclose(found, wanted, atol=0.01)
        np.testing.assert_allclose(reader.read(LINES), wanted, atol=0.01)
        assert gpu.refused > 2


def test_several_batches_are_read_at_once_in_streams_of_their_own(
    bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cuda_switches.STREAMS_SWITCH, "2")
    with recorded_gpu() as gpu:
        gpu.linger_s = 0.002
        reader = load_reader(bundles / "embedder", "latency", 2)
        assert reader.workers == 2
        wanted = reader.read(LINES)
        scheduler = TextScheduler(reader, workers=reader.workers)
        for _ in range(8):
            tickets = [scheduler.submit_all([reader.encode(line)])[0] for line in LINES]
            found = np.stack([ticket.result(60) for ticket in tickets])
            np.testing.assert_allclose(found, wanted, atol=0.01)
        scheduler.close()
        assert gpu.most_at_once == 2
