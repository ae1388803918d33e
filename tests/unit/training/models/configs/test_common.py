"""Options that models of every kind have: against loops, in training, and what cannot work."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.training.models.sample_networks import (
    FAMILIES,
    expected_logits,
    inputs_of,
    losses_of_updates,
    name_of,
    random_network,
)
from tests.unit.training.tiny import TINY, TINY_JOINT
from tests.unit.training.tiny_language import TINY_LM
from training.errors import ConfigError
from training.models import ModelConfig

OPTIONS: list[dict[str, Any]] = [
    {"norm_type": "rms", "norm_eps": 0.01},
    {"norm_type": "scale"},
    {"norm_eps": 0.1},
    {"norm_type": "scale", "fix_norm": True, "fix_norm_scale": True},
    {"fix_norm": True},
    {"embedding_scale": "sum"},
    {"embedding_scale": "none"},
    {"ffn_hidden_layers": 2, "activation": "swiglu"},
    *({"activation": name} for name in ("gelu", "gelu_tanh", "silu", "reglu", "geglu", "swiglu")),
]


@pytest.mark.parametrize("config", FAMILIES, ids=name_of)
@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_logits_equal_the_loop_written_reference(
    config: ModelConfig, options: dict[str, Any]
) -> None:
    model = random_network(replace(config, **options))
    found = model(*inputs_of(config))[0].detach().numpy()
    np.testing.assert_allclose(found, expected_logits(model), rtol=1e-4, atol=1e-3)
    assert np.abs(found - expected_logits(random_network(config))).max() > 0.01


@pytest.mark.parametrize("config", FAMILIES, ids=name_of)
@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_a_few_updates_teach_a_sentence(config: ModelConfig, options: dict[str, Any]) -> None:
    losses = losses_of_updates(replace(config, **options))
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    "change",
    [
        {"model_dim": 30},
        {"model_dim": 2, "num_heads": 1},
        {"num_heads": 0},
        {"num_decoder_layers": 0},
        {"vocab_size": 0},
        {"norm": "middle"},
        {"dropout": 1.0},
        {"attention_dropout": -0.1},
    ],
)
def test_a_size_out_of_range_is_an_error(change: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        replace(TINY, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        (TINY, {"fix_norm_scale": True}, "fix_norm_scale .*fix_norm"),
        (TINY, {"norm_type": "batch"}, "norm_type .*'layer', 'rms', 'scale'.*got 'batch'"),
        (TINY_LM, {"activation": "glu"}, "activation .*'geglu', 'swiglu'.*got 'glu'"),
        (TINY_LM, {"norm_eps": 0.0}, "norm_eps must be > 0, got 0.0"),
        (TINY_LM, {"norm_eps": math.nan}, "norm_eps must be > 0, got nan"),
        (TINY, {"embedding_scale": "both"}, "embedding_scale .*got 'both'"),
        (TINY_JOINT, {"attention_init": "tiny"}, "attention_init .*'xavier', 'small'.*got 'tiny'"),
        (
            TINY,
            {"learns_layerdrop": True},
            "learns_layerdrop.*encoder_layerdrop.*decoder_layerdrop",
        ),
        (TINY, {"encoder_layerdrop": 1.0}, r"encoder_layerdrop must be in \[0, 1\)"),
        (TINY, {"head_dropout": -0.1}, r"head_dropout must be in \[0, 1\)"),
        (TINY, {"head_dropout_schedule": "w"}, "head_dropout_schedule .*'constant', 'v'.*got 'w'"),
        (TINY, {"max_relative_distance": 0}, "max_relative_distance must be >= 1, got 0"),
        (TINY, {"ffn_hidden_layers": 3}, r"ffn_hidden_layers .*\(1, 2\), got 3"),
    ],
)
def test_what_cannot_work_is_one_error_that_names_it(
    config: ModelConfig, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(config, **change)
