"""Models. Only `build_trainable` chooses an architecture."""

from __future__ import annotations

import importlib

from training.errors import ConfigError
from training.models.base import DecodingNetwork, Network, Trainable, TranslationModel
from training.models.blocks import BLOCKS, Block
from training.models.configs.bert import BertConfig, ClassifierConfig, EmbedderConfig
from training.models.configs.common import ModelConfig
from training.models.configs.joint import JointConfig
from training.models.configs.language_model import LanguageModelConfig
from training.models.configs.presets import PRESETS
from training.models.configs.transformer import TransformerConfig
from training.models.networks.bert import (
    Bert,
    BidirectionalEncoder,
    Pooling,
    SentenceEmbedder,
    TextClassifier,
    TextModel,
    kaiming_init,
    normal_init,
)
from training.models.networks.joint import JointModel
from training.models.networks.language_model import CausalLanguageModel
from training.models.networks.transformer import Transformer
from training.models.sublayers.attention import small_init

__all__ = [
    "PRESETS",
    "Bert",
    "BertConfig",
    "BidirectionalEncoder",
    "CausalLanguageModel",
    "ClassifierConfig",
    "DecodingNetwork",
    "EmbedderConfig",
    "JointConfig",
    "JointModel",
    "LanguageModelConfig",
    "ModelConfig",
    "Network",
    "SentenceEmbedder",
    "TextClassifier",
    "TextModel",
    "Trainable",
    "Transformer",
    "TransformerConfig",
    "TranslationModel",
    "build_model",
    "build_network",
    "build_trainable",
    "check_model",
    "find_block",
]


_INITS = {"small": small_init, "normal": normal_init, "kaiming": kaiming_init}
"""Initialisers of attention by `attention_init`; `xavier` is the modules' own."""


def build_model(config: ModelConfig) -> TranslationModel:
    """A freshly initialised translation model.

    Raises ConfigError for another kind of model, or if a block cannot be found.
    """
    model = build_network(config)
    if not isinstance(model, TranslationModel):
        raise ConfigError(
            "a translation model is needed here: architecture must be 'transformer' or 'joint', "
            f"got {config.architecture!r}"
        )
    return model


def build_network(config: ModelConfig) -> Network:
    """A freshly initialised model with ids as output.

    Raises ConfigError for another kind of model, or if a block cannot be found.
    """
    model = build_trainable(config)
    if not isinstance(model, Network):
        raise ConfigError(
            f"a model that gives ids is needed here, got architecture {config.architecture!r}"
        )
    return model


def build_trainable(config: ModelConfig) -> Trainable:
    """A freshly initialised model of the configured architecture.

    Raises ConfigError if it names a block that cannot be found.
    """
    model = _new_model(config)
    if config.attention_init in _INITS:
        _INITS[config.attention_init](model)
    if isinstance(model, TextClassifier):
        model.reset_output()
    return model


def _new_model(config: ModelConfig) -> Trainable:
    if isinstance(config, JointConfig):
        return JointModel(config)
    if isinstance(config, LanguageModelConfig):
        return CausalLanguageModel(config)
    if isinstance(config, BertConfig):
        block = find_block(config.block)
        if isinstance(config, ClassifierConfig):
            return TextClassifier(BidirectionalEncoder(config, block), config.num_classes)
        if isinstance(config, EmbedderConfig):
            encoder = BidirectionalEncoder(config, block)
            pooling: Pooling = "cls" if config.pooling == "cls" else "mean"
            return SentenceEmbedder(encoder, pooling, normalised=config.normalised)
        return Bert(config, block)
    assert isinstance(config, TransformerConfig)
    return Transformer(config, find_block(config.block))


def check_model(config: ModelConfig) -> None:
    """Raise ConfigError if `build_network` would, without building."""
    if isinstance(config, TransformerConfig | BertConfig):
        find_block(config.block)


def find_block(name: str) -> Block:
    """The block with a name, or at `package.module:name`.

    Raises ConfigError if there is none.
    """
    if name in BLOCKS:
        return BLOCKS[name]
    module_name, separator, attribute = name.partition(":")
    if not separator:
        raise ConfigError(
            f"block must be one of {sorted(BLOCKS)} or 'package.module:name', got {name!r}"
        )
    try:
        block = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"block {name!r} cannot be imported: {error}") from error
    if not isinstance(block, tuple) or len(block) != 2:
        raise ConfigError(
            f"block {name!r} must be a pair (encoder layer, decoder layer), got {block!r:.80}"
        )
    return Block(*block)
