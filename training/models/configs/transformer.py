"""Sizes and options of an encoder-decoder Transformer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from training.errors import ConfigError
from training.models.configs.common import ModelConfig

CONVOLUTIONS = ("light_conv", "dynamic_conv")
"""Convolutions that may replace self-attention; see `convolution.Convolution`."""


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(ModelConfig):
    """Sizes of an encoder-decoder Transformer. Source, target and output share one embedding by
    default."""

    choices: ClassVar[dict[str, tuple[str, ...] | tuple[int, ...]]] = ModelConfig.choices | {
        "norm": ("pre", "post", "sandwich"),
        "encoder_mixing": ("attention", *CONVOLUTIONS),
        "decoder_mixing": ("attention", *CONVOLUTIONS, "ssru"),
        "positions": (
            "sinusoid",
            "relative",
            "rotary",
            "relative_bias",
            "marian",
            "tensor2tensor",
            "fairseq",
            "interleaved",
            "learnt",
        ),
    }

    architecture: str = "transformer"
    block: str = "standard"
    """A key of `blocks.ORDERS` (`standard`, `macaron`, `attention_ffn_attention`, `weighted`), or
    `package.module:name` of a pair (encoder layer, decoder layer)."""
    positions: str = "sinusoid"
    """The kinds that all models have, and more: `relative_bias`, where self-attention adds a number
    per distance and head, shared by all layers of a side (Raffel et al. 2020, "T5"); `marian`,
    `tensor2tensor` and `fairseq`, variants of `sinusoid` that count positions or space frequencies
    differently; `interleaved`, with alternating sines and cosines; `learnt`, a table of
    `max_positions` rows per side."""
    num_buckets: int = 32
    """`relative_bias`: number of distance buckets. Half are single distances, the others growing
    ranges; in the encoder each direction has half."""
    max_distance: int = 128
    """`relative_bias`: all distances from here on share a bucket."""
    max_positions: int = 0
    """Rows of a `learnt` table, which limits source and target; 0 for other positions, which have
    no limit."""
    embedding_norm: bool = False
    """A norm of the configured type after the embedding of each side."""
    tie_embeddings: bool = True
    """Whether the output matrix is the target's embedding; otherwise it is separate."""
    output_bias: bool = False
    """A bias of the output layer."""
    head_dim: int = 0
    """Features per attention head; 0 is `model_dim` / `num_heads`."""
    attention_bias: bool = True
    """Biases in the projections of attention."""
    attention_soft_cap: float = 0.0
    """Upper bound of attention scores, cap * tanh(score / cap) (Gemma 2, T5Gemma); 0 turns it
    off."""
    logit_soft_cap: float = 0.0
    """Likewise for logits."""
    ffn_bias: bool = True
    """Biases in the feed-forward."""
    source_vocab_size: int = 0
    """Size of a separate source vocabulary with its own embedding; 0 shares the target's.
    `vocab_size` is then that of the target."""
    encoder_dim: int = 0
    """Width of the encoder and of the source's embedding (T5Gemma 9b-2b); 0 is `model_dim`."""
    encoder_heads: int = 0
    """Heads of the encoder's attention; 0 is `num_heads`."""
    encoder_ffn_dim: int = 0
    """Inner size of the encoder's feed-forward; 0 is `ffn_dim`."""
    share_layers: bool = False
    """Use one layer's weights for all `num_encoder_layers` or `num_decoder_layers` steps of a side
    (Universal Transformer; Dehghani et al. 2018)."""
    halting: bool = False
    """Only with shared layers: each position takes as many steps as it needs, at most the number of
    layers."""
    halting_threshold: float = 0.99
    """A position stops when its halting probabilities add up to this."""
    ponder_weight: float = 0.01
    """Weight of the mean number of steps per position, added to the loss of the labels."""
    encoder_mixing: str = "attention"
    """The sublayer by which positions of a side exchange information: self-`attention`,
    `light_conv` or `dynamic_conv` (Wu et al. 2019)."""
    decoder_mixing: str = "attention"
    """Likewise, or `ssru`, a recurrent cell (Kim et al. 2019)."""
    encoder_kernel_sizes: tuple[int, ...] = ()
    """Odd widths of the convolutions, one per layer; empty: the paper's 3, 7, 15, 31, 31 and so
    on."""
    decoder_kernel_sizes: tuple[int, ...] = ()
    conv_glu: bool = True
    """A gated linear unit before each convolution."""
    kernel_softmax: bool = True
    """Normalise the taps of convolutions by a softmax (`weight_softmax` in the authors' code)."""
    conv_input_dropout: float = 0.0
    """Dropout of the input of a convolution's sublayer."""
    kernel_dropout: float = 0.0
    """Dropout of the taps of convolutions after the softmax (DropConnect; `weight_dropout` in the
    authors' code)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_embeddings()
        self._check_encoder()
        self._check_steps()
        self._check_heads()
        self._check_caps()
        self._check_positions()
        self._check_convolutions()

    def _check_width(self) -> None:
        if not self.head_dim:
            super()._check_width()
            return
        if self.model_dim < 4 or self.model_dim % 2:
            raise ConfigError(f"model_dim must be >= 4 and even, got {self.model_dim}")
        if self.head_dim < 2 or self.head_dim % 2:
            raise ConfigError(f"head_dim must be 0 or even, got {self.head_dim}")

    def _check_heads(self) -> None:
        """Raise ConfigError for sizes that do not fit each other."""
        if self.head_dim and self.block == "weighted":
            raise ConfigError(
                "block: weighted gives each head a share of model_dim, got head_dim: "
                f"{self.head_dim}; set head_dim: 0 or another block"
            )
        for side in ("encoder", "decoder"):
            mixing = getattr(self, f"{side}_mixing")
            if self.head_dim and mixing in CONVOLUTIONS:
                raise ConfigError(
                    f"{side}_mixing: {mixing} divides model_dim among heads, got head_dim: "
                    f"{self.head_dim}; set head_dim: 0 or {side}_mixing: attention"
                )

    def _check_caps(self) -> None:
        """Raise ConfigError for caps below 0, and for score caps without plain attention."""
        for name in ("attention_soft_cap", "logit_soft_cap"):
            if not getattr(self, name) >= 0.0:
                raise ConfigError(f"{name} must be >= 0, got {getattr(self, name)}")
        mixings = {self.encoder_mixing, self.decoder_mixing}
        if self.attention_soft_cap and (
            self.positions in ("relative", "relative_bias") or mixings != {"attention"}
        ):
            raise ConfigError(
                "attention_soft_cap needs encoder_mixing and decoder_mixing: attention, and "
                f"positions that are not part of scores, got {sorted(mixings)} and positions: "
                f"{self.positions}; set attention_soft_cap: 0"
            )

    def _check_embeddings(self) -> None:
        if self.source_vocab_size < 0:
            raise ConfigError(f"source_vocab_size must be >= 0, got {self.source_vocab_size}")
        self._check_fix_norm(self.tie_embeddings)

    def _check_encoder(self) -> None:
        """Raise ConfigError for sizes of the encoder that do not fit the others."""
        own = {name: getattr(self, name) for name in ("encoder_dim", "encoder_heads")}
        for name, value in (own | {"encoder_ffn_dim": self.encoder_ffn_dim}).items():
            if value < 0:
                raise ConfigError(f"{name} must be >= 0, got {value}")
        if self.encoder_dim % 2 or 0 < self.encoder_dim < 4:
            raise ConfigError(f"encoder_dim must be 0, or even and >= 4, got {self.encoder_dim}")
        if any(own.values()) and (not self.head_dim or self.share_layers):
            raise ConfigError(
                f"{' and '.join(name for name in own if own[name])} needs head_dim > 0, the width "
                f"of heads on both sides, and share_layers: false, got head_dim: {self.head_dim} "
                f"and share_layers: {str(self.share_layers).lower()}"
            )
        if self.encoder_dim and not self.source_vocab_size:
            raise ConfigError(
                f"encoder_dim: {self.encoder_dim} needs an embedding of the source's own, got "
                "source_vocab_size: 0; set it to the number of the source's pieces"
            )

    def _check_steps(self) -> None:
        self._check_block(self.block)
        if self.halting and not self.share_layers:
            raise ConfigError(
                "halting: true ends the steps of one layer early and needs share_layers: true, got "
                "share_layers: false; set both or neither"
            )
        if not 0.0 < self.halting_threshold < 1.0:
            raise ConfigError(f"halting_threshold must be in (0, 1), got {self.halting_threshold}")
        if not self.ponder_weight >= 0.0:
            raise ConfigError(f"ponder_weight must be >= 0, got {self.ponder_weight}")
        for name in ("encoder_layerdrop", "decoder_layerdrop"):
            if self.share_layers and getattr(self, name):
                raise ConfigError(
                    f"{name} = {getattr(self, name)} leaves out layers of their own, but "
                    "share_layers: true has one for all steps; set one of the two"
                )

    def _check_positions(self) -> None:
        """Raise ConfigError for positions that other options do not support."""
        self._check_table(self.max_positions)
        if self.positions == "relative_bias":
            self._check_buckets()
        if self.share_layers and self.positions in (
            "marian",
            "tensor2tensor",
            "fairseq",
            "interleaved",
            "learnt",
        ):
            raise ConfigError(
                "share_layers: true adds the positions of sinusoid before each step, got "
                f"positions: {self.positions}; use sinusoid, relative, relative_bias or rotary"
            )

    def _check_buckets(self) -> None:
        """Raise ConfigError for distances that the buckets cannot distinguish."""
        if self.num_buckets < 4 or self.num_buckets % 2:
            raise ConfigError(
                "num_buckets of positions: relative_bias must be even and >= 4, got "
                f"{self.num_buckets}"
            )
        if self.max_distance <= self.num_buckets // 2:
            raise ConfigError(
                f"max_distance must be > num_buckets / 2 = {self.num_buckets // 2}, up to which "
                f"each distance has a bucket of its own, got {self.max_distance}"
            )

    def _check_convolutions(self) -> None:
        convolves = {self.encoder_mixing, self.decoder_mixing}.intersection(CONVOLUTIONS)
        for name in ("conv_input_dropout", "kernel_dropout"):
            value = getattr(self, name)
            if not 0.0 <= value < 1.0:
                raise ConfigError(f"{name} must be in [0, 1), got {value}")
            if value and not convolves:
                raise ConfigError(
                    f"{name} needs encoder_mixing or decoder_mixing to be one of {CONVOLUTIONS}, "
                    f"got {self.encoder_mixing!r} and {self.decoder_mixing!r}"
                )
        for side in ("encoder", "decoder"):
            self._check_kernel_sizes(side)
            mixing = getattr(self, f"{side}_mixing")
            if mixing != "attention" and self.positions in ("relative", "relative_bias", "rotary"):
                raise ConfigError(
                    f"positions: {self.positions} is part of self-attention, which {side}_mixing: "
                    f"{mixing} replaces; use positions: sinusoid"
                )
        if not convolves:
            if not self.kernel_softmax:
                raise ConfigError(
                    "kernel_softmax: false needs encoder_mixing or decoder_mixing to be one of "
                    f"{CONVOLUTIONS}, got {self.encoder_mixing!r} and {self.decoder_mixing!r}"
                )
            return
        if self.share_layers:
            raise ConfigError(
                "share_layers: true has one layer for all steps, and convolutions differ in width "
                f"from layer to layer, got encoder_mixing: {self.encoder_mixing} and "
                f"decoder_mixing: {self.decoder_mixing}; set share_layers: false"
            )
        if self.block == "weighted" and self.encoder_mixing != "attention":
            raise ConfigError(
                "block: weighted gives heads of the encoder's attention feed-forwards and needs "
                f"encoder_mixing: attention, got {self.encoder_mixing}; change one of them"
            )

    def _check_kernel_sizes(self, side: str) -> None:
        name, mixing = f"{side}_kernel_sizes", getattr(self, f"{side}_mixing")
        given, layers = getattr(self, name), getattr(self, f"num_{side}_layers")
        if given and mixing not in CONVOLUTIONS:
            raise ConfigError(
                f"{name} needs {side}_mixing to be one of {CONVOLUTIONS}, got {mixing!r}"
            )
        if given and len(given) != layers:
            raise ConfigError(
                f"{name} must have one width for each of num_{side}_layers = {layers} layers, got "
                f"{list(given)}"
            )
        for width in given:
            if width < 3 or width % 2 == 0:
                raise ConfigError(f"{name} must be odd numbers from 3 on, got {width}")

    def kernel_sizes(self, side: str) -> tuple[int, ...]:
        """The widths of a side's convolutions, one per layer."""
        given: tuple[int, ...] = getattr(self, f"{side}_kernel_sizes")
        layers: int = getattr(self, f"num_{side}_layers")
        return tuple(given) or ((3, 7, 15) + (31,) * layers)[:layers]

    def of_layer(self, number: int) -> TransformerConfig:
        """The configuration of one layer per side."""
        sizes = {
            f"{side}_kernel_sizes": self.kernel_sizes(side)[number : number + 1]
            for side in ("encoder", "decoder")
            if getattr(self, f"{side}_mixing") in CONVOLUTIONS
        }
        if not sizes:
            return self
        return replace(self, num_encoder_layers=1, num_decoder_layers=1, **sizes)  # type: ignore[arg-type]

    def of_encoder(self) -> TransformerConfig:
        """The configuration with the encoder's sizes on both sides."""
        return replace(
            self,
            model_dim=self.source_width,
            num_heads=self.encoder_heads or self.num_heads,
            ffn_dim=self.encoder_ffn_dim or self.ffn_dim,
            encoder_dim=0,
            encoder_heads=0,
            encoder_ffn_dim=0,
        )

    @property
    def source_width(self) -> int:
        return self.encoder_dim or self.model_dim

    @property
    def head_width(self) -> int:
        return self.head_dim or super().head_width

    @property
    def family(self) -> str:
        """`macaron` for the Macaron block; `transformer` for the standard one and custom ones."""
        return "macaron" if self.block == "macaron" else "transformer"
