"""The kinds of models."""

from __future__ import annotations

from training.models.configs.bert import BertConfig, ClassifierConfig, EmbedderConfig
from training.models.configs.common import ModelConfig
from training.models.configs.joint import JointConfig
from training.models.configs.language_model import LanguageModelConfig
from training.models.configs.transformer import TransformerConfig

ARCHITECTURES: dict[str, type[ModelConfig]] = {
    "transformer": TransformerConfig,
    "joint": JointConfig,
    "lm": LanguageModelConfig,
    "bert": BertConfig,
    "classifier": ClassifierConfig,
    "embedder": EmbedderConfig,
}
