"""Positions in self-attention against references with loops, and their gradients."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.unit.training.models import reference_blocks as reference
from tests.unit.training.tiny import TINY
from tests.unit.training.tiny_language import TINY_LM
from training.models.context import CacheContext
from training.models.sublayers.attention import SelfAttention
from training.models.sublayers.positions import (
    RelativeBias,
    RelativePositions,
    RotaryPositions,
    rotary_slowing,
)


def test_rotary_positions_equal_the_loop_written_reference() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 7, 3 * 16)
    found = RotaryPositions(2)(x, torch.arange(7)[None])[0].numpy()
    query, key, value = np.split(x[0].double().numpy(), 3, axis=1)
    expected = [reference.turn(query, 2), reference.turn(key, 2), value]
    np.testing.assert_allclose(found, np.concatenate(expected, axis=1), rtol=0, atol=1e-5)


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    torch.manual_seed(0)
    rotary, x = RotaryPositions(2), torch.randn(1, 1, 24).expand(1, 9, 24)
    query, key, value = rotary(x, torch.arange(9)[None]).chunk(3, -1)
    scores = query[0] @ key[0].T
    for distance in range(-8, 9):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert torch.equal(value, x.chunk(3, -1)[2])


def test_rotary_positions_slow_down_as_the_configuration_says() -> None:
    config = replace(TINY_LM, positions="rotary", model_dim=64, rotary_factor=8.0)
    assert rotary_slowing(config) is None
    linear = rotary_slowing(replace(config, rotary_scaling="linear"))
    assert linear is not None
    assert linear.tolist() == [8.0] * 16
    llama = replace(
        config,
        rotary_scaling="llama3",
        rotary_low_factor=1.0,
        rotary_high_factor=4.0,
        rotary_trained_length=64,
    )
    found = rotary_slowing(llama)
    assert found is not None
    expected = []
    for feature in range(16):
        turns = 64 * llama.rotary_base ** (-feature / 16) / (2 * math.pi)
        if turns > 4.0:
            expected.append(1.0)
        elif turns < 1.0:
            expected.append(8.0)
        else:
            kept = (turns - 1.0) / 3.0
            expected.append(1.0 / (kept + (1.0 - kept) / 8.0))
    assert found.tolist() == pytest.approx(expected)
    assert len(set(expected)) > 3  # what turns as before, what turns slowly, and some between


@pytest.mark.parametrize("causal", [False, True])
def test_relative_positions_equal_the_loop_written_reference(causal: bool) -> None:
    torch.manual_seed(0)
    relative, place = RelativePositions(8, 2), torch.arange(6)
    query, key, value = torch.randn(3, 1, 6, 16).unbind(0)
    distance = place[None, None, :] - place[None, :, None]
    mask = torch.zeros(1, 1, 6, 6).masked_fill(distance[:, None] > 0, -torch.inf)
    found = relative(
        query, key, value, distance, num_heads=2, mask=mask if causal else None, dropout=0.0
    )
    tables = tuple(x.detach()[0].double().numpy() for x in relative.parameters())
    sides = (x[0].double().numpy() for x in (query, key, value))
    expected = reference.attend(*sides, 2, causal=causal, tables=(tables[0], tables[1]))
    np.testing.assert_allclose(found[0].detach(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("sees_ahead", [False, True])
def test_biases_are_those_of_the_loop_written_buckets(sees_ahead: bool) -> None:
    config = replace(TINY, positions="relative_bias", num_buckets=12, max_distance=40)
    bias = RelativeBias(2, 12, 40, sees_ahead=sees_ahead)
    with torch.no_grad():
        bias.weight_1RH.normal_()
    farthest = 100 if sees_ahead else 0
    distances = torch.arange(-100, farthest + 1)
    found_HC = bias(distances[None, None])[0, :, 0].detach()
    for place, distance in enumerate(distances.tolist()):
        bucket = reference.bucket(distance, config, causal=not sees_ahead)
        assert torch.equal(found_HC[:, place], bias.weight_1RH[0, bucket]), distance


def test_the_gradients_of_position_schemes_are_those_of_their_formulas() -> None:
    torch.manual_seed(0)
    relative = RelativePositions(4, 2)
    attention = SelfAttention(8, 2, 0.0, positions=relative).double()
    x = torch.randn(1, 4, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: attention.decode(x, CacheContext()), x)
    for name in ("relative.keys_1RE", "relative.values_1RE"):
        assert torch.autograd.gradcheck(
            lambda value, name=name: torch.func.functional_call(
                attention, {name: value}, (x.detach(),)
            ),
            attention.get_parameter(name).detach().clone().requires_grad_(),
        )
    projected = torch.randn(1, 4, 24, dtype=torch.float64, requires_grad=True)
    positions = torch.tensor([[0, 1, 2, 7]])
    assert torch.autograd.gradcheck(lambda x: RotaryPositions(2)(x, positions), projected)
