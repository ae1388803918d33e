"""The models against a reference with loops, and what their shape of computation promises."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.unit.training.models import reference_blocks as reference
from tests.unit.training.tiny import TINY, tiny_model
from training.batches.batching import collate
from training.errors import ConfigError
from training.models import PRESETS, ModelConfig, build_model, find_block
from training.models.attention import SelfAttention
from training.models.blocks import (
    BLOCKS,
    DecoderLayer,
    EncoderLayer,
)
from training.models.dropout import Dropout
from training.models.embedding import TokenEmbedding, sinusoid
from training.models.operators import attention
from training.tasks.loss import label_smoothed_loss

FAMILIES = [(block, norm) for block in ("standard", "macaron") for norm in ("pre", "post")]
SOURCE, TARGET = [5, 9, 30, 7, 11, 3], [2, 8, 6, 33, 20]
PAIRS = [([5, 9, 30, 7, 11], [8, 6]), ([4, 6], [33, 20, 21, 22, 23, 9, 4]), ([8], [12])]


@pytest.mark.parametrize(("block", "norm"), FAMILIES)
def test_logits_equal_the_loop_written_reference(block: str, norm: str) -> None:
    model = tiny_model(block, norm)
    found = model(torch.tensor([SOURCE]), torch.tensor([TARGET]))[0].detach().numpy()
    np.testing.assert_allclose(found, reference.logits(SOURCE, TARGET, model), rtol=0, atol=2e-4)


@pytest.mark.parametrize(("block", "norm"), FAMILIES)
def test_each_layer_equals_the_loop_written_reference(block: str, norm: str) -> None:
    model = tiny_model(block, norm, seed=3)
    x = torch.randn(5, 16)
    found = model.encoder[0](x[None], None)[0].detach().numpy()
    layer = reference.ReferenceLayer(reference.weights_of(model.encoder[0]), model.config)
    np.testing.assert_allclose(found, layer(x.double().numpy(), None), atol=1e-5)


def test_macaron_halves_both_feed_forwards() -> None:
    layer = BLOCKS["macaron"].encoder_layer(TINY).eval()
    assert isinstance(layer, EncoderLayer)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith(("self_attention.", "first_ffn.", "ffn.")):
                parameter.zero_()
        layer.first_ffn.down_proj.bias.fill_(1.0)
        layer.ffn.down_proj.bias.fill_(10.0)
        x = torch.randn(1, 3, 16)
        torch.testing.assert_close(layer(x, None), x + 0.5 * 1.0 + 0.5 * 10.0)


def test_a_mask_hides_keys_from_all_heads() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 4, 8).unbind(0)
    mask = torch.zeros(1, 1, 4, 4)
    mask[..., 2] = -torch.inf
    kept = torch.tensor([0, 1, 3])
    torch.testing.assert_close(
        attention(query, key, value, num_heads=2, mask=mask),
        attention(query, key[:, kept], value[:, kept], num_heads=2, mask=None),
    )


def test_attention_dropout_acts_in_training_only() -> None:
    layer, x = SelfAttention(16, 2, dropout=0.5), torch.randn(1, 4, 16)
    assert not torch.equal(layer.train()(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))


@pytest.mark.parametrize("dim", [4, 6, 64])
def test_sinusoids_follow_the_contract(dim: int) -> None:
    positions = [0, 1, 7, 300]
    expected = [reference.sinusoid(position, dim) for position in positions]
    np.testing.assert_allclose(sinusoid(torch.tensor(positions), dim), expected, atol=5e-5)


def test_the_embedding_is_scaled_and_its_position_is_not() -> None:
    embedding = TokenEmbedding(replace(TINY, vocab_size=20))
    found = embedding(torch.tensor([[7]]), torch.tensor([[3]]))[0, 0].detach()
    expected = embedding.weight[7].detach() * math.sqrt(16) + sinusoid(torch.tensor(3), 16)
    torch.testing.assert_close(found, expected)
    assert not embedding.weight[0].any()  # padding
    assert embedding.weight.std().item() == pytest.approx(16**-0.5, rel=0.2)


def test_positions_start_at_zero_whatever_the_padding() -> None:
    model = tiny_model()
    alone = model(torch.tensor([SOURCE]), torch.tensor([TARGET]))
    padded = model(torch.tensor([[*SOURCE, 0, 0, 0]]), torch.tensor([[*TARGET, 0, 0]]))
    torch.testing.assert_close(padded[:, : len(TARGET)], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("block", "norm"), FAMILIES)
def test_padding_changes_neither_logits_nor_gradients(block: str, norm: str) -> None:
    def gradients(batches: list[list[tuple[list[int], list[int]]]]) -> dict[str, torch.Tensor]:
        model = tiny_model(block, norm)
        for pairs in batches:
            batch = collate(pairs)
            states = model.states(batch.source_BS, batch.target_BT)
            label_smoothed_loss(model, states, batch.labels_BT, 0.1).backward()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    together, alone = gradients([PAIRS]), gradients([[pair] for pair in PAIRS])
    assert together.keys() == dict(tiny_model(block, norm).named_parameters()).keys()
    for name, gradient in together.items():
        torch.testing.assert_close(gradient, alone[name], rtol=1e-3, atol=1e-3, msg=name)


def test_a_target_position_sees_no_later_one() -> None:
    model = tiny_model()
    source = torch.tensor([SOURCE])
    changed = [*TARGET[:3], 1, 1]
    before = model(source, torch.tensor([TARGET]))[:, :3]
    torch.testing.assert_close(model(source, torch.tensor([changed]))[:, :3], before)


def _parameters(config: ModelConfig) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in build_model(config).parameters())


@pytest.mark.parametrize("size", ["tiny", "small", "iwslt_small", "base", "big"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_macaron_has_its_baselines_parameters_plus_a_norm_and_a_bias_a_layer(
    size: str, norm: str
) -> None:
    baseline = replace(PRESETS[f"transformer_{size}"], norm=norm)
    macaron = replace(PRESETS[f"macaron_{size}"], norm=norm)
    layers = baseline.num_encoder_layers + baseline.num_decoder_layers
    extra = layers * 3 * baseline.model_dim  # gain and bias of the norm, bias of the output
    assert _parameters(macaron) == _parameters(baseline) + extra


def test_presets_have_the_published_sizes() -> None:
    # reference: 6 layers, 512 / 1024 wide, embeddings shared; Vaswani et al. 2017, table 3
    assert _parameters(PRESETS["transformer_base"]) == pytest.approx(61e6, rel=0.02)
    assert _parameters(PRESETS["transformer_big"]) == pytest.approx(210e6, rel=0.02)
    assert _parameters(PRESETS["macaron_small"]) == 7_583_232
    assert PRESETS["macaron_iwslt_small"].ffn_dim == 512
    assert PRESETS["transformer_iwslt_small"].dropout == 0.3
    presets = {name: config for name, config in PRESETS.items() if config.family != "bert"}
    assert {config.norm for config in presets.values()} == {"pre"}


@pytest.mark.parametrize(("block", "norm"), FAMILIES)
def test_there_is_a_final_norm_for_pre_norm_only(block: str, norm: str) -> None:
    names = {name.split(".")[0] for name, _ in tiny_model(block, norm).named_parameters()}
    assert ("encoder_norm" in names, "decoder_norm" in names) == ((norm == "pre",) * 2)


@pytest.mark.parametrize(
    ("probability", "rate"), [(0.0, 0.0), (0.5, 0.5), (0.001, 1 / 256), (0.9999, 255 / 256)]
)
def test_dropout_drops_at_its_rate_and_keeps_the_mean(probability: float, rate: float) -> None:
    torch.manual_seed(0)
    layer = Dropout(probability).train()
    out = layer(torch.ones(300_001))
    assert (out == 0).float().mean().item() == pytest.approx(rate, abs=0.01)
    assert out.mean().item() == pytest.approx(1.0, abs=0.1)
    assert torch.equal(layer.eval()(out), out)


def test_a_block_of_ones_own_is_found_by_its_path() -> None:
    block = find_block("tests.unit.training.models.test_models:OWN_BLOCK")
    assert block.encoder_layer is EncoderLayer
    assert block.decoder_layer is OwnDecoderLayer


class OwnDecoderLayer(DecoderLayer):
    pass


OWN_BLOCK = (EncoderLayer, OwnDecoderLayer)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("macron", "one of"),
        ("no_such_module:BLOCK", "cannot be imported"),
        ("training.models.blocks:NO_BLOCK", "cannot be imported"),
        ("training.models.blocks:BLOCKS", "pair"),
        ("training.models.blocks:Residual", "pair"),
    ],
)
def test_a_block_that_is_none_is_an_error(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_block(name)


@pytest.mark.parametrize(
    "change",
    [
        {"model_dim": 30},
        {"model_dim": 2, "num_heads": 1},
        {"num_heads": 0},
        {"num_decoder_layers": 0},
        {"vocab_size": 0},
        {"norm": "middle"},
        {"dropout": 1.0},
        {"attention_dropout": -0.1},
    ],
)
def test_a_size_out_of_range_is_an_error(change: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        replace(TINY, **change)  # type: ignore[arg-type]


def test_the_decoder_layer_attends_to_itself_before_the_source() -> None:
    layer = DecoderLayer(TINY)
    order: list[str] = []
    for name in ("self_attention_residual", "source_attention_residual", "ffn_residual"):
        getattr(layer, name).register_forward_hook(lambda *_, name=name: order.append(name))
    model = tiny_model()
    model.decoder[0] = layer
    model(torch.tensor([SOURCE]), torch.tensor([TARGET]))
    assert order == ["self_attention_residual", "source_attention_residual", "ffn_residual"]
