"""Sizes and options of bidirectional encoders: pretrained, and those fitted from them to classes
or vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from training.errors import ConfigError
from training.models.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class BertConfig(ModelConfig):
    """Sizes of a bidirectional encoder (Devlin et al. 2019), standard or Macaron (Lu et al. 2019).

    The defaults are those of BERT, which the Macaron paper names as its setting; the presets
    `*_released` are what the authors' published code ran. Where paper and code disagree there is an
    option: `norm`, `norm_affine`, `positions`, `max_positions`, `embedding_scale`,
    `first_activation`, `attention_init` (with the feed-forward's), `output_bias`, `pooler`.
    """

    least_decoder_layers: ClassVar[int] = 0
    choices: ClassVar[dict[str, tuple[str, ...] | tuple[int, ...]]] = ModelConfig.choices | {
        "first_activation": ModelConfig.choices["activation"],
        "attention_init": ("normal", "xavier", "small", "kaiming"),
        "positions": ("learnt", *ModelConfig.choices["positions"]),
        "pooler": ("tanh", "relu", "none"),
    }

    architecture: str = "bert"
    num_decoder_layers: int = 0
    block: str = "standard"
    """As in a `TransformerConfig`; of a pair of one's own the encoder layer alone is used."""
    norm: str = "post"
    norm_eps: float = 1e-12
    norm_affine: bool = True
    """Gains and biases in the norms of embedding and layers, of `norm_type` `layer` or `rms`."""
    activation: str = "gelu"
    first_activation: str = "gelu"
    """Of the first of a Macaron layer's feed-forwards: the released code has `relu` there, and
    GELU in the second."""
    attention_dropout: float = 0.1
    embedding_scale: str = "none"
    attention_init: str = "normal"
    """`normal`: all weights from N(0, 0.02), as BERT; `kaiming`: attention from
    N(0, model_dim^-0.5) and feed-forwards by Kaiming's rule, as the released code; or as in other
    models."""
    positions: str = "learnt"
    """`learnt`: a table of `max_positions` vectors; or what other models have."""
    max_positions: int = 512
    """Longest input in ids, special ones included, however positions are encoded."""
    num_segments: int = 2
    """Kinds of parts that have a vector of their own, which their tokens add; 0 is none."""
    pooler: str = "tanh"
    """`tanh`: a dense layer with tanh between the first token's state and what is predicted of a
    whole input; `relu`: with ReLU, as in DistilBERT's classifiers; `none`: nothing is."""
    output_bias: bool = True
    """A bias beside the output matrix, which is the embedding."""

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
        if self.norm_type == "scale" and not self.norm_affine:
            raise ConfigError(
                "norm_affine: false needs norm_type 'layer' or 'rms', got 'scale', whose one gain "
                "is all of it; change one of them"
            )

    @property
    def family(self) -> str:
        return "bert"


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(BertConfig):
    """Sizes of an encoder that gives a text, or two, a logit for each class."""

    architecture: str = "classifier"
    num_classes: int = 2
    """A single one is what regression has."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_classes < 1:
            raise ConfigError(f"num_classes must be >= 1, got {self.num_classes}")


@dataclass(frozen=True, kw_only=True)
class EmbedderConfig(BertConfig):
    """Sizes of an encoder that gives a text a vector."""

    choices: ClassVar[dict[str, tuple[str, ...] | tuple[int, ...]]] = BertConfig.choices | {
        "pooling": ("cls", "mean"),
    }

    architecture: str = "embedder"
    pooling: str = "mean"
    """`cls`: the first token's state; `mean`: that of all tokens."""
    normalised: bool = True
    """Vectors of length one."""
