"""Learning-rate schedules and the optimiser."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn

from tests.unit.training.tiny import TINY
from training.loop.optim import build_optimizer, head_dropout_rate, learning_rate, set_rates
from training.models import build_model
from training.recipe.config import OptimConfig


def rates(schedule: str, max_steps: int = 100) -> list[float]:
    config = OptimConfig(peak_lr=2.0, warmup_steps=10, schedule=schedule, final_lr=0.5)
    return [learning_rate(step, config, max_steps) for step in range(1, max_steps + 1)]


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "linear", "cosine"])
def test_every_schedule_rises_linearly_to_its_peak_and_then_falls(schedule: str) -> None:
    values = rates(schedule)
    assert values[:10] == pytest.approx([0.2 * step for step in range(1, 11)])
    assert max(values) == values[9] == 2.0
    assert all(a > b for a, b in pairwise(values[9:]))


def test_inverse_sqrt_is_the_papers_formula_at_its_own_peak() -> None:
    # Vaswani et al. 2017, equation 3, d = 512 and 4000 warm-up steps
    config = OptimConfig(peak_lr=512**-0.5 * 4000**-0.5, warmup_steps=4000)
    for step in (1, 100, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert learning_rate(step, config, 7) == pytest.approx(expected)


def test_linear_and_cosine_end_at_final_lr_and_stay_there() -> None:
    assert rates("linear")[-1] == pytest.approx(0.5)
    assert rates("cosine")[-1] == pytest.approx(0.5)
    assert rates("linear")[54] == pytest.approx(1.25)  # half-way
    assert rates("cosine")[54] == pytest.approx(1.25)
    quarter = 0.5 + 1.5 * 0.5 * (1 + math.cos(math.pi * 30 / 90))
    assert rates("cosine")[39] == pytest.approx(quarter)
    config = OptimConfig(peak_lr=2.0, warmup_steps=10, schedule="cosine", final_lr=0.5)
    assert learning_rate(500, config, 100) == pytest.approx(0.5)


def test_warm_up_longer_than_the_run_is_no_division_by_zero() -> None:
    config = OptimConfig(peak_lr=2.0, warmup_steps=100, schedule="linear")
    assert learning_rate(100, config, 100) == 2.0


def test_weight_decay_is_decoupled_from_the_gradient() -> None:
    layer = nn.Linear(2, 2)
    before = layer.weight.detach().clone()
    optimizer = build_optimizer(layer, OptimConfig(peak_lr=0.1, weight_decay=0.5))
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), before * (1 - 0.1 * 0.5))


def test_adam_takes_the_configured_moments() -> None:
    layer = nn.Linear(1, 1, bias=False)
    config = OptimConfig(peak_lr=0.1, betas=(0.5, 0.75), eps=0.25)
    optimizer = build_optimizer(layer, config)
    weight, mean, variance = layer.weight.item(), 0.0, 0.0
    for step, gradient in enumerate((1.0, -3.0, 0.5), 1):
        layer.weight.grad = torch.tensor([[gradient]])
        optimizer.step()
        mean, variance = 0.5 * mean + 0.5 * gradient, 0.75 * variance + 0.25 * gradient**2
        corrected = mean / (1 - 0.5**step), variance / (1 - 0.75**step)
        weight -= 0.1 * corrected[0] / (math.sqrt(corrected[1]) + 0.25)
        assert layer.weight.item() == pytest.approx(weight, rel=1e-5)


def test_a_constant_rate_stays_at_its_peak() -> None:
    config = OptimConfig(peak_lr=0.5, schedule="constant", warmup_steps=1)
    assert [learning_rate(step, config, 100) for step in (1, 2, 99, 500)] == [0.5] * 4
    assert rates("constant")[:10] == pytest.approx([0.2 * step for step in range(1, 11)])


def test_sgd_adds_weight_decay_to_the_gradient() -> None:
    layer = nn.Linear(1, 1, bias=False)
    config = OptimConfig(optimizer="sgd", peak_lr=0.5, weight_decay=0.25)
    optimizer = build_optimizer(layer, config)
    weight = layer.weight.item()
    for gradient in (1.0, -3.0):
        layer.weight.grad = torch.tensor([[gradient]])
        optimizer.step()
        weight -= 0.5 * (gradient + 0.25 * weight)
        assert layer.weight.item() == pytest.approx(weight, rel=1e-5)


def test_the_reference_settings_of_light_transformers_take_the_same_step() -> None:
    """lr 10, clip 0.25, decay 1.2e-6 on a loss divided by 20 are lr 0.5, clip 5, decay 2.4e-5."""
    weights = []
    for scale, rate, clip, decay in ((1 / 20, 10.0, 0.25, 1.2e-6), (1.0, 0.5, 5.0, 2.4e-5)):
        torch.manual_seed(0)
        layer = nn.Linear(8, 8)
        optim = OptimConfig(optimizer="sgd", peak_lr=rate, weight_decay=decay, clip_norm=clip)
        optimizer = build_optimizer(layer, optim)
        for size in (1.0, 100.0):  # the second is clipped
            optimizer.zero_grad()
            (scale * size * layer(torch.ones(8)).square().mean()).backward()
            nn.utils.clip_grad_norm_(layer.parameters(), optim.clip_norm)
            optimizer.step()
        weights.append(layer.weight.detach())
    torch.testing.assert_close(*weights)


def test_the_rate_of_heads_falls_with_the_warm_up_and_rises_to_the_end() -> None:
    optim = OptimConfig(warmup_steps=100)
    v = replace(TINY, head_dropout=0.2, head_dropout_schedule="v")
    rates = [head_dropout_rate(step, v, optim, 1100) for step in (50, 100, 600, 1100, 1200)]
    assert rates == pytest.approx([0.1, 0.0, 0.1, 0.2, 0.2])
    constant = replace(TINY, head_dropout=0.2)
    assert head_dropout_rate(7, constant, optim, 1100) == 0.2


def test_weights_of_branches_have_a_warm_up_of_their_own_and_are_frozen_at_last() -> None:
    model = build_model(replace(TINY, block="weighted"))
    optim = OptimConfig(warmup_steps=100, branch_warmup_steps=10, branch_frozen_steps=20)
    optimizer = build_optimizer(model, optim)
    rates = {}
    for step in (5, 10, 100, 980, 981):
        rate = set_rates(optimizer, step, optim, 1000)
        ordinary, branches = optimizer.param_groups
        assert ordinary["lr"] == rate
        assert len(branches["params"]) == 2 * 4
        rates[step] = branches["lr"] / optim.peak_lr, rate / optim.peak_lr
    assert rates[5] == (0.5, 0.05)
    assert rates[10] == (1.0, 0.1)
    assert rates[980][0] > 0.0
    assert rates[981][0] == 0.0
    assert rates[981][1] > 0.0
    ((alone,)) = build_optimizer(build_model(TINY), optim).param_groups
    assert len(alone["params"]) == len(list(build_model(TINY).parameters()))
