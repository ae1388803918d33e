"""Checkpoints of fairseq and of macaron-net, imported: laid out here by their documented names, of
models of `transformers` and of ours."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from export.bundles.subject import Form
from export.errors import ExportError
from export.importing.bundle import import_bundle, recognise
from export.importing.model import AS_TOLD, Declared
from export.importing.toolkits.fairseq import read_fairseq
from serving.translation.translator import Translator
from tests.toy.checkpoints import PAIRS, randomise
from tests.toy.fairseq_files import PIECES, options, save, write_files
from training.decoding.stepper import TorchStepper
from training.models import TransformerConfig, build_model

pytestmark = pytest.mark.usefixtures("traced_once", "one_thread", "short_sentences")


def of_transformers(size: int) -> tuple[Any, dict[str, Tensor]]:
    """An M2M100, whose layers are fairseq's, and its weights as fairseq saves them today."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    torch.manual_seed(5)
    sizes = {f"{s}_{n}": 2 for s in ("encoder", "decoder") for n in ("layers",)}
    sizes |= {f"{s}_attention_heads": 4 for s in ("encoder", "decoder")}
    sizes |= {f"{s}_ffn_dim": 48 for s in ("encoder", "decoder")}
    config = M2M100Config(vocab_size=size, d_model=32, activation_function="relu", **sizes)
    theirs = M2M100ForConditionalGeneration(config).eval()
    randomise(theirs)
    model = {
        name.removeprefix("model."): tensor.clone()
        for name, tensor in theirs.state_dict().items()
        if name.startswith("model.") and "shared" not in name and "embed_positions" not in name
    }
    model["decoder.output_projection.weight"] = model["decoder.embed_tokens.weight"]
    for side in ("encoder", "decoder"):
        model[f"{side}.version"] = torch.tensor([3.0])
        model[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
    return theirs, model


@pytest.mark.parametrize("told", ["args", "cfg"])
def test_logits_are_those_of_its_layers_in_transformers(tmp_path: Path, told: str) -> None:
    size = write_files(tmp_path / "run")
    theirs, model = of_transformers(size)
    given = options()
    task = {name: given.pop(name) for name in ("source_lang", "target_lang")}
    parts = (
        {"args": argparse.Namespace(**given, **task)}
        if told == "args"
        else {"args": None, "cfg": {"model": argparse.Namespace(**given), "task": task}}
    )
    save(tmp_path / "run", model, **parts)
    found = read_fairseq(tmp_path / "run", AS_TOLD)
    assert (found.languages.source, found.languages.target) == (("de",), ("en",))
    generator = torch.Generator().manual_seed(2)
    sources = [[*torch.randint(4, size, (n,), generator=generator).tolist(), 2] for n in (3, 8, 5)]
    outputs = torch.randint(4, size, (3, 7), generator=generator)
    given_BT = torch.cat([torch.full((3, 1), 2), outputs], 1)
    labels_BT = torch.cat([outputs, torch.full((3, 1), 2)], 1)
    stepper = TorchStepper(found.model)
    scores_BT = stepper.prefill(
        stepper.encode(sources), given_BT.numpy(), labels_BT.numpy()
    ).scores_BP
    for row, source in enumerate(sources):
        with torch.no_grad():
            logits = theirs(
                input_ids=torch.tensor([source]), decoder_input_ids=given_BT[row : row + 1]
            ).logits[0]
        wanted = logits.log_softmax(-1).gather(1, labels_BT[row][:, None])[:, 0]
        np.testing.assert_allclose(scores_BT[row], wanted.numpy(), atol=1e-4)


def of_macaron_net(model: Any) -> dict[str, Tensor]:
    """The weights of a Macaron Net of ours as macaron-net saves them."""
    found = {}
    norms = {"self_attention": "0", "ffn": "1", "first_ffn": "2"}
    norms_too = {
        "self_attention": "self_attn_layer_norm",
        "source_attention": "encoder_attn_layer_norm",
        "ffn": "final_layer_norm",
        "first_ffn": "macaron_layer_norm",
    }
    for name, tensor in model.state_dict().items():
        side, _, rest = name.partition(".")
        if name == "embedding.weight":
            for each in ("encoder", "decoder"):
                found[f"{each}.embed_tokens.weight"] = tensor
            continue
        if side.endswith("_norm"):
            found[f"{side.removesuffix('_norm')}.layer_norm.{rest}"] = tensor
            continue
        layer, _, rest = rest.partition(".")
        there = f"{side}.layers.{layer}"
        part, _, last = rest.partition(".")
        if part.endswith("_residual"):
            kind = part.removesuffix("_residual")
            norm = f"layer_norms.{norms[kind]}" if side == "encoder" else norms_too[kind]
            found[f"{there}.{norm}.{last.removeprefix('norm.')}"] = tensor
        elif part.endswith("ffn"):
            prefix = "macaron_" if part == "first_ffn" else ""
            last = last.replace("up_proj", "fc1").replace("down_proj", "fc2")
            found[f"{there}.{prefix}{last}"] = tensor
        elif part == "self_attention":
            found[f"{there}.self_attn.{re.sub('in_proj.', 'in_proj_', last)}"] = tensor
        else:
            found[f"{there}.{part} {last}"] = tensor
    for layer in range(2):  # queries, keys and values of one matrix, whatever they are of
        own = f"decoder.layers.{layer}"
        for kind in ("weight", "bias"):
            query = found.pop(f"{own}.source_attention query_proj.{kind}")
            both = found.pop(f"{own}.source_attention key_value_proj.{kind}")
            found[f"{own}.encoder_attn.in_proj_{kind}"] = torch.cat([query, both])
            out = found.pop(f"{own}.source_attention out_proj.{kind}")
            found[f"{own}.encoder_attn.out_proj.{kind}"] = out
    for side in ("encoder", "decoder"):
        found[f"{side}.version"] = torch.tensor([2.0])
        found[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
    return found


def write_macaron_net(folder: Path, **changed: Any) -> Any:
    size = write_files(folder)
    config = TransformerConfig(
        block="macaron",
        model_dim=32,
        num_heads=4,
        ffn_dim=48,
        num_encoder_layers=2,
        num_decoder_layers=2,
        vocab_size=size,
        positions="fairseq",
    )
    torch.manual_seed(3)
    model = build_model(config).eval()
    randomise(model)
    save(folder, of_macaron_net(model), args=argparse.Namespace(**options(macaron=True, **changed)))
    return model


def test_a_checkpoint_of_macaron_net_translates(tmp_path: Path) -> None:
    model = write_macaron_net(tmp_path / "run")
    file = tmp_path / "run" / "checkpoint_best.pt"
    found = recognise(file).read(file, Declared())
    assert found.model.config == model.config
    assert found.kind == "a Macaron Net of fairseq"
    state = found.model.state_dict()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(state[name], tensor, rtol=0, atol=0, msg=name)
    import_bundle(file, tmp_path / "bundle", Form("fp32"))
    translator = Translator(tmp_path / "bundle")
    texts = [source for source, _ in PAIRS[:6]]
    together = translator.translate(texts)
    assert together == [translator.translate([text])[0] for text in texts]


Change = Callable[[Path, dict[str, Any]], object]


def option(name: str, value: Any) -> Change:
    return lambda _, parts: setattr(parts["args"], name, value)


def of_other_names(folder: Path, args: argparse.Namespace) -> None:
    """Two dictionaries, of which nothing says whose they are."""
    args.share_all_embeddings = False
    (folder / "dict.de.txt").rename(folder / "dict.src.txt")
    (folder / "dict.en.txt").write_text("a 1\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (option("decoder_embed_dim", 64), "encoder_embed_dim and decoder_embed_dim must be equal"),
        (option("activation_fn", "gelu_accurate"), "activation_fn 'gelu_accurate'"),
        (option("adaptive_softmax_cutoff", "1000,2000"), "adaptive_softmax_cutoff"),
        (lambda _, parts: parts.pop("args"), "the options are missing"),
        (lambda _, parts: parts.pop("model"), "not a checkpoint of fairseq"),
        (
            lambda _, parts: parts["model"].update({"encoder.layers.0.gate.weight": torch.ones(2)}),
            "encoder.layers.0.gate.weight",
        ),
        (lambda folder, _: (folder / "dict.en.txt").write_text("a 1\n"), "differs from dict.de"),
        (lambda folder, parts: of_other_names(folder, parts["args"]), "dict.de.txt is missing"),
        (lambda folder, _: (folder / "dict.de.txt").write_text("a\n"), "line 1 must be a piece"),
        (lambda folder, _: (folder / PIECES).unlink(), "no SentencePiece model"),
    ],
)
def test_what_is_not_supported_is_reported_with_file_and_entry(
    tmp_path: Path, change: Change, message: str
) -> None:
    folder = tmp_path / "run"
    write_macaron_net(folder)
    file = folder / "checkpoint_best.pt"
    with torch.serialization.safe_globals([argparse.Namespace]):
        parts = torch.load(file, weights_only=True)
    change(folder, parts)
    torch.save(parts, file)
    with pytest.raises(ExportError, match="run") as told:
        read_fairseq(folder, AS_TOLD)
    assert message in str(told.value)
    assert "\n" not in str(told.value)
