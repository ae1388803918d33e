"""Layers, which combine sublayers. A block of one's own is another pair of layers.

Shape letters: B sentences, S source positions, Q queries, D model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn

from training.models.configs.common import ModelConfig
from training.models.configs.transformer import CONVOLUTIONS, TransformerConfig
from training.models.context import AttentionContext, CacheContext, KeyValue
from training.models.dropout import Dropout
from training.models.sublayers.attention import Packing, SelfAttention, SourceAttention
from training.models.sublayers.branches import Branches
from training.models.sublayers.convolution import Convolution
from training.models.sublayers.feed_forward import FeedForward
from training.models.sublayers.norms import make_norm
from training.models.sublayers.positions import make_positions
from training.models.sublayers.recurrence import Ssru

Order = Mapping[str, float]
"""Sublayers in the order in which they run, with the factor of each one's output."""

STANDARD: Order = {"self_attention": 1.0, "source_attention": 1.0, "ffn": 1.0}
ORDERS: dict[str, Order] = {
    "standard": STANDARD,
    # Lu et al. 2019, equations 17 to 19 and appendix B.1.
    "macaron": {"first_ffn": 0.5, "self_attention": 1.0, "source_attention": 1.0, "ffn": 0.5},
    # Their ablation: the other side of the splitting has the half steps.
    "attention_ffn_attention": {
        "self_attention": 0.5,
        "source_attention": 1.0,
        "ffn": 1.0,
        "last_attention": 0.5,
    },
    "weighted": {"self_attention": 1.0, "source_attention": 1.0},  # Ahmed et al. 2017
}
"""The sublayers of each block. A layer without a source leaves out the attention to it."""


