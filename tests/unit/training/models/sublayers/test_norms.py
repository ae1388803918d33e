"""Norms against a reference with loops, their gradients, and where they stand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tests.unit.training.models import reference_blocks as reference
from tests.unit.training.models.sample_networks import FAMILIES, name_of
from tests.unit.training.tiny import TINY
from training.models import ModelConfig, build_network
from training.models.sublayers.norms import ScaleNorm, make_norm, make_output_norm, new_norm


@pytest.mark.parametrize("kind", ["layer", "rms", "scale"])
def test_a_norm_equals_the_loop_written_reference(kind: str) -> None:
    torch.manual_seed(0)
    config = replace(TINY, norm_type=kind, norm_eps=0.1)
    norm = new_norm(config)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.add_(torch.randn_like(parameter))
    x = torch.randn(5, 16)
    expected = reference.normalise(x.double().numpy(), reference.weights_of(norm), config)
    np.testing.assert_allclose(norm(x).detach(), expected, rtol=0, atol=1e-5)


def test_a_norm_stands_in_the_places_of_the_configuration_alone() -> None:
    x = torch.randn(2, 16)
    assert make_norm(TINY, "post")(x) is x
    for places in (("pre",), ("pre", "post")):
        assert isinstance(make_norm(TINY, *places), nn.LayerNorm)


def test_the_factor_of_the_output_stands_behind_the_norm_or_alone() -> None:
    x = torch.randn(2, 16)
    for places in (("pre",), ("post",)):
        scaled = make_output_norm(replace(TINY, fix_norm=True, fix_norm_scale=True), *places)
        with torch.no_grad():
            scaled.get_parameter("1.weight").fill_(3.0)
        torch.testing.assert_close(scaled(x), 3.0 * make_output_norm(TINY, *places)(x))


def test_the_gradient_of_scale_norm_is_that_of_its_formula_above_and_below_its_bound() -> None:
    torch.manual_seed(0)
    norm = ScaleNorm(6, eps=1.0).double()
    x = torch.randn(4, 6, dtype=torch.float64)
    x[2:] *= 0.1  # shorter than the bound
    assert torch.autograd.gradcheck(norm, x.requires_grad_())
    assert torch.autograd.gradcheck(
        lambda gain: torch.func.functional_call(norm, {"weight": gain}, (x.detach(),)),
        torch.tensor([1.7], dtype=torch.float64, requires_grad=True),
    )


def test_scale_norm_begins_with_the_length_that_layer_norm_gives() -> None:
    norm = ScaleNorm(64, eps=1e-5)
    torch.testing.assert_close(norm(torch.randn(3, 64) * 7).norm(dim=-1), torch.full((3,), 8.0))
    zero = torch.zeros(1, 64, requires_grad=True)
    norm(zero).sum().backward()
    assert zero.grad is not None
    assert zero.grad.isfinite().all()
    assert not norm(zero).any()


@pytest.mark.parametrize("kind", ["rms", "scale"])
@pytest.mark.parametrize("config", FAMILIES, ids=name_of)
def test_every_norm_of_a_model_is_of_the_type(config: ModelConfig, kind: str) -> None:
    plain, model = build_network(config), build_network(replace(config, norm_type=kind))
    wanted = {"rms": nn.RMSNorm, "scale": ScaleNorm}[kind]
    norms = [name for name, part in plain.named_modules() if isinstance(part, nn.LayerNorm)]
    assert norms == [name for name, part in model.named_modules() if isinstance(part, wanted)]
    assert norms
