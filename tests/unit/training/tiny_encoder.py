"""Tiny encoders with every parameter away from its initial zero or one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import nn

from training.models import (
    Bert,
    BertConfig,
    BidirectionalEncoder,
    SentenceEmbedder,
    TextClassifier,
    build_network,
    find_block,
)

TINY_BERT = BertConfig(
    model_dim=16,
    num_heads=2,
    ffn_dim=24,
    num_encoder_layers=2,
    vocab_size=37,
    max_positions=40,
    dropout=0.0,
    attention_dropout=0.0,
)
ModuleT = TypeVar("ModuleT", bound=nn.Module)


def tiny_bert(seed: int = 0, **changes: Any) -> Bert:
    """In evaluation mode; `changes` are fields of the configuration."""
    torch.manual_seed(seed)
    model = build_network(replace(TINY_BERT, **changes))
    assert isinstance(model, Bert)
    return _shaken(model)


def tiny_embedder(pooling: str, *, normalised: bool = True, **changes: Any) -> SentenceEmbedder:
    torch.manual_seed(0)
    return _shaken(SentenceEmbedder(_encoder(changes), pooling, normalised=normalised))


def tiny_classifier(num_classes: int = 3, **changes: Any) -> TextClassifier:
    torch.manual_seed(0)
    return _shaken(TextClassifier(_encoder(changes), num_classes))


def _encoder(changes: dict[str, Any]) -> BidirectionalEncoder:
    config = replace(TINY_BERT, **changes)
    return BidirectionalEncoder(config, find_block(config.block))


def _shaken(model: ModuleT) -> ModuleT:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model.eval()