class Residual(nn.Module):
    """Pre-norm: x + scale * dropout(f(norm(x))); post-norm: norm(x + scale * dropout(f(x))).

    Language models also allow `none`: x + scale * dropout(f(x)), and `output`, a norm of the
    sublayer's output: x + scale * dropout(norm(f(x))). `sandwich` combines `output` and pre-norm.
    """

    def __init__(
        self, config: ModelConfig, scale: float = 1.0, shared_axes: tuple[int, ...] = ()
    ) -> None:
        """Dropout shares its noise along `shared_axes` of x."""
        super().__init__()
        self.norm = make_norm(config, "pre", "post", "sandwich")
        self.output_norm = make_norm(config, "output", "sandwich")
        self.dropout = Dropout(config.dropout, shared_axes)
        self.post_norm, self.scale = config.norm == "post", scale

    def forward(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply `function` inside the residual connection; shapes are kept."""
        if self.post_norm:
            return self.norm(x + self.dropout(function(x), self.scale))
        return x + self.added(x, function)

    def added(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """The value that is added to `x`: the normed and dropped-out output of the sublayer. It
        does not apply to `norm: post`, which norms the sum."""
        return self.dropout(self.output_norm(function(self.norm(x))), self.scale)


class Layer(nn.Module):
    """Sublayers one after the other, each inside a residual connection of its own.

    Without a feed-forward, the heads of its last attention have feed-forwards of their own: see
    `Branches`.
    """

    self_attention: SelfAttention | Convolution | Ssru
    source_attention: SourceAttention
    ffn: FeedForward
    self_attention_residual: Residual
    source_attention_residual: Residual
    ffn_residual: Residual

    def __init__(
        self,
        config: ModelConfig,
        order: Order,
        attention: Callable[[ModelConfig], nn.Module] | None = None,
    ) -> None:
        """`attention` makes the first sublayer, in place of `self_attention`."""
        super().__init__()
        self.order = dict(order)
        makers: dict[str, Callable[[Any], nn.Module]] = {
            "self_attention": attention or self_attention,
            "last_attention": self_attention,
            "source_attention": source_attention,
            "first_ffn": partial(feed_forward, activation=config.first_activation),
        }
        # Sublayers that the standard block lacks come last: a saved optimiser goes by the order.
        for names in ([n for n in STANDARD if n in order], [n for n in order if n not in STANDARD]):
            for name in names:
                self.add_module(name, makers.get(name, feed_forward)(config))
            for name in names:
                self.add_module(f"{name}_residual", Residual(config, order[name]))
        if "ffn" not in order:
            self.get_submodule(list(order)[-1]).out_proj = Branches(config)

    def run(self, x: Tensor, call: Callable[[nn.Module, Tensor], Tensor]) -> Tensor:
        """The state after all sublayers, each of which `call` applies; its shape is kept."""
        for name in self.order:
            sublayer, residual = self.get_submodule(name), self.get_submodule(f"{name}_residual")
            x = residual(x, partial(call, sublayer))
        return x


class EncoderLayer(Layer):
    """Self-attention and feed-forward (Vaswani et al. 2017, section 3.1), or the sublayers of
    another block."""

    def __init__(self, config: ModelConfig, order: Order = STANDARD) -> None:
        own = {name: scale for name, scale in order.items() if name != "source_attention"}
        super().__init__(config, own, partial(mixing, side="encoder"))

    def forward(self, x_BSD: Tensor, source_mask: Tensor | Packing | None) -> Tensor:
        """[B,S,D] to [B,S,D] under an additive mask [B,1,1 or S,S]; or texts that are packed."""

        def call(sublayer: nn.Module, x_BSD: Tensor) -> Tensor:
            if isinstance(sublayer, SelfAttention | Convolution):
                return sublayer(x_BSD, source_mask)
            return sublayer(x_BSD)

        return self.run(x_BSD, call)


@runtime_checkable
class Causal(Protocol):
    """A sublayer that can take the place of a decoder's self-attention."""

    def decode(self, x_BQD: Tensor, context: CacheContext) -> Tensor:
        """[B,Q,D] to [B,Q,D]; each position reads only itself and those before it."""


class CausalLayer(Layer):
    """Causal self-attention, attention to the source if there is one, and feed-forward (Vaswani et
    al. 2017, section 3.1), or the sublayers of another block."""

    def forward(self, x_BQD: Tensor, context: CacheContext) -> Tensor:
        """[B,Q,D] to [B,Q,D]; `context` takes the appended caches."""

        def call(sublayer: nn.Module, x_BQD: Tensor) -> Tensor:
            if isinstance(sublayer, SourceAttention):
                assert isinstance(context, AttentionContext)
                return sublayer(x_BQD, context)
            if isinstance(sublayer, Causal):
                return sublayer.decode(x_BQD, context)
            return sublayer(x_BQD)

        return self.run(x_BQD, call)


class ParallelLayer(CausalLayer):
    """A causal layer whose sublayers all read the layer's input; their outputs are added to it
    (Wang and Komatsuzaki 2021, "GPT-J-6B")."""

    def run(self, x: Tensor, call: Callable[[nn.Module, Tensor], Tensor]) -> Tensor:
        """The state plus the outputs of all sublayers; its shape is kept."""
        total = x
        for name in self.order:
            residual = self.get_submodule(f"{name}_residual")
            assert isinstance(residual, Residual)
            total = total + residual.added(x, partial(call, self.get_submodule(name)))
        return total


class DecoderLayer(CausalLayer):
    """A causal layer with a source attention."""

    def __init__(self, config: TransformerConfig, order: Order = STANDARD) -> None:
        super().__init__(config, order, partial(mixing, side="decoder"))

    def project_source(self, memory_BSD: Tensor) -> KeyValue:
        """Keys and values of the source attention, computed once per sentence."""
        return self.source_attention.project(memory_BSD)


class Block(NamedTuple):
    """The two layers of an architecture; each is called with its configuration, the encoder's
    with a TransformerConfig or a BertConfig."""

    encoder_layer: Callable[[Any], nn.Module]
    decoder_layer: Callable[[TransformerConfig], nn.Module]


BLOCKS: dict[str, Block] = {
    name: Block(partial(EncoderLayer, order=order), partial(DecoderLayer, order=order))
    for name, order in ORDERS.items()
}


def self_attention(config: ModelConfig) -> SelfAttention:
    """Self-attention of the configured sizes."""
    made = SelfAttention(
        config.model_dim,
        config.num_heads,
        config.attention_dropout,
        head_dim=config.head_width,
        bias=config.attention_bias,
        positions=make_positions(config),
        is_biased=config.biases_scores,
    )
    if config.attention_soft_cap:
        made.cap_scores(config.attention_soft_cap)
    return made


def mixing(config: ModelConfig, side: str) -> SelfAttention | Convolution | Ssru:
    """The sublayer in which the positions of a side exchange information: self-attention, or the
    convolution or recurrence that the configuration has in its place."""
    if not isinstance(config, TransformerConfig):
        return self_attention(config)
    name = config.encoder_mixing if side == "encoder" else config.decoder_mixing
    if name in CONVOLUTIONS:
        return Convolution(config, name, config.kernel_sizes(side)[0])
    return Ssru(config) if name == "ssru" else self_attention(config)


def source_attention(config: ModelConfig) -> SourceAttention:
    """Source attention of the configured sizes."""
    made = SourceAttention(
        config.model_dim,
        config.num_heads,
        config.attention_dropout,
        source_dim=config.source_width,
        head_dim=config.head_width,
        bias=config.attention_bias,
    )
    made.cap_scores(config.attention_soft_cap)
    return made


def feed_forward(
    config: ModelConfig, shared_axes: tuple[int, ...] = (), activation: str | None = None
) -> FeedForward:
    """Feed-forward of the configured sizes, with the configured activation unless one is given; its
    dropout shares noise along `shared_axes`."""
    dropout = Dropout(config.activation_dropout, shared_axes)
    return FeedForward(
        config.model_dim,
        config.ffn_dim,
        dropout,
        activation or config.activation,
        config.ffn_hidden_layers,
        bias=config.ffn_bias,
    )


__all__ = [
    "BLOCKS",
    "ORDERS",
    "STANDARD",
    "Block",
    "CausalLayer",
    "DecoderLayer",
    "EncoderLayer",
    "ParallelLayer",
    "Residual",
    "feed_forward",
    "mixing",
    "self_attention",
    "source_attention",
]
