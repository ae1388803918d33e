"""Which of CTranslate2's parts stands where in a Transformer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from export.errors import ExportError
from export.importing.model import loaded
from export.importing.toolkits.ctranslate2_file import SpecFile
from export.importing.toolkits.spec_layers import SpecLayers
from export.importing.vocabularies.pair import Written
from tests.unit.export.importing.toolkits.spec_files import (
    DIM,
    FFN,
    OPTIONS,
    SIZE,
    gates,
    spec_tensors,
)
from training.models.sublayers.embedding import marian_sinusoid

PATH = Path("model.bin")


def layers(tensors: dict[str, Tensor], **changed: float) -> SpecLayers:
    options = OPTIONS | {
        f"{side}/{name}": value
        for side in ("encoder", "decoder")
        for name, value in changed.items()
    }
    return SpecLayers(PATH, SpecFile("", tensors, options), None)


def test_each_tensor_has_its_place() -> None:
    given = spec_tensors()
    found = layers(given)
    config, state = found.config, found.state
    loaded(config, state)
    assert (config.model_dim, config.num_heads, config.ffn_dim) == (DIM, 2, FFN)
    assert (config.norm, config.norm_type, config.activation) == ("pre", "layer", "relu")
    assert (config.vocab_size, config.source_vocab_size) == (SIZE, 0)
    assert config.tie_embeddings
    for ours, theirs in {
        "embedding.weight": "decoder/embeddings/weight",
        "output_bias": "decoder/projection/bias",
        "encoder_norm.weight": "encoder/layer_norm/gamma",
        "encoder.0.self_attention.in_proj.weight": "encoder/layer_0/self_attention/linear_0/weight",
        "decoder.0.self_attention.out_proj.bias": "decoder/layer_0/self_attention/linear_1/bias",
        "decoder.0.source_attention.query_proj.weight": "decoder/layer_0/attention/linear_0/weight",
        "decoder.0.source_attention.key_value_proj.bias": "decoder/layer_0/attention/linear_1/bias",
        "decoder.0.source_attention.out_proj.weight": "decoder/layer_0/attention/linear_2/weight",
        "decoder.0.source_attention_residual.norm.bias": (
            "decoder/layer_0/attention/layer_norm/beta"
        ),
        "encoder.0.ffn.up_proj.weight": "encoder/layer_0/ffn/linear_0/weight",
        "encoder.0.ffn.down_proj.weight": "encoder/layer_0/ffn/linear_1/weight",
        "encoder.0.ffn_residual.norm.weight": "encoder/layer_0/ffn/layer_norm/gamma",
    }.items():
        assert torch.equal(state[ours], given[theirs]), ours


def test_a_bias_that_was_left_out_is_zero() -> None:
    given = spec_tensors()
    del given["encoder/layer_0/ffn/linear_1/bias"]
    assert not layers(given).state["encoder.0.ffn.down_proj.bias"].any()


def test_embeddings_that_differ_are_taken_apart() -> None:
    given = spec_tensors(source_size=4)
    given["decoder/projection/weight"] += 1
    found = layers(given)
    assert (found.config.source_vocab_size, found.config.tie_embeddings) == (4, False)
    assert torch.equal(found.state["source_embedding.weight"], given["encoder/embeddings_0/weight"])
    assert torch.equal(found.state["output_matrix"], given["decoder/projection/weight"])
    loaded(found.config, found.state)


@pytest.mark.parametrize(("number", "name"), [(0, "reglu"), (2, "swiglu"), (3, "geglu")])
def test_gates_stand_before_what_they_let_through(number: int, name: str) -> None:
    given = spec_tensors()
    gates(given)
    found = layers(given, activation=number)
    assert found.config.activation == name
    there = "encoder/layer_0/ffn/linear_0"
    wanted = torch.cat([given[f"{there}/weight"], given[f"{there}_noact/weight"]])
    assert torch.equal(found.state["encoder.0.ffn.up_proj.weight"], wanted)
    loaded(found.config, found.state)


def test_norms_without_a_shift_are_of_the_root_mean_square() -> None:
    given = {name: value for name, value in spec_tensors().items() if not name.endswith("/beta")}
    found = layers(given)
    assert found.config.norm_type == "rms"
    loaded(found.config, found.state)


@pytest.mark.parametrize(("factor", "scale"), [(0.0, "none"), (1.0, "token"), (DIM**0.5, "token")])
def test_vectors_are_scaled_by_a_switch_or_a_factor(factor: float, scale: str) -> None:
    assert layers(spec_tensors(), scale_embeddings=factor).config.embedding_scale == scale
    assert layers(spec_tensors()).config.embedding_scale == "token"
    with pytest.raises(ExportError, match=r"scale_embeddings must be off or sqrt\(8\), got 3"):
        layers(spec_tensors(), scale_embeddings=3.0)


def test_positions_are_recognised_by_their_tables() -> None:
    assert layers(spec_tensors()).config.positions == "sinusoid"
    name = "{}/position_encodings/encodings"
    sides = ("encoder", "decoder")
    table = marian_sinusoid(torch.arange(9), DIM)
    found = layers(spec_tensors() | {name.format(side): table for side in sides})
    assert found.config.positions == "marian"
    learnt = {name.format(side): table + n for n, side in enumerate(sides, 1)}
    found = layers(spec_tensors() | learnt)
    assert (found.config.positions, found.config.max_positions) == ("learnt", 9)
    assert torch.equal(found.state["decoder_side.positions.weight"], table + 2)
    loaded(found.config, found.state)
    uneven = {name.format("encoder"): table, name.format("decoder"): table[:5]}
    with pytest.raises(ExportError, match="position_encodings must be of one shape on both sides"):
        layers(spec_tensors() | uneven)


def test_distances_have_vectors_in_each_layer() -> None:
    given = spec_tensors()
    for side in ("encoder", "decoder"):
        there = f"{side}/layer_0/self_attention/relative_position"
        for n, kind in enumerate(("keys", "values")):
            given[f"{there}_{kind}"] = torch.full((7, DIM // 2), float(n))
    found = layers(given)
    assert (found.config.positions, found.config.max_relative_distance) == ("relative", 3)
    assert (found.state["encoder.0.self_attention.relative.values_1RE"] == 1).all()
    loaded(found.config, found.state)


def test_a_row_that_nothing_writes_is_appended() -> None:
    given = spec_tensors()
    given["decoder/projection/weight"] += 1
    found = layers(given)
    found.append_row()
    assert found.config.vocab_size == SIZE + 1
    assert not found.state["embedding.weight"][SIZE].any()
    assert not found.state["output_matrix"][SIZE].any()
    assert found.state["output_bias"][SIZE] < -1000
    assert torch.equal(found.state["output_bias"][:SIZE], given["decoder/projection/bias"])
    loaded(found.config, found.state)


def test_each_row_is_a_piece_s() -> None:
    pieces = ["p"] * SIZE
    layers(spec_tensors()).check_rows(PATH, Written(pieces, pieces))
    with pytest.raises(
        ExportError, match="vocabulary of the target has 5 pieces and its embedding 6"
    ):
        layers(spec_tensors()).check_rows(PATH, Written(pieces, pieces[1:]))
    own = layers(spec_tensors(source_size=4))
    with pytest.raises(
        ExportError, match="vocabulary of the source has 6 pieces and its embedding 4"
    ):
        own.check_rows(PATH, Written(pieces, pieces))


@pytest.mark.parametrize(
    ("edit", "options", "words"),
    [
        (lambda t: t.pop("encoder/embeddings_0/weight"), {}, "'encoder/embeddings_0/weight' is mi"),
        (lambda t: t.pop("decoder/layer_0/ffn/layer_norm/beta"), {}, "ffn/layer_norm/beta' is mis"),
        (lambda t: t.update({"decoder/gate": torch.ones(3)}), {}, r"'decoder/gate' \[3\] is not k"),
        (lambda t: None, {"activation": 7.0}, "activation 7 is not supported; supported: 0"),
        (lambda t: None, {"rotary_dim": 64.0}, "rotary_dim 64 is not supported; it must be left"),
    ],
)  # fmt: skip
def test_what_is_missing_or_not_known_is_named(
    edit: Callable[[dict[str, Tensor]], object], options: dict[str, float], words: str
) -> None:
    given = spec_tensors()
    edit(given)
    with pytest.raises(ExportError, match=words):
        layers(given, **options)


def test_both_sides_are_alike_and_what_has_no_meaning_may_be_on() -> None:
    layers(spec_tensors(), alignment_layer=5.0, multi_query_attention=0.0)
    file = SpecFile("", spec_tensors(), OPTIONS | {"decoder/num_heads": 4.0})
    with pytest.raises(
        ExportError, match=r"num_heads must be equal on both sides, got \[2\.0, 4\.0"
    ):
        SpecLayers(PATH, file, None)
