"""Models; `build_model` is the only place that chooses an architecture."""

from __future__ import annotations

import importlib

from training.errors import ConfigError
from training.models.blocks import BLOCKS, Block
from training.models.config import PRESETS, TransformerConfig
from training.models.transformer import Transformer

__all__ = ["PRESETS", "Transformer", "TransformerConfig", "build_model", "find_block"]


def build_model(config: TransformerConfig) -> Transformer:
    """A freshly initialised model of the configured architecture."""
    return Transformer(config, find_block(config.block))


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
