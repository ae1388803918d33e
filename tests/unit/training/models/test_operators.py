"""The operators, as PyTorch computes them, against loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.unit.training.models import reference_blocks as reference
from training.models.dropout import WeightDropout
from training.models.operators import (
    attention,
    convolve_ancestors,
    gather_rows,
    listed_logits,
    split_heads,
    tensor_scatter,
)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("by_head", [False, True])
def test_attention_equals_the_loop_written_reference(causal: bool, by_head: bool) -> None:
    torch.manual_seed(0)
    sides = torch.randn(3, 1, 5, 8).unbind(0)
    given = [split_heads(side, 2) if by_head else side for side in sides]
    found = attention(*given, num_heads=2, mask=None, causal=causal)[0].numpy()
    expected = reference.attend(*(side[0].double().numpy() for side in sides), 2, causal=causal)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_a_head_of_keys_serves_as_many_successive_heads_of_queries() -> None:
    torch.manual_seed(0)
    query, (key, value) = torch.randn(2, 5, 16), torch.randn(2, 2, 6, 8).unbind(0)
    heads = [0, 0, 1, 1]
    repeated = (side.unflatten(-1, (2, 4))[:, :, heads].flatten(2) for side in (key, value))
    torch.testing.assert_close(
        attention(query, key, value, num_heads=4, mask=None),
        attention(query, *repeated, num_heads=4, mask=None),
    )


def test_a_mask_hides_keys_from_all_heads() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 4, 8).unbind(0)
    mask = torch.zeros(1, 1, 4, 4)
    mask[..., 2] = -torch.inf
    kept = torch.tensor([0, 1, 3])
    torch.testing.assert_close(
        attention(query, key, value, num_heads=2, mask=mask),
        attention(query, key[:, kept], value[:, kept], num_heads=2, mask=None),
    )


def test_successive_rows_drop_the_same_attention_probabilities() -> None:
    # Queries and keys are zero and the values one-hot: the output is each head's probabilities.
    rows, heads, queries, keys, sharing = 6, 2, 4, 8, 3
    torch.manual_seed(0)
    value = torch.eye(keys).repeat(rows, 1, heads)
    key = torch.zeros(rows, keys, heads * keys)
    out = attention(
        key[:, :queries],
        key,
        value,
        num_heads=heads,
        mask=None,
        dropout=WeightDropout(0.5, sharing),
    )
    assert set(out.flatten().tolist()) == {0.0, 2 / keys}  # 1/keys each, kept ones doubled
    grouped = out.reshape(rows // sharing, sharing, queries, heads, keys)
    assert torch.equal(grouped, grouped[:, :1].expand_as(grouped))
    for axis in (0, 2, 3, 4):
        assert not torch.equal(grouped, grouped.narrow(axis, 0, 1).expand_as(grouped))


@pytest.mark.parametrize("shape", [(3, 8, 4), (3, 2, 8, 4)])
def test_new_rows_go_into_the_slots_from_each_sentences_own_on(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    cache, new = torch.randn(shape), torch.randn(*shape[:-2], 2, 4)
    expected = cache.clone()
    for row, first in enumerate((0, 6, 3)):
        expected[row, ..., first : first + 2, :] = new[row]
    assert torch.equal(tensor_scatter(cache, new, torch.tensor([0, 6, 3])), expected)


@pytest.mark.parametrize("kernels", [(2, 3), (1, 1)])
def test_a_convolution_of_ancestors_is_a_sum_over_its_taps(kernels: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x, cache, kernel = torch.randn(2, 3, 4), torch.randn(2, 8, 4), torch.randn(*kernels, 2, 3)
    ancestors = torch.tensor(
        [[[1, 0, 5], [7, -1, -1], [-1, -1, -1]], [[2, 3, 0], [0, 1, 2], [5, -1, -1]]]
    )
    first = torch.tensor([2, 4])
    found, appended = convolve_ancestors(x, cache, first, ancestors, kernel)
    assert torch.equal(appended, tensor_scatter(cache, x, first))
    expected = torch.zeros(2, 3, 4)
    for row, query, feature in np.ndindex(2, 3, 4):
        taps = kernel[row % kernels[0], query % kernels[1], feature // 2]
        total = taps[0] * x[row, query, feature]
        for tap, slot in zip(taps[1:], ancestors[row, query].tolist(), strict=False):
            if slot >= 0:
                total = total + tap * appended[row, slot, feature]
        expected[row, query, feature] = total
    torch.testing.assert_close(found, expected)


def test_rows_and_columns_of_each_sentences_own_are_looked_up() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 3, 4), torch.randn(9, 4)
    rows = torch.tensor([[2, 2], [0, 1]])
    assert torch.equal(gather_rows(x, rows), torch.stack([x[0, rows[0]], x[1, rows[1]]]))
    columns = torch.tensor([[8, 1, 0], [3, 3, 5]])
    found, logits = listed_logits(x, weight, columns), x @ weight.T
    for row in range(2):
        torch.testing.assert_close(found[row], logits[row][:, columns[row]])
    bias = torch.randn(len(weight))
    biased = listed_logits(x, weight, columns, bias)
    torch.testing.assert_close(biased, found + bias[columns][:, None])
