"""Layers: how sublayers are put together. A block of one's own is another such pair.

Shape letters: B sentences, S source positions, Q queries, D model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from training.models.attention import (
    AttentionContext,
    KeyValue,
    Packing,
    SelfAttention,
    SourceAttention,
)
from training.models.config import ModelConfig, TransformerConfig
from training.models.dropout import Dropout
from training.models.feed_forward import FeedForward
from training.models.norms import make_norm


class Residual(nn.Module):
    """Pre-norm: x + scale * dropout(f(norm(x))); post-norm: norm(x + scale * dropout(f(x))).

    Without norm, which language models allow: x + scale * dropout(f(x)).
    """

    def __init__(
        self, config: ModelConfig, scale: float = 1.0, shared_axes: tuple[int, ...] = ()
    ) -> None:
        """Dropout shares its noise along `shared_axes` of x."""
        super().__init__()
        self.norm = make_norm(config, "pre", "post")
        self.dropout = Dropout(config.dropout, shared_axes)
        self.pre_norm, self.scale = config.norm == "pre", scale

    def forward(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply `function` inside the residual connection; shapes are kept."""
        if self.pre_norm:
            return x + self.dropout(function(self.norm(x)), self.scale)
        return self.norm(x + self.dropout(function(x), self.scale))


class EncoderLayer(nn.Module):
    """Self-attention, feed-forward (Vaswani et al. 2017, section 3.1)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = self_attention(config)
        self.ffn = feed_forward(config)
        self.self_attention_residual = Residual(config)
        self.ffn_residual = Residual(config)

    def forward(self, x_BSD: Tensor, source_mask: Tensor | Packing | None) -> Tensor:
        """[B,S,D] to [B,S,D] under an additive mask [B,1,1 or S,S]; or texts that are packed."""
        x_BSD = self.self_attention_residual(x_BSD, lambda x: self.self_attention(x, source_mask))
        return self.ffn_residual(x_BSD, self.ffn)


class DecoderLayer(nn.Module):
    """Causal self-attention, source attention, feed-forward (Vaswani et al. 2017, section 3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = self_attention(config)
        self.source_attention = source_attention(config)
        self.ffn = feed_forward(config)
        self.self_attention_residual = Residual(config)
        self.source_attention_residual = Residual(config)
        self.ffn_residual = Residual(config)

    def project_source(self, memory_BSD: Tensor) -> KeyValue:
        """Keys and values of the source attention, computed once a sentence."""
        return self.source_attention.project(memory_BSD)

    def forward(self, x_BQD: Tensor, context: AttentionContext) -> Tensor:
        """[B,Q,D] to [B,Q,D]; `context.cache` is replaced by the appended cache."""
        x_BQD = self.self_attention_residual(
            x_BQD, lambda x: self.self_attention.decode(x, context)
        )
        x_BQD = self.source_attention_residual(x_BQD, lambda x: self.source_attention(x, context))
        return self.ffn_residual(x_BQD, self.ffn)


class MacaronEncoderLayer(EncoderLayer):
    """Half feed-forward, self-attention, half feed-forward (Lu et al. 2019, equations 17 to 19)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.first_ffn = feed_forward(config, activation=config.first_activation)
        self.first_ffn_residual = Residual(config, scale=0.5)
        self.ffn_residual.scale = 0.5

    def forward(self, x_BSD: Tensor, source_mask: Tensor | Packing | None) -> Tensor:
        """[B,S,D] to [B,S,D] under an additive mask [B,1,1 or S,S]; or texts that are packed."""
        return super().forward(self.first_ffn_residual(x_BSD, self.first_ffn), source_mask)


class MacaronDecoderLayer(DecoderLayer):
    """Half feed-forward, self- and source attention, half feed-forward (Lu et al. 2019, B.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.first_ffn = feed_forward(config)
        self.first_ffn_residual = Residual(config, scale=0.5)
        self.ffn_residual.scale = 0.5

    def forward(self, x_BQD: Tensor, context: AttentionContext) -> Tensor:
        """[B,Q,D] to [B,Q,D]; `context.cache` is replaced by the appended cache."""
        return super().forward(self.first_ffn_residual(x_BQD, self.first_ffn), context)


class Block(NamedTuple):
    """The two layers of an architecture; each is called with its configuration, the encoder's
    with a TransformerConfig or a BertConfig."""

    encoder_layer: Callable[[Any], nn.Module]
    decoder_layer: Callable[[TransformerConfig], nn.Module]


BLOCKS: dict[str, Block] = {
    "standard": Block(EncoderLayer, DecoderLayer),
    "macaron": Block(MacaronEncoderLayer, MacaronDecoderLayer),
}


def self_attention(config: ModelConfig) -> SelfAttention:
    """Self-attention of the configured sizes."""
    return SelfAttention(config.model_dim, config.num_heads, config.attention_dropout)


def source_attention(config: ModelConfig) -> SourceAttention:
    """Source attention of the configured sizes."""
    return SourceAttention(config.model_dim, config.num_heads, config.attention_dropout)


def feed_forward(
    config: ModelConfig, shared_axes: tuple[int, ...] = (), activation: str | None = None
) -> FeedForward:
    """Feed-forward of the configured sizes, with the configured activation unless one is given; its
    dropout shares noise along `shared_axes`."""
    dropout = Dropout(config.activation_dropout, shared_axes)
    activation = activation or config.activation
    return FeedForward(config.model_dim, config.ffn_dim, dropout, activation)


__all__ = [
    "BLOCKS",
    "Block",
    "DecoderLayer",
    "EncoderLayer",
    "MacaronDecoderLayer",
    "MacaronEncoderLayer",
    "Residual",
    "feed_forward",
    "self_attention",
    "source_attention",
]
