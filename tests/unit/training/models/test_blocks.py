"""Layers: their sublayers against a reference with loops and in their order, and blocks by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.unit.training.models import reference_blocks as reference
from tests.unit.training.models.own_layers import ConvolutionLayer
from tests.unit.training.models.sample_networks import BLOCKS_AND_NORMS, SOURCE, TARGET
from tests.unit.training.tiny import TINY, tiny_model
from training.errors import ConfigError
from training.models import BertConfig, check_model, find_block
from training.models.blocks import BLOCKS, DecoderLayer, EncoderLayer


@pytest.mark.parametrize(("block", "norm"), BLOCKS_AND_NORMS)
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


def test_the_decoder_layer_attends_to_itself_before_the_source() -> None:
    layer = DecoderLayer(TINY)
    order: list[str] = []
    for name in ("self_attention_residual", "source_attention_residual", "ffn_residual"):
        getattr(layer, name).register_forward_hook(lambda *_, name=name: order.append(name))
    model = tiny_model()
    model.decoder[0] = layer
    model(torch.tensor([SOURCE]), torch.tensor([TARGET]))
    assert order == ["self_attention_residual", "source_attention_residual", "ffn_residual"]


def test_a_block_of_ones_own_is_found_by_its_path() -> None:
    block = find_block("tests.unit.training.models.own_layers:CONVOLUTION")
    assert block.encoder_layer is EncoderLayer
    assert block.decoder_layer is ConvolutionLayer


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


def test_a_block_that_is_not_there_is_reported_before_the_work() -> None:
    with pytest.raises(ConfigError, match="block must be one of"):
        check_model(BertConfig(block="nosuch"))
