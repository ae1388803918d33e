"""Layers and heads that training leaves out, and models that have lost layers for good."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.training.models import reference_blocks
from tests.unit.training.models.test_language_model import TINY_LM
from tests.unit.training.tiny import TINY, TINY_JOINT, randomised
from training.derive.pruning import cut
from training.errors import CheckpointError, ConfigError
from training.loop.optim import head_dropout_rate
from training.models import LanguageModelConfig, ModelConfig, Network, build_network
from training.models.dropout import HeadDropout
from training.models.stack import Stack
from training.recipe.config import OptimConfig, recipe_from_dict
from training.runs.checkpoint import load_weights, save_weights

SOURCE, TARGET = torch.tensor([[5, 9, 30, 7, 11, 3]]), torch.tensor([[2, 8, 6, 33, 20]])
FAMILIES: list[ModelConfig] = [
    replace(TINY, num_encoder_layers=4, num_decoder_layers=3),
    replace(TINY_JOINT, num_encoder_layers=4, num_decoder_layers=3),
    replace(TINY_LM, num_decoder_layers=4, norm="post"),
]


def inputs_of(config: ModelConfig) -> list[torch.Tensor]:
    return [TARGET] if isinstance(config, LanguageModelConfig) else [SOURCE, TARGET]


def random_network(config: ModelConfig, seed: int = 0) -> Network:
    torch.manual_seed(seed)
    model = build_network(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model.eval()


# LayerDrop


def test_layers_run_as_often_as_their_rate_says_and_all_of_them_in_evaluation() -> None:
    torch.manual_seed(0)
    stack = Stack([torch.nn.Identity() for _ in range(4)], 4, 0.3)
    counts = np.zeros(4)
    for _ in range(2000):
        counts[stack.running()] += 1
    assert np.abs(counts / 2000 - 0.7).max() < 0.04
    assert stack.eval().running() == [0, 1, 2, 3]


@pytest.mark.parametrize("config", FAMILIES, ids=lambda config: config.family)
def test_an_update_is_that_of_the_model_without_the_layers_that_it_leaves_out(
    config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = random_network(replace(config, decoder_layerdrop=0.5)).train()
    monkeypatch.setattr(
        Stack, "running", lambda self: [0, 2] if self.rate else list(range(self.depth))
    )
    left, weights = cut(whole.config, dict(whole.state_dict()), "decoder", [0, 2])
    assert left == replace(config, num_decoder_layers=2)
    small = build_network(left).eval()
    small.load_state_dict(weights)
    found = whole(*inputs_of(config))
    torch.testing.assert_close(found, small(*inputs_of(config)))
    found.sum().backward()
    stack = whole.get_submodule(whole.stacks["decoder"])
    assert [all(p.grad is None for p in layer.parameters()) for layer in stack][:3] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("config", FAMILIES, ids=lambda config: config.family)
def test_a_model_of_which_every_layer_is_left_out_still_trains(
    config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = {"encoder_layerdrop": 0.5} if config.num_encoder_layers else {}
    model = random_network(replace(config, decoder_layerdrop=0.5, **sides)).train()
    monkeypatch.setattr(Stack, "running", lambda self: [])
    logits = model(*inputs_of(config))
    assert logits.shape == (1, 5, config.vocab_size)
    logits.sum().backward()


def test_learnt_rates_have_the_given_mean_and_move_to_the_layers_that_help() -> None:
    torch.manual_seed(0)

    class Add(torch.nn.Module):
        def __init__(self, amount: float) -> None:
            super().__init__()
            self.amount = amount

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.amount

    # The loss is the distance from 1: what the second layer adds helps, the others' does not.
    stack = Stack([Add(0.0), Add(1.0), Add(-0.5)], 3, 0.5, learns_rates=True)
    assert stack.keep_rates().tolist() == pytest.approx([0.5] * 3)
    optimizer = torch.optim.Adam(stack.parameters(), lr=0.05)
    for _ in range(100):
        out = stack.run(torch.zeros(1, 1, 1), [()] * 3, lambda layer, x: layer(x))
        loss = (out - 1.0).square().sum()
        if loss.requires_grad:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    rates = stack.keep_rates().detach()
    assert rates.argmax() == 1
    assert rates.argmin() == 2
    assert float(rates.mean()) <= 0.5 + 1e-6
    assert stack.eval().running() == [0, 1, 2]


# Pruning


@pytest.mark.parametrize("config", FAMILIES, ids=lambda config: config.family)
def test_a_cut_model_has_the_layers_that_stay_and_all_else_as_it_was(config: ModelConfig) -> None:
    whole = random_network(config)
    left, weights = cut(config, dict(whole.state_dict()), "decoder", [1, 2])
    small = build_network(left)
    small.load_state_dict(weights)
    stack = whole.stacks["decoder"]
    for name, value in small.state_dict().items():
        old = name
        for new, number in ((0, 1), (1, 2)):
            if name.startswith(f"{stack}.{new}."):
                old = name.replace(f"{stack}.{new}.", f"{stack}.{number}.", 1)
        assert torch.equal(value, whole.state_dict()[old]), name


def test_a_cut_encoder_computes_what_the_reference_does_with_its_layers() -> None:
    model = randomised(replace(TINY, num_encoder_layers=4))
    left, weights = cut(model.config, dict(model.state_dict()), "encoder", [0, 3])
    small = build_network(left).eval()
    small.load_state_dict(weights)
    expected = reference_blocks.logits(SOURCE[0].tolist(), TARGET[0].tolist(), small)
    np.testing.assert_allclose(small(SOURCE, TARGET)[0].detach(), expected, rtol=1e-4, atol=1e-3)
    assert not np.allclose(model(SOURCE, TARGET)[0].detach(), expected, atol=0.01)


def test_convolutions_that_stay_keep_their_widths() -> None:
    model = random_network(replace(TINY, num_encoder_layers=4, encoder_mixing="light_conv"))
    left, weights = cut(model.config, dict(model.state_dict()), "encoder", [1, 3])
    assert left == replace(model.config, num_encoder_layers=2, encoder_kernel_sizes=(7, 31))
    build_network(left).load_state_dict(weights)


def test_weights_of_other_layers_are_told_by_their_numbers(tmp_path: Path) -> None:
    model = randomised(replace(TINY, num_encoder_layers=4))
    weights = {n: v for n, v in model.state_dict().items() if not n.startswith("encoder.1.")}
    save_weights(tmp_path / "some", weights, {})
    with pytest.raises(CheckpointError, match=r"encoder has the layers 0, 2, 3, the model's are 0"):
        load_weights(tmp_path / "some", build_network(model.config))
    with pytest.raises(CheckpointError, match=r"decoder has the layers 0, 1, the .* encoder has"):
        load_weights(
            tmp_path / "some",
            build_network(replace(model.config, num_encoder_layers=2, num_decoder_layers=1)),
        )


# DropHead


def test_heads_fall_by_rows_and_the_others_make_up_for_them() -> None:
    torch.manual_seed(0)
    drop = HeadDropout(4).train()
    x = torch.randn(3000, 2, 8)
    assert torch.equal(drop(x), x)
    drop.rate = 0.3
    out = drop(x)
    for row in range(200):
        stays = [bool(out[row, :, 2 * h : 2 * h + 2].any()) for h in range(4)]
        for head in range(4):
            columns = slice(2 * head, 2 * head + 2)
            factor = 4 / sum(stays) if stays[head] else 0.0
            torch.testing.assert_close(out[row, :, columns], x[row, :, columns] * factor)
    kept = out.unflatten(-1, (4, 2)).abs().sum((1, 3)) > 0
    # One of four stays where all would have fallen.
    assert float(kept.float().mean()) == pytest.approx(0.7 + 0.3**4 / 4, abs=0.02)
    assert torch.equal(drop.eval()(x), x)


def test_a_row_whose_heads_all_fall_keeps_one() -> None:
    torch.manual_seed(0)
    drop = HeadDropout(2).train()
    drop.rate = 0.99
    x = torch.ones(500, 1, 4, requires_grad=True)
    out = drop(x)
    assert out.isfinite().all()
    assert ((out != 0).sum((1, 2)) >= 2).all()
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_the_rate_of_heads_falls_with_the_warm_up_and_rises_to_the_end() -> None:
    optim = OptimConfig(warmup_steps=100)
    v = replace(TINY, head_dropout=0.2, head_dropout_schedule="v")
    rates = [head_dropout_rate(step, v, optim, 1100) for step in (50, 100, 600, 1100, 1200)]
    assert rates == pytest.approx([0.1, 0.0, 0.1, 0.2, 0.2])
    constant = replace(TINY, head_dropout=0.2)
    assert head_dropout_rate(7, constant, optim, 1100) == 0.2


@pytest.mark.parametrize("config", FAMILIES, ids=lambda config: config.family)
def test_training_drops_heads_of_every_attention(config: ModelConfig) -> None:
    model = random_network(config).train()
    inputs = inputs_of(config)
    kept = model(*inputs)
    assert torch.equal(model(*inputs), kept)
    model.drop_heads(0.5)
    torch.manual_seed(1)
    assert not torch.equal(model(*inputs), kept)
    assert torch.equal(model.eval()(*inputs), kept)


# Recipes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loop": {"compile": True}, "model": {"head_dropout": 0.1}}, "loop.compile.*head_dropout"),
        ({"loop": {"compile": True}, "model": {"encoder_layerdrop": 0.1}}, "encoder_layerdrop"),
        (
            {"optim": {"alignment_weight": 0.1}, "model": {"decoder_layerdrop": 0.1}},
            "optim.alignment_weight .*model.decoder_layerdrop",
        ),
        (
            {"model": {"architecture": "joint", "num_encoder_layers": 0, "encoder_layerdrop": 0.1}},
            "encoder_layerdrop.*num_encoder_layers",
        ),
    ],
)
def test_options_that_exclude_each_other_are_one_error(
    change: dict[str, Any], message: str
) -> None:
    data = {"source_language": "a", "target_language": "b", "train": [{"file": "x.tsv"}]}
    with pytest.raises(ConfigError, match=message):
        recipe_from_dict({"name": "x", "data": data, **change})
