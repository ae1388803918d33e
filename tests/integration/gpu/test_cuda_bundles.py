"""Bundles for a GPU: what their manifests tell, what stays fp32, and what a service without a GPU
makes of them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto
from starlette.testclient import TestClient
from torch import nn

from export.__main__ import main
from export.arithmetic.half import HalfFit
from export.bundles.run import export_run
from export.bundles.subject import Form
from export.engines.engine import export_engines
from export.errors import ExportError, ParityError
from export.texts.texts import DocumentsFile, TextPair, Texts
from serving.bundle.folder import read_manifest
from serving.errors import BundleError
from serving.generation.generator import Generator
from serving.processes.translator import IsolatedTranslator
from serving.runtime.cache_tensors import CacheSizes
from serving.search.sampling_options import GenerationOptions
from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.bundles import load_bundles
from serving.server.models.registry import Registry
from serving.translation.translator import Translator
from tests.conftest import TinyLanguageModel, TinyModel
from tests.recorded_device import GPU, recorded_gpu
from tests.recorded_tensorrt import recorded_tensorrt
from training.runs.folder import Trained, load_language_model, load_trained

TEXT = "der hund und die katze"


def validation(run: Path) -> TextPair:
    return TextPair("validation", run / "validation.source", run / "validation.target")


@pytest.fixture(scope="module")
def fp16(tiny_model: TinyModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fp16") / "tiny"
    tests = (validation(tiny_model.run),)
    export_run(tiny_model.run, folder, Form("fp16", "cuda"), Texts(tests=tests))
    return folder


@pytest.fixture(scope="module")
def language_fp16(
    tiny_language_model: TinyLanguageModel, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("fp16") / "lm"
    export_run(tiny_language_model.run, folder, Form("fp16", "cuda"))
    return folder


def test_the_manifest_reports_the_figures_of_the_gates_and_which_did_not_run(fp16: Path) -> None:
    manifest = read_manifest(fp16)
    assert (manifest.target, manifest.precision) == ("cuda", "fp16")
    parity = manifest.parity
    assert parity["identical"] == parity["rounded_in_pytorch"]["identical"] == parity["sentences"]
    assert 0 < parity["logits_mean_difference"] < 1e-3
    assert abs(parity["log_prob_change"]) < 1e-3
    assert "CPUExecutionProvider" in parity["run_on"]
    assert ["on a CUDA device" in gate for gate in parity["gates_not_run"]] == [True]
    assert [figure.metric for figure in manifest.quality] == ["BLEU", "chrF2"]
    assert parity["fp16"]["kept_fp32"] == []
    assert parity["head"] == "fp16"
    magnitudes = parity["fp16"]["magnitudes"]
    assert "decoder.1.source_attention.key_value_proj" in magnitudes
    assert all(0.1 < found < 100 for found in magnitudes.values())


def test_weights_in_int8_pass_the_gates_of_fp16_in_less_space(
    tiny_model: TinyModel, fp16: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "w8a16"
    parity = export_run(tiny_model.run, out, Form("w8a16", "cuda")).parity
    for found in (parity, parity["rounded_in_pytorch"]):
        assert found["identical"] >= 0.9 * found["sentences"]
        assert abs(found["log_prob_change"]) < 0.01
    assert parity["onnx_reference"]["logits_mean_difference"] < 1e-3
    for graph, least in (("encoder.onnx", 4), ("step.onnx", 6)):
        proto, half = onnx.load(out / graph), onnx.load(fp16 / graph)
        products = [node for node in proto.graph.node if node.op_type == "MatMulNBits"]
        assert len(products) >= least
        assert proto.ByteSize() < half.ByteSize()
    with pytest.raises(
        ExportError, match=r"TensorRT does not support products with weights.*precision fp16`"
    ):
        export_engines(out, tmp_path / "engines", library="tensorrt")
    monkeypatch.setenv("MACARON_DEVICE", "cpu")
    wanted, given = (Translator(bundle).translate(TEXT)[0] for bundle in (tiny_model.fp32, out))
    assert given.text == wanted.text
    assert given.hypotheses[0].score == pytest.approx(wanted.hypotheses[0].score, abs=0.02)


def test_caches_and_sources_take_half_the_memory(fp16: Path, tiny_model: TinyModel) -> None:
    manifest, full = read_manifest(fp16), read_manifest(tiny_model.fp32)
    assert manifest.encoder is not None
    assert full.encoder is not None
    for graph, other in ((manifest.encoder, full.encoder), (manifest.step, full.step)):
        for tensor, its in zip(
            (*graph.inputs, *graph.outputs), (*other.inputs, *other.outputs), strict=True
        ):
            memory = tensor.role in ("self", "source")
            assert (tensor.dtype, its.dtype == "float32") == (
                ("float16", True) if memory else (its.dtype, its.dtype == "float32")
            )
    sizes = [CacheSizes(each).cache_bytes(5, 20, 64) for each in (manifest, full)]
    assert 2 * sizes[0] == sizes[1] > 0


def test_a_service_without_a_gpu_runs_it_only_where_it_is_told_to(
    fp16: Path,
    language_fp16: Path,
    tiny_model: TinyModel,
    tiny_language_model: TinyLanguageModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for load, bundle in ((Translator, fp16), (Generator, language_fp16)):
        with pytest.raises(BundleError, match=r"for cuda.*computes on the CPU.*MACARON_DEVICE=cpu"):
            load(bundle)
    monkeypatch.setenv("MACARON_DEVICE", "cpu")
    wanted, found = (Translator(bundle).translate(TEXT)[0] for bundle in (tiny_model.fp32, fp16))
    assert found.text == wanted.text
    assert found.hypotheses[0].score == pytest.approx(wanted.hypotheses[0].score, abs=2e-3)
    options = GenerationOptions(max_length=8, temperature=0.0)
    continuations = [
        Generator(bundle).generate("the", options)[0][0].text
        for bundle in (tiny_language_model.fp32, language_fp16)
    ]
    assert continuations[0] == continuations[1]


def test_a_service_with_a_gpu_runs_it_there_and_says_so(
    fp16: Path,
    language_fp16: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for bundle in (fp16, language_fp16):
        (tmp_path / bundle.name).symlink_to(bundle)
    settings = Settings(bundles=tmp_path, threads=1, decode_in="threads")
    answers = []
    for device in ("auto", "cpu"):
        monkeypatch.setenv("MACARON_DEVICE", device)
        registry = Registry(settings)
        with recorded_gpu() as gpu, caplog.at_level("INFO"):
            try:
                registry.start(load_bundles(settings))
                with TestClient(create_app(registry, settings)) as client:
                    cards = client.get("/models").json()["models"]
                    (listed,) = client.get("/v1/models").json()["data"]
                    body = {"q": TEXT, "source": "de", "target": "en"}
                    answer = client.post("/translate", json=body).json()["translations"]
                    prompt = {"model": listed["id"], "prompt": "the", "temperature": 0}
                    choices = client.post("/v1/completions", json=prompt).json()["choices"]
            finally:
                registry.close()
            used, reason = {
                "auto": ("cuda", "Recorded GPU, CUDA graphs"),
                "cpu": ("cpu", "the bundle is for cuda, but MACARON_DEVICE=cpu"),
            }[device]
            assert [card["task"] for card in cards] == ["translate", "generate"]
            assert [(card["device"], card["device_reason"]) for card in (*cards, listed)] == [
                (used, reason)
            ] * 3
            assert f"on {used}: {reason}" in caplog.text
            assert (gpu.runs > 10) == (used == "cuda")
        answers.append((answer[0]["hypotheses"], choices))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("decode_in", ["threads", "processes"])
def test_a_language_model_fits_where_its_caches_may_take_less(
    language_fp16: Path, tmp_path: Path, decode_in: Any
) -> None:
    (tmp_path / "lm").symlink_to(language_fp16)
    with recorded_gpu(replace(GPU, free_bytes=3 * 2**30)):
        settings = Settings(bundles=tmp_path, threads=1, decode_in=decode_in)
        with pytest.raises(BundleError, match="4,096 MiB for what batches may take"):
            load_bundles(settings)
        (loaded,) = load_bundles(settings.model_copy(update={"max_cache_bytes": 2**28}))
        assert loaded.device.name == "cuda"


def test_a_service_says_once_whether_it_runs_engines_and_answers_the_same_without(
    language_fp16: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    out = tmp_path / "bundles" / "lm"
    settings = Settings(bundles=out.parent, threads=1)
    answers = []
    with recorded_gpu() as gpu, recorded_tensorrt(gpu) as engines:
        export_engines(language_fp16, out, profile="capacity=64", library="tensorrt")
        for used, reason in (
            ("tensorrt", "Recorded GPU, engines of tensorrt"),
            ("cuda", "without TensorRT: step-64.engine is damaged"),
        ):
            runs = len(engines.shapes)
            caplog.clear()
            registry = Registry(settings)
            with caplog.at_level("INFO"):
                try:
                    registry.start(load_bundles(settings))
                    with TestClient(create_app(registry, settings)) as client:
                        (card,) = client.get("/v1/models").json()["data"]
                        prompt = {"model": "lm", "prompt": "the", "temperature": 0}
                        answer = client.post("/v1/completions", json=prompt).json()["choices"]
                finally:
                    registry.close()
            assert card["device"] == used
            assert reason in card["device_reason"]
            told = [record.getMessage() for record in caplog.records]
            assert [f"on {used}: " in line for line in told if reason in line] == [True]
            assert (len(engines.shapes) > runs) == (used == "tensorrt")
            answers.append(answer)
            (out / "step-64.engine").write_bytes(b"something else")
    assert answers[0] == answers[1]


def test_a_decoding_process_says_what_it_runs_on(
    fp16: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACARON_DEVICE", "cpu")
    translator = IsolatedTranslator(fp16)
    translator.engine().close()
    assert translator.device.name == "cpu"
    assert translator.device.reason == "the bundle is for cuda, but MACARON_DEVICE=cpu"


def test_a_language_models_manifest_reports_its_perplexities(language_fp16: Path) -> None:
    parity = read_manifest(language_fp16).parity
    for found in (parity, parity["rounded_in_pytorch"]):
        assert found["perplexity_bundle"] == pytest.approx(found["perplexity_checkpoint"], rel=1e-3)
    assert len(parity["fp16"]["magnitudes"]) == 8 + 1
    assert parity["head"] == "fp16"
    assert "output_layer" in parity["fp16"]["magnitudes"]


def with_outliers(trained: Trained, size: float) -> Trained:
    """Give every feed-forward of the decoder a feature of that size which weighs nothing."""
    with torch.no_grad():
        for layer in trained.model.decoder:  # type: ignore[misc, union-attr]
            layer.ffn.up_proj.weight[0] = 0.0
            layer.ffn.up_proj.bias[0] = size
            layer.ffn.down_proj.weight[:, 0] = 0.0
    return trained


def test_what_comes_near_the_largest_number_of_fp16_stays_fp32_and_is_named(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = with_outliers(load_trained(tiny_model.run), 30_000.0)
    monkeypatch.setattr("export.bundles.translation.load_trained", lambda _: trained)
    out = tmp_path / "out"
    parity = export_run(tiny_model.run, out, Form("fp16", "cuda")).parity
    kept = [f"decoder.{n}.ffn.{side}_proj" for n in (0, 1) for side in ("down", "up")]
    assert parity["fp16"]["kept_fp32"] == kept
    assert [parity["fp16"]["magnitudes"][name] for name in kept] == [30_000.0] * 4
    assert parity["fp32_products"] == 4
    graph = onnx.load(out / "step.onnx", load_external_data=False).graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    products = [node for node in graph.node if node.op_type in ("Gemm", "MatMul")]
    found = Counter(types[node.input[1]] for node in products)
    assert found[TensorProto.FLOAT] == 4


def with_high_logits(trained: Any) -> Any:
    """All logits are higher by so much that fp16 tells none from the others; softmax does not
    see it."""
    model = trained.model
    model.output_bias = nn.Parameter(torch.full((model.output_weight.shape[0],), 8_000.0))
    return trained


@pytest.mark.parametrize("task", ["translation", "language"])
def test_logits_that_fail_the_gates_in_16_bits_are_computed_in_fp32(
    task: str,
    tiny_model: TinyModel,
    tiny_language_model: TinyLanguageModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, name = tiny_model.run, "translation.load_trained"
    trained: Any = load_trained
    if task == "language":
        run, name = tiny_language_model.run, "language.load_language_model"
        trained = load_language_model
    found = with_high_logits(trained(run))
    monkeypatch.setattr(f"export.bundles.{name}", lambda _: found)
    out = tmp_path / "out"
    parity = export_run(run, out, Form("fp16", "cuda")).parity
    assert parity["head"] == "fp32"
    assert parity["head_refused"].endswith("no bundle was written")
    assert parity["fp32_products"] == 1
    assert parity["fp16"]["kept_fp32"] == []
    graph = onnx.load(out / "step.onnx", load_external_data=False).graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    products = [node for node in graph.node if node.op_type in ("Gemm", "MatMul")]
    (head,) = [node for node in products if types[node.input[1]] == TensorProto.FLOAT]
    (softmax,) = [node for node in graph.node if node.op_type == "LogSoftmax"]
    producers = {made: node for node in graph.node for made in node.output}
    before = softmax
    while before.output[0] != head.output[0]:  # nothing is rounded on the way
        assert before.op_type in ("LogSoftmax", "Reshape")
        before = producers[before.input[0]]


def test_what_would_overflow_fails_though_the_cpu_does_not_round(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = with_outliers(load_trained(tiny_model.run), 0.0)
    with torch.no_grad():
        for layer in trained.model.decoder:  # type: ignore[misc, union-attr]
            layer.ffn.up_proj.weight[0, 0], layer.ffn.up_proj.weight[0, 1] = 60_000.0, -60_000.0
    monkeypatch.setattr("export.bundles.translation.load_trained", lambda _: trained)
    unmeasured = HalfFit(frozenset(), {})
    monkeypatch.setattr("export.arithmetic.choice.fit_half", lambda *_: unmeasured)
    with pytest.raises(ParityError, match="the model gave a non-finite score"):
        export_run(tiny_model.run, tmp_path / "out", Form("fp16", "cuda"))
    assert not list(tmp_path.iterdir())


def test_attention_on_numbers_too_large_for_fp16_is_refused(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = load_trained(tiny_model.run)
    with torch.no_grad():
        trained.model.decoder[0].self_attention.in_proj.bias[-1] = 30_000.0  # type: ignore[index, union-attr]
    monkeypatch.setattr("export.bundles.translation.load_trained", lambda _: trained)
    with pytest.raises(ExportError, match="--precision bf16 or fp32"):
        export_run(tiny_model.run, tmp_path / "out", Form("fp16", "cuda"))
    assert not list(tmp_path.iterdir())


def test_bf16_is_gated_where_it_can_be_and_says_where_it_cannot(
    tiny_model: TinyModel,
    tiny_language_model: TinyLanguageModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parity = export_run(tiny_model.run, tmp_path / "a", Form("bf16", "cuda")).parity
    assert parity["rounded_in_pytorch"]["sentences"] == 20
    assert parity["onnx_reference"]["tokens"] == 16
    assert 0 < parity["onnx_reference"]["logits_mean_difference"] < 0.05
    figures = {"rounded_in_pytorch", "onnx_reference"}
    assert parity.keys() == {"data", "head", *figures, "gates_not_run"}
    assert parity["head"] == "bf16"
    assert [gate.split(":")[0] for gate in parity["gates_not_run"]] == [
        "on a CUDA device",
        "the graphs in a session, with step logits, searches and test texts",
    ]
    monkeypatch.setenv("MACARON_DEVICE", "cpu")
    with pytest.raises(BundleError, match=r"a bf16 bundle needs a session on cuda"):
        Translator(tmp_path / "a")
    with pytest.raises(ExportError, match="bf16 cannot be scored on test texts here"):
        export_run(
            tiny_language_model.run,
            tmp_path / "b",
            Form("bf16", "cuda"),
            Texts(test_texts=(DocumentsFile("own", tiny_language_model.text),)),
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--precision", "int8"], "use one of: cpu fp32, cpu int8, cuda fp32, cuda fp16, cuda bf"),
        (["--precision", "fp16", "--shortlist"], "--shortlist needs --target cpu, got cuda"),
        (["--precision", "fp16", "--activations", "static"], "static needs --precision int8"),
    ],
)
def test_what_there_is_not_for_cuda_is_refused_in_one_line(
    tiny_model: TinyModel,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
) -> None:
    arguments = ["bundle", str(tiny_model.run), str(tmp_path / "out"), "--target", "cuda"]
    assert main([*arguments, *options]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_fp32_bundle_by_the_command(
    tiny_model: TinyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["bundle", str(tiny_model.run), str(out), "--target", "cuda", "--precision", "fp32"]
    assert main(command) == 0
    parity: dict[str, Any] = json.loads(capsys.readouterr().out)["parity"]
    assert parity["logits_max_difference"] < 1e-3
    assert "rounded_in_pytorch" not in parity
    assert main(["verify", str(out)]) == 1
    assert "MACARON_DEVICE=cpu" in capsys.readouterr().err
