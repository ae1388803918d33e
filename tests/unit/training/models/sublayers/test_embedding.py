"""Embeddings: positions by their formulas, scales, and vectors of unit length."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.unit.training.models import reference_blocks as reference
from tests.unit.training.models.sample_networks import (
    FAMILIES,
    SOURCE,
    TARGET,
    inputs_of,
    name_of,
    random_network,
)
from tests.unit.training.tiny import TINY, randomised
from tests.unit.training.tiny_language import tiny_lm
from training.models import ModelConfig, build_network
from training.models.sublayers.embedding import TokenEmbedding, gluon_sinusoid, settled, sinusoid


@pytest.mark.parametrize("dim", [4, 6, 64])
def test_sinusoids_follow_the_contract(dim: int) -> None:
    positions = [0, 1, 7, 300]
    expected = [reference.sinusoid(position, dim) for position in positions]
    np.testing.assert_allclose(sinusoid(torch.tensor(positions), dim), expected, atol=5e-5)


def test_gluon_positions_follow_the_authors_formula() -> None:
    dim = 10
    for position in (0, 1, 7, 300):
        expected = [
            (math.sin if j % 2 == 0 else math.cos)(position / 10000 ** (2 * j / dim))
            for j in range(dim)
        ]
        found = gluon_sinusoid(torch.tensor(position), dim)
        np.testing.assert_allclose(found, expected, atol=2e-5)
    one, other = tiny_lm(), tiny_lm(positions="gluon")
    ids = torch.tensor([[3, 4, 5]])
    assert not torch.equal(one(ids), other(ids))


def test_the_embedding_is_scaled_and_its_position_is_not() -> None:
    embedding = TokenEmbedding(replace(TINY, vocab_size=20))
    found = embedding(torch.tensor([[7]]), torch.tensor([[3]]))[0, 0].detach()
    expected = embedding.weight[7].detach() * math.sqrt(16) + sinusoid(torch.tensor(3), 16)
    torch.testing.assert_close(found, expected)
    assert not embedding.weight[0].any()  # padding
    assert embedding.weight.std().item() == pytest.approx(16**-0.5, rel=0.2)


# FixNorm


@pytest.mark.parametrize("config", FAMILIES, ids=name_of)
def test_with_fix_norm_only_the_directions_of_vectors_count(config: ModelConfig) -> None:
    model = random_network(replace(config, fix_norm=True))
    before = model(*inputs_of(config))
    before.square().sum().backward()
    weight = model.embedding.weight
    along = (weight.grad * weight).sum(-1) / weight.grad.norm(dim=-1) / weight.norm(dim=-1)
    assert along.abs().max() < 1e-4
    with torch.no_grad():
        weight.mul_(torch.rand(len(weight), 1) + 0.5)
    torch.testing.assert_close(model(*inputs_of(config)), before, rtol=1e-4, atol=1e-4)


def test_with_fix_norm_padding_changes_nothing() -> None:
    model = randomised(replace(TINY, fix_norm=True))
    alone = model(torch.tensor([SOURCE]), torch.tensor([TARGET]))
    padded = model(torch.tensor([[*SOURCE, 0, 0, 0]]), torch.tensor([[*TARGET, 0, 0]]))
    torch.testing.assert_close(padded[:, : len(TARGET)], alone, rtol=0, atol=1e-5)


def test_vectors_of_fix_norm_begin_small_and_all_with_a_direction() -> None:
    weight = build_network(replace(TINY, fix_norm=True, vocab_size=500)).embedding.weight.detach()
    assert 0.0099 < float(weight.abs().max()) <= 0.01
    assert (weight.norm(dim=-1) > 0).all()  # of padding, too


def test_a_settled_model_computes_the_same_from_vectors_as_they_stand() -> None:
    plain = randomised(TINY)
    assert settled(plain) is plain
    model = randomised(replace(TINY, fix_norm=True, fix_norm_scale=True))
    kept = model.embedding.weight.clone()
    stands = settled(model)
    assert torch.equal(stands(*inputs_of(TINY)), model(*inputs_of(TINY)))
    assert torch.equal(stands.embedding.weight, model.output_weight)
    assert stands.output_weight is stands.embedding.weight
    assert torch.equal(model.embedding.weight, kept)
    torch.testing.assert_close(stands.embedding.weight.norm(dim=-1), torch.ones(37))
