"""Light attention: its offset sets are the reference's, and skipping equals masking."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.models import PRESETS, LanguageModelConfig
from training.models.operators import attention
from training.models.sublayers.light_attention import (
    layer_offsets,
    layer_reach,
    light_attention,
    offset_mask,
)

REFERENCE = {
    "dilated": [{0, 1, 2}, {0, 2, 4}, {0, 4, 8}],
    "dilated_memory": [{0, 1, 2}, {0, 1, 2, 4}, {0, 1, 2, 4, 8}],
    "cascade": [set(range(4)), set(range(8)), set(range(16))],
}
KINDS = ["full", *REFERENCE]


def paper(kind: str) -> LanguageModelConfig:
    config = PRESETS[f"lm_wikitext2_{kind}"]
    assert isinstance(config, LanguageModelConfig)
    return config


@pytest.mark.parametrize("kind", REFERENCE)
def test_offsets_are_those_of_the_authors_code(kind: str) -> None:
    assert [set(o or ()) for o in layer_offsets(paper(kind))] == REFERENCE[kind]


@pytest.mark.parametrize(
    ("kind", "pairs"),
    [("full", 7455), ("dilated", 609), ("dilated_memory", 815), ("cascade", 1806)],
)
def test_allowed_pairs_of_a_segment_of_70(kind: str, pairs: int) -> None:
    place = torch.arange(70)
    distance = (place[:, None] - place)[None, None]
    total = 0
    for offsets in layer_offsets(paper(kind)):
        allowed = distance >= 0
        if offsets is not None:
            mask = offset_mask(distance, offsets)
            assert set(mask.unique().tolist()) == {0.0, -torch.inf}
            allowed = mask == 0
        total += int(allowed.sum())
    assert total == pairs


@pytest.mark.parametrize(
    ("kind", "reach"),
    [
        ("full", [None, None, None]),
        ("dilated", [3, 5, 9]),
        ("dilated_memory", [3, 5, 9]),
        ("cascade", [4, 8, 16]),
    ],
)
def test_reach_is_what_the_widest_offset_needs(kind: str, reach: list[int | None]) -> None:
    assert layer_reach(paper(kind)) == reach


def test_other_kernels_bases_and_windows() -> None:
    dilated = replace(paper("dilated"), kernel_size=2, dilation_base=3)
    assert layer_offsets(dilated) == [(0, 1), (0, 3), (0, 9)]
    cascade = replace(paper("cascade"), first_window=2, window_multiplier=1)
    assert layer_offsets(cascade) == [(0, 1)] * 3


offset_sets = st.one_of(
    st.integers(1, 40).map(lambda window: tuple(range(window))),
    st.sets(st.integers(1, 40), max_size=6).map(lambda some: tuple(sorted({0, *some}))),
)


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(1, 70),
    offsets=offset_sets,
    rows=st.integers(1, 3),
    heads=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 99),
)
def test_skipping_equals_masking_forward_and_backward(
    length: int, offsets: tuple[int, ...], rows: int, heads: int, seed: int
) -> None:
    torch.manual_seed(seed)
    inputs = [torch.randn(rows, length, 8, requires_grad=True) for _ in range(3)]
    upstream = torch.randn(rows, length, 8)
    place = torch.arange(length)
    mask = offset_mask((place[:, None] - place)[None, None], offsets)
    dense = attention(*inputs, num_heads=heads, mask=mask)
    light = light_attention(*inputs, offsets, num_heads=heads)
    torch.testing.assert_close(light, dense, rtol=0, atol=1e-5)
    expected = torch.autograd.grad(dense, inputs, upstream)
    found = torch.autograd.grad(light, inputs, upstream)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-5)


@pytest.mark.parametrize("offsets", [(0, 4, 8), tuple(range(8))])
def test_dropout_drops_probabilities_and_keeps_their_mean(offsets: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    query = torch.zeros(400, 30, 4)  # all keys weigh the same
    value = torch.ones(400, 30, 4)
    out = light_attention(query, query, value, offsets, num_heads=1, dropout=0.5)
    count = len(offsets)
    levels = out[:, offsets[-1] :] * count / 2  # kept keys of `count`
    torch.testing.assert_close(levels, levels.round())
    assert len(levels.unique()) == count + 1
    assert out.mean().item() == pytest.approx(1.0, abs=0.05)
    assert torch.equal(out[..., 0], out[..., 3])  # whole probabilities, not single features


@pytest.mark.parametrize("kind", ["dilated", "cascade"])
def test_no_square_of_the_length_is_kept(kind: str) -> None:
    length = 2048
    offsets = layer_offsets(paper(kind))[2]
    assert offsets is not None
    inputs = [torch.randn(1, length, 8, requires_grad=True) for _ in range(3)]
    largest = 0

    def remember(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal largest
        largest = max(largest, tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        light_attention(*inputs, offsets, num_heads=2).sum().backward()
    assert largest <= length * 8 * 16
