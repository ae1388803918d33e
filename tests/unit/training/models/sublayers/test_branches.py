"""Branches against a reference with loops, as they stand, and by their gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from tests.unit.training.models import reference_blocks as reference
from tests.unit.training.tiny import TINY
from training.models.sublayers.branches import Branches


def test_branches_equal_the_loop_written_reference_before_and_after_they_settle() -> None:
    torch.manual_seed(0)
    branches, x_TD = Branches(TINY).eval(), torch.randn(5, 16)
    with torch.no_grad():
        for parameter in branches.parameters():
            parameter.add_(torch.randn_like(parameter))
    weights = {f"out_proj.{name}": x for name, x in reference.weights_of(branches).items()}
    expected = reference.project_out(x_TD.double().numpy(), weights, TINY)
    np.testing.assert_allclose(branches(x_TD[None])[0].detach(), expected, rtol=1e-5, atol=1e-4)
    branches.settle()
    with torch.no_grad():
        branches.kappa_logits.zero_()
        branches.alpha_logits.zero_()
    np.testing.assert_allclose(branches(x_TD[None])[0].detach(), expected, rtol=1e-5, atol=1e-4)


def test_the_gradient_of_branches_is_that_of_their_formula() -> None:
    torch.manual_seed(0)
    branches = Branches(replace(TINY, model_dim=4, ffn_dim=6, dropout=0.0)).double()
    with torch.no_grad():
        branches.kappa_logits.copy_(torch.tensor([0.3, -0.5]))
        branches.alpha_logits.copy_(torch.tensor([-0.2, 0.9]))
    x = torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(branches, x)
    names = ["kappa_logits", "alpha_logits"]
    assert torch.autograd.gradcheck(
        lambda *values: torch.func.functional_call(
            branches, dict(zip(names, values, strict=True)), (x.detach(),)
        ),
        tuple(getattr(branches, name).detach().clone().requires_grad_() for name in names),
    )
