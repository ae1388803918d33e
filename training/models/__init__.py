"""Models; `build_network` is the only place that chooses an architecture."""

from __future__ import annotations

import importlib

from training.errors import ConfigError
from training.models.attention import small_init
from training.models.base import DecodingNetwork, Network, TranslationModel
from training.models.bert import (
    Bert,
    BidirectionalEncoder,
    SentenceEmbedder,
    TextClassifier,
    TextModel,
    kaiming_init,
    normal_init,
)
from training.models.blocks import BLOCKS, Block
from training.models.config import (
    BertConfig,
    JointConfig,
    LanguageModelConfig,
    ModelConfig,
    TransformerConfig,
)
from training.models.joint import JointModel
from training.models.language_model import CausalLanguageModel
from training.models.presets import PRESETS
from training.models.transformer import Transformer

__all__ = [
    "PRESETS",
    "Bert",
    "BertConfig",
    "BidirectionalEncoder",
    "CausalLanguageModel",
    "DecodingNetwork",
    "JointConfig",
    "JointModel",
    "LanguageModelConfig",
    "ModelConfig",
    "Network",
    "SentenceEmbedder",
    "TextClassifier",
    "TextModel",
    "Transformer",
    "TransformerConfig",
    "TranslationModel",
    "build_model",
    "build_network",
    "check_model",
    "find_block",
]


_INITS = {"small": small_init, "normal": normal_init, "kaiming": kaiming_init}
"""What is done to fresh weights, by `attention_init`; `xavier` is how modules begin."""


def build_model(config: ModelConfig) -> TranslationModel:
    """A freshly initialised translation model.

    Raises ConfigError for another kind of model, and where a block cannot be found.
    """
    model = build_network(config)
    if not isinstance(model, TranslationModel):
        raise ConfigError(
            "a translation model is needed here: architecture must be 'transformer' or 'joint', "
            f"got {config.architecture!r}"
        )
    return model


def build_network(config: ModelConfig) -> Network:
    """A freshly initialised model of the configured architecture.

    Raises ConfigError where it names a block that cannot be found.
    """
    network: Network
    if isinstance(config, JointConfig):
        network = JointModel(config)
    elif isinstance(config, LanguageModelConfig):
        network = CausalLanguageModel(config)
    elif isinstance(config, BertConfig):
        network = Bert(config, find_block(config.block))
    else:
        assert isinstance(config, TransformerConfig)
        network = Transformer(config, find_block(config.block))
    if config.attention_init in _INITS:
        _INITS[config.attention_init](network)
    return network


def check_model(config: ModelConfig) -> None:
    """Raise ConfigError where `build_network` would, without the work."""
    if isinstance(config, TransformerConfig | BertConfig):
        find_block(config.block)


def find_block(name: str) -> Block:
    """The block of that name, or the one at `package.module:name`.

    Raises ConfigError where there is none.
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
