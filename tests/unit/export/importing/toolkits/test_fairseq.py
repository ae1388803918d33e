"""Models of fairseq: names of both versions, dictionaries, and what is refused."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from export.errors import ExportError
from export.importing.model import LanguageChoice, Pieces
from export.importing.toolkits.fairseq import has_fairseq, read_fairseq
from tests.unit.export.importing.small_bart import (
    DIM,
    FFN,
    HEADS,
    bart_shapes,
    random_tensors,
)
from tests.unit.export.importing.vocabularies.small_pieces import write_pieces

PIECES = ["▁haus", "▁a", "b"]
SIZE = 4 + len(PIECES)
SIZES = {"embed_dim": DIM, "ffn_embed_dim": FFN, "attention_heads": HEADS, "layers": 1}
ASKED = LanguageChoice()


def options(**changed: Any) -> dict[str, Any]:
    found = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in SIZES.items()}
    more = {"share_all_embeddings": True, "source_lang": "de", "target_lang": "en"}
    return {**found, **more, **changed}


def tensors(size: int = SIZE, **changed: bool) -> dict[str, Tensor]:
    """By the names that fairseq has for the same parts."""
    given = random_tensors(bart_shapes(size, **changed))
    shared = given.pop("model.shared.weight")
    for side in ("encoder", "decoder"):
        given[f"model.{side}.embed_tokens.weight"] = shared
    return {name.removeprefix("model."): tensor for name, tensor in given.items()}


def save(
    folder: Path, model: dict[str, Tensor], told: dict[str, Any] | None = None, **parts: Any
) -> Path:
    lines = "".join(f"{piece} {9 - n}\n" for n, piece in enumerate(PIECES))
    for code in ("de", "en"):
        path = folder / f"dict.{code}.txt"
        if not path.exists():
            path.write_text(lines, encoding="utf-8")
    write_pieces(folder / "sentencepiece.bpe.model")
    parts = parts or {"args": argparse.Namespace(**(told or options()))}
    torch.save({"model": model, **parts}, folder / "checkpoint_best.pt")
    return folder


def test_a_model_with_its_dictionary_is_read(tmp_path: Path) -> None:
    given = tensors()
    folder = save(tmp_path, given | {"encoder.version": torch.ones(1)})
    assert has_fairseq(folder)
    imported = read_fairseq(folder, ASKED)
    assert imported.kind == "a Transformer of fairseq"
    config, state = imported.model.config, imported.model.state_dict()
    assert (config.norm, config.positions, config.vocab_size) == ("post", "fairseq", SIZE)
    products = [given[f"decoder.layers.0.encoder_attn.{part}_proj.weight"] for part in "kv"]
    ours = state["decoder.0.source_attention.key_value_proj.weight"]
    assert torch.equal(ours, torch.cat(products))
    ids = imported.special_ids
    assert (ids.pad, ids.unk, ids.bos, ids.eos) == (1, 3, 2, 2)
    assert isinstance(imported.pieces, Pieces)
    assert imported.pieces.written == ["<s>", "<pad>", "</s>", "<unk>", *PIECES]
    assert imported.pieces.control == {0, 1, 2}
    assert (imported.languages.source, imported.languages.target) == (("de",), ("en",))


def test_options_may_stand_in_two_parts(tmp_path: Path) -> None:
    told = options()
    task = {name: told.pop(name) for name in ("source_lang", "target_lang")}
    cfg = {"task": task, "model": argparse.Namespace(**told)}
    imported = read_fairseq(save(tmp_path, tensors(), cfg=cfg), ASKED)
    assert imported.languages.source == ("de",)


def test_names_of_version_0_6_are_brought_to_today_s(tmp_path: Path) -> None:
    wanted = read_fairseq(save(tmp_path, tensors()), ASKED).model.state_dict()
    older, given = {}, tensors()
    order = {"encoder": ("self_attn", "final"), "decoder": ("self_attn", "encoder_attn", "final")}
    for side, names in order.items():
        there = f"{side}.layers.0"
        for number, norm in enumerate(names):
            for kind in ("weight", "bias"):
                tensor = given.pop(f"{there}.{norm}_layer_norm.{kind}")
                older[f"{there}.layer_norms.{number}.{kind}"] = tensor
        for attention in ["self_attn"] + ["encoder_attn"] * (side == "decoder"):
            for kind in ("weight", "bias"):
                parts = [given.pop(f"{there}.{attention}.{part}_proj.{kind}") for part in "qkv"]
                older[f"{there}.{attention}.in_proj_{kind}"] = torch.cat(parts)
    found = read_fairseq(save(tmp_path, given | older), ASKED).model.state_dict()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_learnt_positions_begin_behind_padding_s_rows(tmp_path: Path) -> None:
    told = options(encoder_learned_pos=True, decoder_learned_pos=True, layernorm_embedding=True)
    given, more = tensors(), {}
    for side in ("encoder", "decoder"):
        more[f"{side}.embed_positions.weight"] = (12, DIM)
        for kind in ("weight", "bias"):
            more[f"{side}.layernorm_embedding.{kind}"] = (DIM,)
    given |= random_tensors(more, seed=4)
    imported = read_fairseq(save(tmp_path, given, told), ASKED)
    assert imported.model.config.max_positions == 10
    state = imported.model.state_dict()
    table = given["decoder.embed_positions.weight"]
    assert torch.equal(state["decoder_side.positions.weight"], table[2:])
    norm = given["encoder.layernorm_embedding.bias"]
    assert torch.equal(state["encoder_side.norm.bias"], norm)


def test_an_output_and_dictionaries_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "dict.de.txt").write_text("▁haus 9\n▁a 8\nb 7\nc 6 #fairseq:overwrite\n")
    given = tensors()
    given["encoder.embed_tokens.weight"] = torch.randn(SIZE + 1, DIM)
    given["decoder.output_projection.weight"] = torch.randn(SIZE, DIM)
    told = options(share_all_embeddings=False)
    imported = read_fairseq(save(tmp_path, given, told), ASKED)
    state = imported.model.state_dict()
    assert imported.model.config.source_vocab_size == SIZE + 1
    assert torch.equal(state["output_matrix"], given["decoder.output_projection.weight"])
    assert isinstance(imported.pieces, Pieces)
    assert imported.pieces.source_written is not None
    assert imported.pieces.source_written[-1] == "c"


def test_convolutions_have_a_width_a_layer(tmp_path: Path) -> None:
    given = tensors()
    for side in ("encoder", "decoder"):
        layer = f"{side}.layers.0"
        for part in ("q", "k", "v", "out"):
            for kind in ("weight", "bias"):
                del given[f"{layer}.self_attn.{part}_proj.{kind}"]
        for kind in ("weight", "bias"):
            norm = given.pop(f"{layer}.self_attn_layer_norm.{kind}")
            given[f"{layer}.conv_layer_norm.{kind}"] = norm
        shapes = {"linear1.weight": (2 * DIM, DIM), "linear1.bias": (2 * DIM,)}
        shapes |= {"linear2.weight": (DIM, DIM), "linear2.bias": (DIM,)}
        shapes["conv.weight"] = (HEADS, 1, 5)
        given |= {f"{layer}.{n}": torch.randn(*shape) for n, shape in shapes.items()}
    told = options(arch="lightconv_wmt")
    for side in ("encoder", "decoder"):
        told |= {f"{side}_conv_type": "lightweight", f"{side}_kernel_size_list": [5]}
    imported = read_fairseq(save(tmp_path, given, told), ASKED)
    assert imported.kind == "a LightConv of fairseq"
    kernel = imported.model.state_dict()["encoder.0.self_attention.kernel"]
    assert torch.equal(kernel, given["encoder.layers.0.conv.weight"][:, 0].flip(1))
    for changed, words in (
        ({"encoder_kernel_size_list": [4]}, "widths must be odd, from 3 on"),
        ({"encoder_kernel_size_list": [3, 5]}, r"a width for each of 1 layers, got \[3, 5\]"),
        ({"encoder_kernel_size_list": "3"}, "must be a list of widths, got '3'"),
        ({"decoder_conv_type": "cnn"}, "'cnn' is not supported; it must be 'lightweight' or 'dyn"),
        ({"decoder_conv_dim": 4}, "decoder_conv_dim 4 is not supported; it must be decoder_embed_"),
    ):
        with pytest.raises(ExportError, match=words):
            read_fairseq(save(tmp_path, given, told | changed), ASKED)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"scale_heads": True}, "scale_heads True is not supported; it must be left out"),
        ({"activation_fn": "tanh"}, "activation_fn 'tanh' is not supported; supported: relu"),
        (
            {"decoder_ffn_embed_dim": 9},
            "encoder_ffn_embed_dim and decoder_ffn_embed_dim must be eq",
        ),
        ({"source_lang": None}, "give one with --from CODE"),
    ],
)
def test_options_that_are_not_supported_are_named(
    tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExportError, match=words):
        read_fairseq(save(tmp_path, tensors(), options(**changed)), ASKED)


def test_dictionaries_that_do_not_fit_are_named(tmp_path: Path) -> None:
    (tmp_path / "dict.de.txt").write_text("▁haus nine\n")
    with pytest.raises(ExportError, match=r"dict\.de\.txt: line 1 must be a piece and its count"):
        read_fairseq(save(tmp_path, tensors()), ASKED)
    (tmp_path / "dict.de.txt").write_text("▁haus 9\n")
    with pytest.raises(ExportError, match=r"differs from dict\.de\.txt, and share_all_embeddings"):
        read_fairseq(save(tmp_path, tensors()), ASKED)
    told = options(share_all_embeddings=False, source_lang="fr")
    with pytest.raises(
        ExportError, match=r"dict\.fr\.txt is missing, the dictionary of source_lang"
    ):
        read_fairseq(save(tmp_path, tensors(), told), ASKED)
    for path in tmp_path.glob("dict.*"):
        path.unlink()
    assert not has_fairseq(tmp_path)
    with pytest.raises(ExportError, match=r"dict\.<language>\.txt is missing"):
        read_fairseq(tmp_path, ASKED)


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    torch.save({"weights": {}}, tmp_path / "a.pt")
    with pytest.raises(ExportError, match="not a checkpoint of fairseq, which has the part model"):
        read_fairseq(tmp_path, ASKED)
    torch.save({"model": {}}, tmp_path / "a.pt")
    with pytest.raises(ExportError, match="the options are missing, in args or in cfg"):
        read_fairseq(tmp_path, ASKED)


def test_a_layer_that_is_not_known_is_named(tmp_path: Path) -> None:
    given = tensors() | {"encoder.layers.0.gate": torch.ones(3)}
    with pytest.raises(ExportError, match=r"'model\.encoder\.layers\.0\.gate' \[3\] is not known"):
        read_fairseq(save(tmp_path, given), ASKED)
