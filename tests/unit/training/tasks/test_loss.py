"""The chunked loss against torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from serving.search.ids import PAD_ID
from training.models.base import Network
from training.tasks.loss import label_smoothed_loss


class Output(Network):
    """Nothing but an output matrix, and a bias."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.output_bias = None if bias is None else nn.Parameter(bias)

    @property
    def output_weight(self) -> Tensor:
        return self.weight

    cache_axes: Any = ()
    layer_needs: Any = ()

    def states(self, *inputs: Tensor) -> Tensor:
        return inputs[0]


def output(vocab_size: int, dim: int = 6, *, bias: bool = False) -> Output:
    return Output(torch.randn(vocab_size, dim), torch.randn(vocab_size) if bias else None)


def reference_loss(
    model: Output, states: Tensor, labels: Tensor, smoothing: float, ignored_id: int = PAD_ID
) -> Tensor:
    return nn.functional.cross_entropy(
        model.output_logits(states).flatten(0, 1).float(),
        labels.flatten(),
        ignore_index=ignored_id,
        label_smoothing=smoothing,
        reduction="sum",
    )


def gradients(loss: Tensor, model: Output, states: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss / 7, [states, *model.parameters()]))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 20),
    st.integers(2, 50),
    st.floats(0, 0.9),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_value_and_gradients_equal_cross_entropy(
    rows: int, length: int, vocab_size: int, smoothing: float, bias: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    model = output(vocab_size, bias=bias)
    states = torch.randn(rows, length, 6, requires_grad=True)
    labels = torch.randint(0, vocab_size, (rows, length))  # with padding
    loss = label_smoothed_loss(model, states, labels, smoothing)
    expected = reference_loss(model, states, labels, smoothing)
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-3)
    found = gradients(loss, model, states)
    wanted = gradients(expected, model, states)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bias", [False, True])
def test_many_rows_take_several_chunks(bias: bool) -> None:
    """167 rows of this vocabulary are computed together. With a larger one, sums over it in fp32
    lose more than the bound, on some processors."""
    torch.manual_seed(0)
    size = 50_000
    model, labels = output(size, bias=bias), torch.randint(1, size, (3, 150))
    states = torch.randn(3, 150, 6, requires_grad=True)
    loss = label_smoothed_loss(model, states, labels, 0.1)
    expected = reference_loss(model, states, labels, 0.1)
    torch.testing.assert_close(loss, expected)
    found, wanted = (gradients(some, model, states) for some in (loss, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_padding_counts_for_nothing() -> None:
    model, states = output(9), torch.randn(1, 3, 6, requires_grad=True)
    label_smoothed_loss(model, states, torch.tensor([[4, PAD_ID, PAD_ID]]), 0.1).backward()
    assert states.grad is not None
    assert states.grad[0, 0].any()
    assert not states.grad[0, 1:].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_huge_logits_stay_finite(dtype: torch.dtype) -> None:
    model = Output(torch.tensor([[1e4], [-1e4], [0.0], [9e3]], dtype=dtype))
    states = torch.ones(1, 1, 1, dtype=dtype)
    loss = label_smoothed_loss(model, states, torch.tensor([[3]]), 0.0)
    assert loss.item() == pytest.approx(1000, rel=0.05)
    loss.backward()
    assert model.weight.grad is not None
    assert model.weight.grad.isfinite().all()


def test_autocast_gives_gradients_of_the_parameters_types_and_a_float32_loss() -> None:
    torch.manual_seed(0)
    model, states = output(30, bias=True), torch.randn(2, 5, 6, requires_grad=True)
    labels = torch.randint(1, 30, (2, 5))
    with torch.autocast("cpu", torch.bfloat16):
        loss = label_smoothed_loss(model, states, labels, 0.1)
    assert loss.dtype == torch.float32
    expected = reference_loss(model, states, labels, 0.1)
    torch.testing.assert_close(loss, expected, rtol=0.01, atol=0)
    found, wanted = (gradients(some, model, states) for some in (loss, expected))
    torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.02)  # and of equal types


def test_where_nothing_is_learnt_there_is_no_gradient_and_the_same_loss() -> None:
    torch.manual_seed(0)
    model, states, labels = output(9), torch.randn(2, 5, 6), torch.randint(1, 9, (2, 5))
    with torch.no_grad():
        loss = label_smoothed_loss(model, states, labels, 0.1)
    assert not loss.requires_grad
    assert float(loss) == float(label_smoothed_loss(model, states, labels, 0.1).detach())


@pytest.mark.parametrize("ignored_id", [None, -1])
def test_another_id_than_padding_is_ignored(ignored_id: int | None) -> None:
    torch.manual_seed(0)
    labels = torch.randint(0, 9, (4, 5))
    labels[0, :2] = 0
    if ignored_id is not None:
        labels[1, 1:] = ignored_id
    model, states = output(9), torch.randn(4, 5, 6, requires_grad=True)
    loss = label_smoothed_loss(model, states, labels, 0.0, ignored_id=ignored_id)
    expected = reference_loss(model, states, labels, 0.0, ignored_id=-1)
    torch.testing.assert_close(loss, expected)
    found, wanted = (gradients(some, model, states) for some in (loss, expected))
    torch.testing.assert_close(found, wanted)
