"""Checkpoints of OpenNMT-py: options, vocabulary, and which tensor stands where."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from export.errors import ExportError
from export.importing.model import LanguageChoice, Pieces
from export.importing.toolkits.opennmt import read_opennmt
from tests.unit.export.importing.small_bart import random_tensors
from tests.unit.export.importing.vocabularies.small_pieces import write_pieces

DIM, FFN = 8, 12
WRITTEN = ["<unk>", "<blank>", "<s>", "</s>", "▁haus", "▁a"]
PAIR = LanguageChoice(("de",), ("en",))
LUT = "{}.embeddings.make_embedding.emb_luts.0.weight"


def tensors(size: int = len(WRITTEN)) -> dict[str, Tensor]:
    shapes: dict[str, tuple[int, ...]] = {}

    def both(name: str, *shape: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = shape, shape[:1]

    for side, kind in (("encoder", "transformer"), ("decoder", "transformer_layers")):
        shapes[LUT.format(side)] = (size, DIM)
        layer = f"{side}.{kind}.0"
        for attention in ["self_attn"] + ["context_attn"] * (side == "decoder"):
            for part in ("linear_query", "linear_keys", "linear_values", "final_linear"):
                both(f"{layer}.{attention}.{part}", DIM, DIM)
        for norm in ["layer_norm_1", "layer_norm_2"] if side == "decoder" else ["layer_norm"]:
            both(f"{layer}.{norm}", DIM)
        both(f"{layer}.feed_forward.w_1", FFN, DIM)
        both(f"{layer}.feed_forward.w_2", DIM, FFN)
        both(f"{layer}.feed_forward.layer_norm", DIM)
        both(f"{side}.layer_norm", DIM)
    return random_tensors(shapes)


def save(folder: Path, model: dict[str, Tensor], vocab: Any = None, **options: Any) -> Path:
    write_pieces(folder / "sentencepiece.model")
    told = {"heads": 2, "position_encoding": True, "max_relative_positions": 0, **options}
    size = len(WRITTEN)
    generator = random_tensors({"weight": (size, DIM), "bias": (size,)}, seed=1)
    parts = {
        "model": model,
        "generator": generator,
        "vocab": {"src": WRITTEN, "tgt": WRITTEN} if vocab is None else vocab,
        "opt": argparse.Namespace(**told),
    }
    torch.save(parts, folder / "step_100.pt")
    return folder


def test_each_tensor_has_its_place(tmp_path: Path) -> None:
    given = tensors()
    imported = read_opennmt(save(tmp_path, given), PAIR)
    state, config = imported.model.state_dict(), imported.model.config
    assert (config.norm, config.embedding_scale, config.num_heads) == ("pre", "token", 2)
    for ours, theirs in {
        "source_embedding.weight": [LUT.format("encoder")],
        "embedding.weight": [LUT.format("decoder")],
        "encoder.0.self_attention.in_proj.weight": [
            f"encoder.transformer.0.self_attn.linear_{part}.weight"
            for part in ("query", "keys", "values")
        ],
        "decoder.0.source_attention.key_value_proj.bias": [
            f"decoder.transformer_layers.0.context_attn.linear_{part}.bias"
            for part in ("keys", "values")
        ],
        "decoder.0.source_attention_residual.norm.weight": [
            "decoder.transformer_layers.0.layer_norm_2.weight"
        ],
        "encoder.0.self_attention_residual.norm.bias": ["encoder.transformer.0.layer_norm.bias"],
        "encoder.0.ffn.down_proj.weight": ["encoder.transformer.0.feed_forward.w_2.weight"],
        "decoder_norm.bias": ["decoder.layer_norm.bias"],
    }.items():
        assert torch.equal(state[ours], torch.cat([given[name] for name in theirs])), ours
    ids = imported.special_ids
    assert (ids.pad, ids.unk, ids.bos, ids.eos) == (1, 0, 2, 3)
    assert isinstance(imported.pieces, Pieces)
    assert imported.pieces.control == {1, 2, 3}
    assert not imported.source_end


def test_stored_sinusoids_are_positions_of_their_kind(tmp_path: Path) -> None:
    table = opennmt_sinusoids(9)
    name = "{}.embeddings.make_embedding.pe.pe"
    stored = {name.format(side): table[:, None] for side in ("encoder", "decoder")}
    imported = read_opennmt(save(tmp_path, tensors() | stored), PAIR)
    assert imported.model.config.positions == "interleaved"


def opennmt_sinusoids(rows: int) -> Tensor:
    """Sines at even places, cosines at odd ones."""
    angles = torch.arange(rows)[:, None] * 10000.0 ** (-torch.arange(0, DIM, 2) / DIM)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def test_distances_are_known_by_one_table_a_layer(tmp_path: Path) -> None:
    given = tensors()
    for side, kind in (("encoder", "transformer"), ("decoder", "transformer_layers")):
        name = f"{side}.{kind}.0.self_attn.relative_positions_embeddings.weight"
        given[name] = torch.randn(7, DIM // 2)
    imported = read_opennmt(
        save(tmp_path, given, position_encoding=False, max_relative_positions=3), PAIR
    )
    assert imported.model.config.positions == "relative"
    state = imported.model.state_dict()
    table = given["encoder.transformer.0.self_attn.relative_positions_embeddings.weight"]
    for kind in ("keys", "values"):
        assert torch.equal(state[f"encoder.0.self_attention.relative.{kind}_1RE"][0], table)
    assert imported.model.config.embedding_scale == "none"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"decoder_type": "cnn"}, "decoder_type 'cnn' is not supported; it must be 'transformer'"),
        ({"num_kv": 1}, "num_kv 1 is not supported; it must be 0 or 2"),
        ({"copy_attn": True}, "copy_attn True is not supported"),
        ({"max_relative_positions": -1}, r"-1 \(rotary, ALiBi\) is not supported"),
        ({"max_relative_positions": 3}, "one of position_encoding and max_relative_positions must"),
        ({"position_encoding": False}, "must be set, got False and 0"),
    ],
)
def test_options_that_are_not_supported_are_named(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExportError, match=rf"step_100\.pt: .*{words}"):
        read_opennmt(save(tmp_path, tensors(), **options), PAIR)


@pytest.mark.parametrize(
    ("vocab", "words"),
    [
        ({"src": WRITTEN}, "a list of pieces for src and for tgt"),
        ({"src": WRITTEN, "tgt": [1]}, "a list of pieces for src and for tgt"),
        ([], "a list of pieces for src and for tgt"),
        ({"src": WRITTEN, "tgt": WRITTEN, "src_feats": {"case": ["U"]}}, "features of pieces are"),
        ({"src": WRITTEN, "tgt": WRITTEN[:5]}, "target has 5 pieces and its embedding 6 rows"),
    ],
)
def test_what_is_no_vocabulary_is_refused(tmp_path: Path, vocab: Any, words: str) -> None:
    with pytest.raises(ExportError, match=words):
        read_opennmt(save(tmp_path, tensors(), vocab), PAIR)


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    torch.save({"model": {}}, tmp_path / "a.pt")
    with pytest.raises(
        ExportError, match="not a checkpoint of OpenNMT-py, which has the parts gener"
    ):
        read_opennmt(tmp_path, PAIR)
    torch.save({"model": {}, "generator": {}, "vocab": {}, "opt": {}}, tmp_path / "a.pt")
    with pytest.raises(ExportError, match="opt must hold the options, got dict"):
        read_opennmt(tmp_path, PAIR)


def test_tensors_that_are_missing_or_not_known_keep_their_names(tmp_path: Path) -> None:
    given = tensors()
    rows = given.pop(LUT.format("encoder"))
    with pytest.raises(ExportError, match=r"'encoder\.embeddings.*\.weight' is missing"):
        read_opennmt(save(tmp_path, given), PAIR)
    more = given | {LUT.format("encoder"): rows, "encoder.gate.weight": torch.ones(2)}
    with pytest.raises(ExportError, match=r"'encoder\.gate\.weight' \[2\] is not known"):
        read_opennmt(save(tmp_path, more), PAIR)
