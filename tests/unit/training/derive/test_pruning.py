"""Models that have lost layers for good."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.unit.training.models.sample_networks import (
    DEEP,
    expected_logits,
    inputs_of,
    random_network,
)
from tests.unit.training.tiny import TINY, randomised
from training.derive.pruning import cut
from training.models import ModelConfig, build_network


@pytest.mark.parametrize("config", DEEP, ids=lambda config: config.family)
def test_a_cut_model_has_the_layers_that_stay_and_all_else_as_it_was(config: ModelConfig) -> None:
    whole = random_network(config)
    left, weights = cut(config, dict(whole.state_dict()), "decoder", [1, 2])
    small = build_network(left)
    small.load_state_dict(weights)
    stack = whole.stacks["decoder"]
    for name, value in small.state_dict().items():
        old = name
        for new, number in ((0, 1), (1, 2)):
            if name.startswith(f"{stack}.{new}."):
                old = name.replace(f"{stack}.{new}.", f"{stack}.{number}.", 1)
        assert torch.equal(value, whole.state_dict()[old]), name


def test_a_cut_encoder_computes_what_the_reference_does_with_its_layers() -> None:
    model = randomised(replace(TINY, num_encoder_layers=4))
    left, weights = cut(model.config, dict(model.state_dict()), "encoder", [0, 3])
    small = build_network(left).eval()
    small.load_state_dict(weights)
    inputs, expected = inputs_of(TINY), expected_logits(small)
    np.testing.assert_allclose(small(*inputs)[0].detach(), expected, rtol=1e-4, atol=1e-3)
    assert not np.allclose(model(*inputs)[0].detach(), expected, atol=0.01)


def test_convolutions_that_stay_keep_their_widths() -> None:
    model = random_network(replace(TINY, num_encoder_layers=4, encoder_mixing="light_conv"))
    left, weights = cut(model.config, dict(model.state_dict()), "encoder", [1, 3])
    assert left == replace(model.config, num_encoder_layers=2, encoder_kernel_sizes=(7, 31))
    build_network(left).load_state_dict(weights)
