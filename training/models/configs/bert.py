"""Sizes and options of bidirectional encoders: pretrained ones, and those fine-tuned for classes or
vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from training.errors import ConfigError
from training.models.configs.common import ModelConfig

MOST_BUCKETS = 128
"""Largest `relative_buckets`; each direction has half of them."""
MOST_DISTANCE = 128
"""All distances from here on share a bucket."""


@dataclass(frozen=True, kw_only=True)
class BertConfig(ModelConfig):
    """Sizes of a bidirectional encoder (Devlin et al. 2019), standard or Macaron (Lu et al. 2019).

    The defaults are those of BERT, which the Macaron paper names as its setting. The presets
    `*_released` are the settings of the authors' published code. Where paper and code disagree
    there is an option: `norm`, `norm_affine`, `positions`, `max_positions`, `embedding_scale`,
    `first_activation`, `attention_init` (with the feed-forward's), `output_bias`, `pooler`.
    """

    least_decoder_layers: ClassVar[int] = 0
    choices: ClassVar[dict[str, tuple[str, ...] | tuple[int, ...]]] = ModelConfig.choices | {
        "first_activation": ModelConfig.choices["activation"],
        "attention_init": ("normal", "xavier", "small", "kaiming"),
        "positions": ("learnt", *ModelConfig.choices["positions"]),
        "pooler": ("tanh", "relu", "gelu_norm", "none"),
    }

    architecture: str = "bert"
    num_decoder_layers: int = 0
    block: str = "standard"
    """The order of the sublayers, one of the blocks of `TransformerConfig`; of a custom pair only
    the encoder layer is used."""
    norm: str = "post"
    norm_eps: float = 1e-12
    norm_affine: bool = True
    """Whether the norms of embedding and layers have gains and biases (`norm_type` `layer` or
    `rms`)."""
    activation: str = "gelu"
    first_activation: str = "gelu"
    """Activation of a Macaron layer's first feed-forward: the released code has `relu` there, and
    GELU in the second."""
    attention_dropout: float = 0.1
    embedding_scale: str = "none"
    attention_init: str = "normal"
    """`normal`: all weights from N(0, 0.02), as in BERT; `kaiming`: attention from N(0,
    model_dim^-0.5) and feed-forwards by Kaiming's rule, as in the released code; or as in other
    models."""
    positions: str = "learnt"
    """`learnt`: a table of `max_positions` vectors; or as in other models."""
    max_positions: int = 512
    """Length limit of an input in ids, special ids included, for every kind of positions."""
    relative_buckets: int = 0
    """Number of distance buckets, up to 128. Each head adds a learnt number per bucket to the
    scores of all layers, in addition to `positions`, as in MPNet; 0 turns it off."""
    rotary_base: float = 10000.0
    """`rotary` positions: the last features of a head turn once in about 2 pi times this many
    positions."""
    layer_windows: tuple[int, ...] = ()
    """Positions to either side that each layer sees, repeated cyclically; 0 sees all. Empty: all
    layers see all."""
    window_rotary_base: float = 0.0
    """`rotary_base` of layers with a window; 0 uses that of the others."""
    embedding_norm: bool = False
    """Only with `norm: pre`: a norm after the embedding instead of before the first attention, as
    in ModernBERT."""
    num_segments: int = 2
    """Number of segment vectors, which are added to the tokens of each part; 0 turns them off."""
    pooler: str = "tanh"
    """The layer between the first token's state and the prediction for a whole input. `tanh`: dense
    with tanh; `relu`: dense with ReLU, as in DistilBERT's classifiers; `gelu_norm`: dense with GELU
    and a norm, as in ModernBERT's; `none`: no layer."""
    output_bias: bool = True
    """A bias of the output layer, whose matrix is the embedding."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_block(self.block)
        if self.num_decoder_layers:
            raise ConfigError(
                f"num_decoder_layers of an encoder must be 0, got {self.num_decoder_layers}; its "
                "depth is num_encoder_layers"
            )
        for name, low in (("max_positions", 2), ("num_segments", 0)):
            if getattr(self, name) < low:
                raise ConfigError(f"{name} must be >= {low}, got {getattr(self, name)}")
        self._check_positions()
        if self.embedding_norm and self.norm != "pre":
            raise ConfigError(
                f"embedding_norm: true needs norm: pre, got norm: {self.norm}, which has one anyway"
            )
        if self.norm_type == "scale" and not self.norm_affine:
            raise ConfigError(
                "norm_affine: false needs norm_type 'layer' or 'rms', got 'scale', which has only "
                "one gain; change one of them"
            )

    def _check_positions(self) -> None:
        """Raise ConfigError for position options that are out of range or do not apply."""
        if self.relative_buckets and not 4 <= self.relative_buckets <= MOST_BUCKETS:
            raise ConfigError(
                f"relative_buckets must be 0 or from 4 to {MOST_BUCKETS}, got "
                f"{self.relative_buckets}"
            )
        if self.relative_buckets % 2:
            raise ConfigError(f"relative_buckets must be even, got {self.relative_buckets}")
        if self.relative_buckets and self.positions == "relative":
            raise ConfigError(
                "relative_buckets cannot be combined with positions: relative, got "
                f"{self.relative_buckets}; set one of them"
            )
        if not all(window >= 0 for window in self.layer_windows):
            raise ConfigError(f"layer_windows must be >= 0, got {list(self.layer_windows)}")
        for name, least in (("rotary_base", False), ("window_rotary_base", True)):
            value = getattr(self, name)
            if not (value > 1.0 or (least and value == 0.0)):
                raise ConfigError(f"{name} must be {'0 or ' if least else ''}> 1, got {value}")

    def window_of(self, layer: int) -> int:
        """Positions to either side that a layer sees; 0 sees all."""
        return self.layer_windows[layer % len(self.layer_windows)] if self.layer_windows else 0

    def of_layer(self, layer: int) -> BertConfig:
        """The configuration of one layer, with its own window and positions."""
        if self.window_rotary_base and self.window_of(layer):
            return replace(self, rotary_base=self.window_rotary_base)
        return self

    @property
    def biases_scores(self) -> bool:
        return self.relative_buckets > 0

    @property
    def family(self) -> str:
        return "bert"


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(BertConfig):
    """Sizes of an encoder with one logit per class for a text or a pair of texts."""

    architecture: str = "classifier"
    num_classes: int = 2
    """The number of outputs; 1 for regression."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_classes < 1:
            raise ConfigError(f"num_classes must be >= 1, got {self.num_classes}")


@dataclass(frozen=True, kw_only=True)
class EmbedderConfig(BertConfig):
    """Sizes of an encoder with one vector per text."""

    choices: ClassVar[dict[str, tuple[str, ...] | tuple[int, ...]]] = BertConfig.choices | {
        "pooling": ("cls", "mean"),
    }

    architecture: str = "embedder"
    pooling: str = "mean"
    """`cls`: the first token's state; `mean`: the mean of all tokens' states."""
    normalised: bool = True
    """Scale vectors to length one."""
