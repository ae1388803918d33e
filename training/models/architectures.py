"""The kinds of models."""

from __future__ import annotations

from training.models.bert_config import BertConfig, ClassifierConfig, EmbedderConfig
from training.models.config import ModelConfig
from training.models.joint_config import JointConfig
from training.models.language_model_config import LanguageModelConfig
from training.models.transformer_config import TransformerConfig

ARCHITECTURES: dict[str, type[ModelConfig]] = {
    "transformer": TransformerConfig,
    "joint": JointConfig,
    "lm": LanguageModelConfig,
    "bert": BertConfig,
    "classifier": ClassifierConfig,
    "embedder": EmbedderConfig,
}
