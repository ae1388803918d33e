"""Bundles taken back to checkpoints: the weights are those that the bundle was made of."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from export.__main__ import main
from export.bundles.checkpoint import recover_checkpoint
from export.errors import ExportError
from export.graphs.writing import write_graphs, write_text_graph
from serving.bundle.folder import read_manifest, write_manifest
from serving.bundle.manifest import Manifest
from tests.conftest import TinyEncoders, TinyLanguageModel, TinyModel
from training.errors import CheckpointError
from training.loop.trainer import train
from training.models import (
    ClassifierConfig,
    EmbedderConfig,
    JointConfig,
    ModelConfig,
    TextModel,
    TransformerConfig,
    TranslationModel,
    build_model,
    build_trainable,
)
from training.recipe.config import load_recipe
from training.results.evaluation import EvaluationText, evaluate
from training.runs.checkpoint import find_checkpoint
from training.runs.folder import load_encoder

pytestmark = pytest.mark.usefixtures("traced_once")

SIZES: dict[str, Any] = {"model_dim": 32, "num_heads": 2, "ffn_dim": 48, "vocab_size": 90}
SIZES |= {"num_encoder_layers": 2, "num_decoder_layers": 2}
BASE = TransformerConfig(**SIZES)
# But for two they are models of `test_bundle`, which are traced once for both.
MODELS: dict[str, ModelConfig] = {
    "post-norm": replace(BASE, norm="post"),
    "learnt positions, output bias, norm of the embedding": replace(
        BASE, positions="learnt", max_positions=64, output_bias=True, embedding_norm=True
    ),
    "macaron, gated": replace(BASE, block="macaron", activation="swiglu", ffn_dim=32),
    "scale norm": replace(BASE, norm_type="scale"),
    "joint": JointConfig(**SIZES),
    "universal": replace(BASE, share_layers=True),
    "dynamic convolutions": replace(
        BASE, encoder_mixing="dynamic_conv", decoder_mixing="dynamic_conv"
    ),
}


def weights_of(run: Path) -> dict[str, Tensor]:
    return load_file(find_checkpoint(run) / "model.safetensors")


def assert_within_half_a_level(found: Tensor, trained: Tensor) -> None:
    """A weight is off by at most half of what divides two int8 levels of its row."""
    if trained.ndim < 2:
        assert torch.allclose(found, trained, rtol=1e-5, atol=1e-7)
        return
    peak = trained.abs().amax(dim=1, keepdim=True)
    assert ((found - trained).abs() <= peak * (0.5 / 127 + 1e-5)).all()


def test_an_fp32_bundle_gives_the_weights_of_its_run(tiny_model: TinyModel, tmp_path: Path) -> None:
    recover_checkpoint(tiny_model.fp32, tmp_path / "run")
    found, trained = weights_of(tmp_path / "run"), weights_of(tiny_model.run)
    assert found.keys() == trained.keys()
    assert all(torch.allclose(found[n], trained[n], rtol=1e-6, atol=0) for n in trained)


def test_an_int8_bundle_gives_weights_within_half_a_level(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    recover_checkpoint(tiny_model.int8, tmp_path / "run")
    found, trained = weights_of(tmp_path / "run"), weights_of(tiny_model.run)
    assert found.keys() == trained.keys()
    for name, weight in trained.items():
        assert_within_half_a_level(found[name], weight)


def test_a_language_model_comes_back(
    tiny_language_model: TinyLanguageModel, tmp_path: Path
) -> None:
    for precision in ("fp32", "int8"):
        bundle, run = getattr(tiny_language_model, precision), tmp_path / precision
        recover_checkpoint(bundle, run)
        found, trained = weights_of(run), weights_of(tiny_language_model.run)
        assert found.keys() == trained.keys()
        for name, weight in trained.items():
            assert_within_half_a_level(found[name], weight)


@pytest.mark.parametrize("labels", [(), ("yes", "no", "perhaps")], ids=["vectors", "classes"])
def test_an_encoder_comes_back(
    labels: tuple[str, ...], tiny_encoders: TinyEncoders, tmp_path: Path
) -> None:
    sizes = SIZES | {"num_decoder_layers": 0, "max_positions": 64}
    config = (
        ClassifierConfig(**sizes, num_classes=len(labels))
        if labels
        else EmbedderConfig(**sizes, pooling="mean")
    )
    torch.manual_seed(3)
    model = build_trainable(config)
    assert isinstance(model, TextModel)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    manifest = write_text_graph(
        model, bundle, name="random", precision="int8", max_length=64, labels=labels
    )
    kind = "single" if labels else "contrastive"
    data = {"kind": kind, "train": "t.tsv", "labels": list(labels), "max_length": 64}
    architecture = "classifier" if labels else "embedder"
    recipe = {
        "name": "random",
        "model": {"architecture": architecture, **dataclasses.asdict(config)},
        "data": data,
        "tokenizer": {"kind": "wordpiece"},
    }
    like = tiny_encoders.bundles / "tiny-embedder" / "tokenizer.json"
    (bundle / "tokenizer.json").write_bytes(like.read_bytes())
    write_manifest(bundle, manifest.model_copy(update={"recipe": recipe}))
    recover_checkpoint(bundle, tmp_path / "run")
    found = load_encoder(tmp_path / "run").model.state_dict()
    for name, parameter in model.named_parameters():
        assert_within_half_a_level(found[name], parameter.detach())


@pytest.mark.parametrize("name", MODELS)
def test_models_with_options_come_back(name: str, tiny_bundle: Path, tmp_path: Path) -> None:
    model = recovered(MODELS[name], tiny_bundle, tmp_path)
    found = weights_of(tmp_path / "run")
    for key, parameter in model.named_parameters():
        assert_within_half_a_level(found[key], parameter.detach())


@pytest.mark.parametrize("name", ["joint", "macaron, gated"])
def test_factors_that_an_earlier_version_did_not_fold_are_not_taken_out(
    name: str, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("export.graphs.lowering.fold_scalars", lambda model: {})
        model, bundle = made(MODELS[name], tiny_bundle, tmp_path)
    recover_checkpoint(bundle, tmp_path / "run")
    found = weights_of(tmp_path / "run")
    for key, parameter in model.named_parameters():
        assert_within_half_a_level(found[key], parameter.detach())


def test_weights_that_export_has_worked_into_others_are_named(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match="kappa_logits as it was trained; begin with the run"):
        recovered(replace(BASE, block="weighted"), tiny_bundle, tmp_path)
    assert not (tmp_path / "run").exists()


def recovered(config: ModelConfig, like: Path, folder: Path) -> TranslationModel:
    """A random model, whose int8 bundle was taken back."""
    model, bundle = made(config, like, folder)
    recover_checkpoint(bundle, folder / "run")
    return model


def made(config: ModelConfig, like: Path, folder: Path) -> tuple[TranslationModel, Path]:
    """A random model and its int8 bundle, with the texts of another one."""
    torch.manual_seed(3)
    model = build_model(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    bundle = folder / "bundle"
    bundle.mkdir()
    manifest = write_graphs(model, bundle, name="random", precision="int8")
    recipe = read_manifest(like).recipe | {"model": model_tree(config)}
    (bundle / "tokenizer.model").write_bytes((like / "tokenizer.model").read_bytes())
    write_manifest(bundle, manifest.model_copy(update={"recipe": recipe}))
    return model, bundle


def model_tree(config: ModelConfig) -> dict[str, Any]:
    architecture = "joint" if isinstance(config, JointConfig) else "transformer"
    return {"architecture": architecture, **dataclasses.asdict(config)}


def test_training_goes_on_from_a_bundle(
    tiny_model: TinyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command's run translates as the bundle does, and a new run begins with it."""
    run, new = tmp_path / "run", tmp_path / "new"
    assert main(["checkpoint", str(tiny_model.int8), str(run)]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == str(run)
    sources = (tiny_model.run / "validation.source").read_text().splitlines()[:20]
    (tmp_path / "source").write_text("\n".join(sources) + "\n")
    text = EvaluationText(tmp_path / "source", tmp_path / "source")
    figures = evaluate(run, text, beam_size=1)
    trained = evaluate(tiny_model.run, text, beam_size=1)
    assert figures["bleu"] > trained["bleu"] - 1
    recipe = tiny_model.run / "config.yaml"
    words = ["loop.max_steps=1", "optim.peak_lr=0", "loop.bf16=false", "loop.bleu_sentences=0"]
    train(load_recipe(str(recipe), [f"loop.initial_weights={run}", *words]), new)
    begun = load_file(new / "checkpoints" / "step_00000001" / "model.safetensors")
    assert all(torch.equal(begun[name], weight) for name, weight in weights_of(run).items())


def without_recipe(manifest: Manifest) -> Manifest:
    return manifest.model_copy(update={"recipe": {}})


def for_cuda(manifest: Manifest) -> Manifest:
    return manifest.model_copy(update={"target": "cuda"})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (without_recipe, "an imported model's weights are in its source"),
        (for_cuda, "give the bundle for the CPU"),
    ],
)
def test_bundles_whose_weights_cannot_be_taken_are_refused(
    change: Callable[[Manifest], Manifest], says: str, tiny_bundle: Path, tmp_path: Path
) -> None:
    bundle = copied(tiny_bundle, tmp_path)
    write_manifest(bundle, change(read_manifest(tiny_bundle)))
    with pytest.raises(ExportError, match=says):
        recover_checkpoint(bundle, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def copied(bundle: Path, folder: Path) -> Path:
    out = folder / "bundle"
    out.mkdir()
    for file in bundle.iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    return out


def test_constants_may_have_any_names(tiny_bundle: Path, tmp_path: Path) -> None:
    bundle = copied(tiny_bundle, tmp_path)
    for file in ("encoder.onnx", "step.onnx"):
        model = onnx.load(bundle / file, load_external_data=False)
        names = {
            each.name: f"other_{number}{'_scale' if each.name.endswith('_scale') else ''}"
            for number, each in enumerate(model.graph.initializer)
        }
        for name in [name for name in names if name.endswith("_s8")]:  # they belong together
            names[name] = names[f"{name.removesuffix('_s8')}_scale"].removesuffix("_scale") + "_s8"
        for each in model.graph.initializer:
            each.name = names[each.name]
        for node in model.graph.node:
            node.input[:] = [names.get(name, name) for name in node.input]
        (bundle / file).write_bytes(model.SerializeToString())
    write_manifest(bundle, read_manifest(tiny_bundle))
    recover_checkpoint(bundle, tmp_path / "run")
    recover_checkpoint(tiny_bundle, tmp_path / "same")
    found, wanted = weights_of(tmp_path / "run"), weights_of(tmp_path / "same")
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"num_encoder_layers": 7},
            "other constants in place of .*another version of this program",
        ),
        ({"embedding_scale": "none"}, "off what it gives, so another version of this program"),
    ],
)
def test_graphs_of_another_model_are_refused(
    changes: dict[str, Any], says: str, tiny_bundle: Path, tmp_path: Path
) -> None:
    bundle = copied(tiny_bundle, tmp_path)
    manifest = read_manifest(tiny_bundle)
    recipe = manifest.recipe | {"model": manifest.recipe["model"] | changes}
    write_manifest(bundle, manifest.model_copy(update={"recipe": recipe}))
    with pytest.raises(ExportError, match=says):
        recover_checkpoint(bundle, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_imported_encoder_and_a_folder_that_is_there_are_refused(
    tiny_encoders: TinyEncoders, tiny_bundle: Path, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match="an imported model's weights are in its source"):
        recover_checkpoint(tiny_encoders.bundles / "tiny-classifier", tmp_path / "run")
    (tmp_path / "run").mkdir()
    with pytest.raises(ExportError, match="give --force to replace it"):
        recover_checkpoint(tiny_bundle, tmp_path / "run")


def test_training_says_how_to_begin_with_a_bundle(tiny_bundle: Path) -> None:
    with pytest.raises(CheckpointError, match="macaron export checkpoint"):
        find_checkpoint(tiny_bundle)
