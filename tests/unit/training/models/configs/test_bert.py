"""What of an encoder's options cannot work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.training.tiny_encoder import TINY_BERT
from training.errors import ConfigError
from training.models import BertConfig, ClassifierConfig, EmbedderConfig


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_decoder_layers": 1}, "num_decoder_layers of an encoder must be 0, got 1"),
        ({"positions": "gluon"}, "positions .*'bert'.*'relative', 'rotary'.*got 'gluon'"),
        ({"max_positions": 1}, "max_positions must be >= 2, got 1"),
        ({"norm_type": "scale", "norm_affine": False}, "norm_affine: false needs norm_type"),
        ({"first_activation": "tanh"}, "first_activation of architecture 'bert' must be one of"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(TINY_BERT, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (ClassifierConfig, {"num_classes": 0}, "num_classes must be >= 1, got 0"),
        (EmbedderConfig, {"pooling": "max"}, "pooling of architecture 'embedder' .*got 'max'"),
        (
            BertConfig,
            {"architecture": "embedder"},
            "of a BertConfig must be 'bert', got 'embedder'",
        ),
    ],
)
def test_what_is_fitted_from_an_encoder_has_options_of_its_own(
    kind: type[BertConfig], changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        kind(**changes)  # type: ignore[arg-type]
