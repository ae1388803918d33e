"""Options of joint models: what is refused, and what a row costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.training.tiny import TINY_JOINT
from training.errors import ConfigError
from training.models import JointConfig, TransformerConfig


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("norm", "post"),
        ("embedding_scale", "tokens"),
        ("joint_dropout", "1d"),
        ("positions", "learnt"),
        ("architecture", "transformer"),
        ("architecture", "jont"),
        ("num_encoder_layers", -1),
        ("num_decoder_layers", 0),
        ("model_dim", 30),
        ("dropout", 1.0),
    ],
)
def test_a_wrong_option_is_named_with_its_value(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{name} .*got {value!r}"):
        replace(TINY_JOINT, **{name: value})  # type: ignore[arg-type]


def test_what_cannot_work_is_one_error_that_names_it() -> None:
    with pytest.raises(ConfigError, match=r"fix_norm .*tie_embeddings"):
        replace(TINY_JOINT, tie_embeddings=False, fix_norm=True)


def test_only_a_joint_model_goes_without_encoder() -> None:
    with pytest.raises(ConfigError, match="num_encoder_layers must be >= 1, got 0"):
        TransformerConfig(num_encoder_layers=0)


def test_a_row_costs_its_pairs_of_positions() -> None:
    assert JointConfig().batch_cost(7, 5) == 35
    assert TransformerConfig().batch_cost(7, 5) == 7
    assert (JointConfig().family, TransformerConfig().family) == ("joint", "transformer")
