"""The chunked loss against torch's own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from serving.search.ids import PAD_ID
from training.loss import label_smoothed_loss


def reference_loss(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    return nn.functional.cross_entropy(
        logits.flatten(0, 1),
        labels.flatten(),
        ignore_index=PAD_ID,
        label_smoothing=smoothing,
        reduction="sum",
    )


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 20),
    st.integers(2, 50),
    st.floats(0, 0.9),
    st.integers(0, 2**31),
)
def test_value_and_gradient_equal_cross_entropy(
    rows: int, length: int, vocab_size: int, smoothing: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 5 * torch.randn(rows, length, vocab_size, generator=generator)
    labels = torch.randint(0, vocab_size, (rows, length), generator=generator)  # with padding
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss = label_smoothed_loss(ours, labels, smoothing)
    expected = reference_loss(theirs, labels, smoothing)
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-3)
    (loss / 7).backward()
    (expected / 7).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)


def test_many_rows_take_several_chunks() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(3, 300, 11), torch.randint(0, 11, (3, 300))
    torch.testing.assert_close(
        label_smoothed_loss(logits, labels, 0.1), reference_loss(logits, labels, 0.1)
    )


def test_padding_counts_for_nothing() -> None:
    logits = torch.randn(1, 3, 9, requires_grad=True)
    label_smoothed_loss(logits, torch.tensor([[4, PAD_ID, PAD_ID]]), 0.1).backward()
    assert logits.grad is not None
    assert logits.grad[0, 0].any()
    assert not logits.grad[0, 1:].any()


def test_huge_logits_stay_finite() -> None:
    logits = torch.tensor([[[1e4, -1e4, 0.0, 9e3]]])
    assert label_smoothed_loss(logits, torch.tensor([[3]]), 0.0).item() == pytest.approx(1000)


def test_bfloat16_logits_get_a_bfloat16_gradient_of_a_float32_loss() -> None:
    logits = torch.randn(2, 5, 30).bfloat16().requires_grad_()
    labels = torch.randint(1, 30, (2, 5))
    loss = label_smoothed_loss(logits, labels, 0.1)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, reference_loss(logits.float(), labels, 0.1).detach())
    loss.backward()
    assert logits.grad is not None
    assert logits.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("ignored_id", [None, -1])
def test_another_id_than_padding_is_ignored(ignored_id: int | None) -> None:
    torch.manual_seed(0)
    labels = torch.randint(0, 9, (4, 5))
    labels[0, :2] = 0
    if ignored_id is not None:
        labels[1, 1:] = ignored_id
    ours = torch.randn(4, 5, 9).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    loss = label_smoothed_loss(ours, labels, 0.0, ignored_id=ignored_id)
    expected = nn.functional.cross_entropy(
        theirs.flatten(0, 1), labels.flatten(), ignore_index=-1, reduction="sum"
    )
    torch.testing.assert_close(loss, expected)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
