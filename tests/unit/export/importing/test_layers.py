"""Which of BART's tensors stands where in a Transformer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from export.errors import ExportError
from export.importing.folder import Weights
from export.importing.layers import drop_sinusoids, take_norm, transformer_state
from export.importing.model import loaded
from tests.unit.export.importing.small_bart import DIM, FFN, HEADS, bart_shapes, random_tensors
from training.models import TransformerConfig
from training.models.sublayers.embedding import marian_sinusoid

SIZE = 11
CONFIG = TransformerConfig(
    model_dim=DIM,
    num_heads=HEADS,
    ffn_dim=FFN,
    num_encoder_layers=1,
    num_decoder_layers=1,
    vocab_size=SIZE,
    norm="post",
)


def configured(**changed: object) -> TransformerConfig:
    return TransformerConfig(**{**CONFIG.__dict__, **changed})


def weights(tensors: dict[str, Tensor]) -> Weights:
    return Weights(Path("model.safetensors"), dict(tensors))


def test_each_tensor_has_its_place() -> None:
    given = random_tensors(bart_shapes(SIZE))
    found = weights(given)
    state = transformer_state(found, CONFIG)
    found.finish()
    loaded(CONFIG, state)
    wanted = {"embedding.weight": given["model.shared.weight"]}
    for side in ("encoder", "decoder"):
        there, here = f"model.{side}.layers.0", f"{side}.0"
        for kind in ("weight", "bias"):

            def theirs(*names: str, there: str = there, kind: str = kind) -> Tensor:
                return torch.cat([given[f"{there}.{name}.{kind}"] for name in names])

            mine = [f"self_attn.{part}_proj" for part in "qkv"]
            wanted |= {
                f"{here}.self_attention.in_proj.{kind}": theirs(*mine),
                f"{here}.self_attention.out_proj.{kind}": theirs("self_attn.out_proj"),
                f"{here}.self_attention_residual.norm.{kind}": theirs("self_attn_layer_norm"),
                f"{here}.ffn.up_proj.{kind}": theirs("fc1"),
                f"{here}.ffn.down_proj.{kind}": theirs("fc2"),
                f"{here}.ffn_residual.norm.{kind}": theirs("final_layer_norm"),
            }
            if side == "decoder":
                of = f"{here}.source_attention"
                others = [f"encoder_attn.{part}_proj" for part in "kv"]
                wanted |= {
                    f"{of}.query_proj.{kind}": theirs("encoder_attn.q_proj"),
                    f"{of}.key_value_proj.{kind}": theirs(*others),
                    f"{of}.out_proj.{kind}": theirs("encoder_attn.out_proj"),
                    f"{of}_residual.norm.{kind}": theirs("encoder_attn_layer_norm"),
                }
    assert state.keys() == wanted.keys()
    assert all(torch.equal(state[name], wanted[name]) for name in wanted)


def test_norms_before_layers_have_one_at_the_end() -> None:
    given = random_tensors(bart_shapes(SIZE, last_norms=True))
    state = transformer_state(weights(given), configured(norm="pre"))
    for side in ("encoder", "decoder"):
        assert torch.equal(state[f"{side}_norm.bias"], given[f"model.{side}.layer_norm.bias"])
    loaded(configured(norm="pre"), state)


def test_embeddings_of_their_own_are_taken_apart() -> None:
    given = random_tensors(bart_shapes(SIZE))
    del given["model.shared.weight"]
    given |= random_tensors(
        {
            "model.encoder.embed_tokens.weight": (7, DIM),
            "model.decoder.embed_tokens.weight": (SIZE, DIM),
            "lm_head.weight": (SIZE, DIM),
        },
        seed=1,
    )
    config = configured(source_vocab_size=7, tie_embeddings=False)
    found = weights(given)
    state = transformer_state(found, config)
    found.finish()
    for ours, theirs in (
        ("source_embedding.weight", "model.encoder.embed_tokens.weight"),
        ("embedding.weight", "model.decoder.embed_tokens.weight"),
        ("output_matrix", "lm_head.weight"),
    ):
        assert torch.equal(state[ours], given[theirs])
    loaded(config, state)


def test_embeddings_that_are_one_may_stand_under_each_name() -> None:
    given = random_tensors(bart_shapes(SIZE))
    shared = given.pop("model.shared.weight")
    given["lm_head.weight"] = given["model.decoder.embed_tokens.weight"] = shared
    assert torch.equal(transformer_state(weights(given), CONFIG)["embedding.weight"], shared)
    given["lm_head.weight"] = shared + 1
    with pytest.raises(ExportError, match=r"'lm_head\.weight' differs from"):
        transformer_state(weights(given), CONFIG)


def test_a_layer_that_is_missing_or_has_other_sizes_is_named() -> None:
    given = random_tensors(bart_shapes(SIZE))
    bias = given.pop("model.decoder.layers.0.fc2.bias")
    with pytest.raises(ExportError, match=r"'model\.decoder\.layers\.0\.fc2\.bias' is missing"):
        transformer_state(weights(given), CONFIG)
    given["model.decoder.layers.0.fc2.bias"] = bias[1:]
    with pytest.raises(ExportError, match=r"fc2\.bias' must be \[8\] by config\.json, got \[7\]"):
        transformer_state(weights(given), CONFIG)


def test_both_halves_of_a_macaron_have_their_names() -> None:
    given = random_tensors(bart_shapes(SIZE))
    for side in ("encoder", "decoder"):
        more: dict[str, tuple[int, ...]] = {}
        there = f"model.{side}.layers.0.macaron_"
        for name, shape in (("fc1", (FFN, DIM)), ("fc2", (DIM, FFN)), ("layer_norm", (DIM,))):
            more |= {f"{there}{name}.weight": shape, f"{there}{name}.bias": shape[:1]}
        given |= random_tensors(more, seed=2)
    config, found = configured(block="macaron"), weights(given)
    state = transformer_state(found, config)
    found.finish()
    loaded(config, state)
    first = "model.encoder.layers.0.macaron_fc1.weight"
    assert torch.equal(state["encoder.0.first_ffn.up_proj.weight"], given[first])
    norm = "model.encoder.layers.0.macaron_layer_norm.bias"
    assert torch.equal(state["encoder.0.first_ffn_residual.norm.bias"], given[norm])


@pytest.mark.parametrize("kind", ["light_conv", "dynamic_conv"])
def test_taps_of_convolutions_are_in_our_order(kind: str) -> None:
    width, given = 3, random_tensors(bart_shapes(SIZE))
    for side in ("encoder", "decoder"):
        layer = f"model.{side}.layers.0"
        for part in ("q", "k", "v", "out"):
            for name in ("weight", "bias"):
                del given[f"{layer}.self_attn.{part}_proj.{name}"]
        shapes: dict[str, tuple[int, ...]] = {
            f"{layer}.linear1.weight": (2 * DIM, DIM),
            f"{layer}.linear1.bias": (2 * DIM,),
            f"{layer}.linear2.weight": (DIM, DIM),
            f"{layer}.linear2.bias": (DIM,),
        }
        if kind == "light_conv":
            shapes[f"{layer}.conv.weight"] = (HEADS, width)
        else:
            shapes[f"{layer}.conv.weight_linear.weight"] = (HEADS * width, DIM)
        given |= random_tensors(shapes, seed=3)
    config = configured(
        encoder_mixing=kind,
        decoder_mixing=kind,
        encoder_kernel_sizes=(width,),
        decoder_kernel_sizes=(width,),
        conv_glu=True,
    )
    found = weights(given)
    state = transformer_state(found, config)
    found.finish()
    loaded(config, state)
    if kind == "light_conv":
        theirs = given["model.encoder.layers.0.conv.weight"]
        ours = state["encoder.0.self_attention.kernel"]
    else:
        theirs = given["model.encoder.layers.0.conv.weight_linear.weight"]
        ours = state["encoder.0.self_attention.kernel_proj.weight"]
    by_tap = (HEADS, width, -1)
    for tap in range(width):
        assert torch.equal(ours.reshape(by_tap)[:, tap], theirs.reshape(by_tap)[:, width - 1 - tap])


def test_stored_sinusoids_are_let_go_and_learnt_positions_refused() -> None:
    name, table = "embed_positions.weight", marian_sinusoid(torch.arange(5), DIM)
    found = weights({f"model.encoder.{name}": table, f"model.decoder.{name}": table})
    drop_sinusoids(found, name, marian_sinusoid, DIM)
    found.finish()
    padded = torch.cat([torch.zeros(2, DIM), table])
    found = weights({f"model.decoder.{name}": padded})
    drop_sinusoids(found, name, marian_sinusoid, DIM, before=2)
    found.finish()
    for wrong in (table + 0.1, table[:, :4], padded):
        with pytest.raises(ExportError, match="does not hold the sinusoids of this family"):
            drop_sinusoids(weights({f"model.encoder.{name}": wrong}), name, marian_sinusoid, DIM)


def test_a_norm_is_gain_and_bias() -> None:
    given = random_tensors({"there.weight": (DIM,), "there.bias": (DIM,)})
    state = take_norm(weights(given), "there", "here", DIM)
    assert {name: tensor.tolist() for name, tensor in state.items()} == {
        f"here.{kind}": given[f"there.{kind}"].tolist() for kind in ("weight", "bias")
    }
