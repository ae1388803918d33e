"""Dropout of elements and of heads: its rates, and that it keeps the mean."""

from __future__ import annotations

import pytest
import torch

from training.models.dropout import Dropout, HeadDropout


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
