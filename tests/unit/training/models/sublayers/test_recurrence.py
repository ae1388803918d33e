"""The recurrent cell against a reference with loops, by its gradient, and token by token."""

from __future__ import annotations

import numpy as np
import torch

from tests.unit.training.models import reference_blocks as reference
from tests.unit.training.tiny import TINY
from training.models.context import CacheContext
from training.models.sublayers.recurrence import Ssru


def random_cell() -> Ssru:
    torch.manual_seed(0)
    cell = Ssru(TINY)
    with torch.no_grad():
        cell.forget_bias.normal_()
    return cell.eval()


def test_the_cell_equals_the_loop_written_reference() -> None:
    cell, x_BTD = random_cell(), torch.randn(2, 7, 16)
    found = cell.decode(x_BTD, CacheContext()).detach().numpy()
    for row, x_TD in enumerate(x_BTD.double().numpy()):
        expected = reference.ssru(x_TD, reference.weights_of(cell))
        np.testing.assert_allclose(found[row], expected, rtol=0, atol=1e-5)


def test_each_token_reads_the_state_of_its_parent_from_the_cache() -> None:
    """Slots are filled from the last to the first, so that order tells nothing."""
    cell, x_BTD = random_cell(), torch.randn(2, 5, 16)
    whole_BTD, cache_BCD = cell.decode(x_BTD, CacheContext()), torch.randn(2, 5, 16)
    for t in range(5):
        parent = 5 - t if t else -1
        context = CacheContext(
            write_index=torch.full((2,), 4 - t),
            ancestors=torch.full((2, 1, 1), parent),
            states=[cache_BCD],
        )
        found_BD = cell.decode(x_BTD[:, t : t + 1], context)[:, 0]
        torch.testing.assert_close(found_BD, whole_BTD[:, t])
        (cache_BCD,) = context.appended_states


def test_the_gradient_of_the_recurrent_cell_is_that_of_its_formula() -> None:
    torch.manual_seed(0)
    cell = Ssru(TINY).double()
    inputs = [torch.randn(1, 1, n * 16, dtype=torch.float64, requires_grad=True) for n in (2, 1)]
    assert torch.autograd.gradcheck(cell.cell, inputs)
