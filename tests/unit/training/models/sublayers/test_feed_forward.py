"""The feed-forward: its gradients, and what gates cost."""

from __future__ import annotations

import pytest
import torch

from training.models.dropout import Dropout
from training.models.sublayers.feed_forward import FeedForward


@pytest.mark.parametrize("activation", ["reglu", "geglu", "swiglu"])
def test_two_thirds_of_the_width_keep_the_parameters_of_a_gated_feed_forward(
    activation: str,
) -> None:
    plain = FeedForward(32, 96, Dropout(0.0))
    gated = FeedForward(32, 64, Dropout(0.0), activation)
    counts = [
        sum(p.numel() for name, p in ffn.named_parameters() if name.endswith("weight"))
        for ffn in (plain, gated)
    ]
    assert counts[0] == counts[1]
    # Both halves begin as matrices of their own: Xavier's bound is sqrt(6 / (32 + 64)).
    for half in gated.up_proj.weight.detach().chunk(2):
        assert float(half.abs().max()) == pytest.approx(0.25, rel=0.02)


@pytest.mark.parametrize(
    "activation", ["gelu", "gelu_tanh", "silu", "reglu", "geglu", "geglu_tanh", "swiglu"]
)
def test_the_gradient_of_a_feed_forward_is_that_of_its_formula(activation: str) -> None:
    torch.manual_seed(0)
    ffn = FeedForward(4, 5, Dropout(0.0), activation).double()
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ffn, x)
