"""The kinds of models: each is built from a configuration of its own."""

from __future__ import annotations

import pytest
import torch

from tests.unit.training.tiny_language import TINY_LM
from training.errors import ConfigError
from training.models import ClassifierConfig, build_model, build_network, build_trainable
from training.models.configs.architectures import ARCHITECTURES


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_model_of_each_kind_is_built_from_its_configuration(name: str) -> None:
    config = ARCHITECTURES[name]()
    assert config.architecture == name
    with torch.device("meta"):
        model = build_trainable(config)
    assert model.config == config


def test_a_language_model_is_no_translation_model() -> None:
    with pytest.raises(ConfigError, match=r"a translation model is needed.*got 'lm'"):
        build_model(TINY_LM)


def test_a_classifier_gives_no_ids() -> None:
    with pytest.raises(ConfigError, match=r"a model that gives ids is needed.*got.*'classifier'"):
        build_network(ClassifierConfig(model_dim=16, num_heads=2, ffn_dim=24, vocab_size=37))
