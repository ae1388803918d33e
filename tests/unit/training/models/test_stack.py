"""Layers that training leaves out, and steps that end early."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.unit.training.models.sample_networks import DEEP, inputs_of, random_network
from training.derive.pruning import cut
from training.models import ModelConfig, build_network
from training.models.stack import Halted, Halting, Stack


def test_layers_run_as_often_as_their_rate_says_and_all_of_them_in_evaluation() -> None:
    torch.manual_seed(0)
    stack = Stack([torch.nn.Identity() for _ in range(4)], 4, 0.3)
    counts = np.zeros(4)
    for _ in range(2000):
        counts[stack.running()] += 1
    assert np.abs(counts / 2000 - 0.7).max() < 0.04
    assert stack.eval().running() == [0, 1, 2, 3]


@pytest.mark.parametrize("config", DEEP, ids=lambda config: config.family)
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


@pytest.mark.parametrize("config", DEEP, ids=lambda config: config.family)
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


def test_the_gradient_of_halting_is_that_of_its_formula() -> None:
    torch.manual_seed(1)
    halting = Halting(4, 0.99).double()
    with torch.no_grad():
        halting.weight.mul_(4.0)
        halting.bias.fill_(-1.0)
    x = torch.randn(1, 5, 4, dtype=torch.float64, requires_grad=True)

    def run(x_BTD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        halted, state = Halted(halting, x_BTD, 4), x_BTD
        for step in range(4):
            state = halted.step(step, state, state, state * 1.5 + 0.2)
        return halted.mean_BTD, halted.ponder_BT1

    steps = run(x)[1].floor()
    assert len(steps.unique()) > 1  # positions halt at different steps
    assert torch.autograd.gradcheck(run, x)
