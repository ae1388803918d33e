"""Sizes and options of a decoder-only language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from training.errors import ConfigError
from training.models.config import ModelConfig

ATTENTIONS = ("full", "dilated", "dilated_memory", "cascade")
"""What the layers of a language model see; see `light_attention.layer_offsets`."""


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig(ModelConfig):
    """Sizes of a decoder-only language model with the attention of Wang et al. 2020, "Transformer
    on a Diet".

    `norm="post"` is the paper's (with a norm after the embedding, as in the authors' code),
    `"none"` what their published commands ran, `"pre"` today's custom. `dropout` is their
    dropout_h.
    """

    least_encoder_layers: ClassVar[int] = 0
    choices: ClassVar[dict[str, tuple[str, ...] | tuple[int, ...]]] = ModelConfig.choices | {
        "norm": ("pre", "post", "none"),
        "block": ("standard", "macaron"),
        "attention": ATTENTIONS,
        "positions": ("sinusoid", "gluon", "relative", "rotary", "learnt"),
        "rotary_scaling": ("none", "linear", "llama3"),
        "dropout_layers": ("all", "reference"),
    }

    architecture: str = "lm"
    num_encoder_layers: int = 0
    block: str = "standard"
    """`standard`, or `macaron`: two half feed-forwards around the attention."""
    attention: str = "full"
    """`full`, `dilated`, `dilated_memory` or `cascade`; see `light_attention.layer_offsets`."""
    kernel_size: int = 3
    """Positions that each dilation sees, dilated attention."""
    dilation_base: int = 2
    """The dilation of layer l, from 0, is dilation_base^l."""
    first_window: int = 4
    """Positions that the first layer sees, itself included, cascade attention."""
    window_multiplier: int = 2
    """The window of layer l, from 0, is first_window * window_multiplier^l."""
    positions: str = "sinusoid"
    """As in all models; `gluon`: the authors' code, whose columns do not pair up; or `learnt`: a
    table of `max_positions` rows."""
    max_positions: int = 0
    """Positions of a `learnt` table, which bounds prompt and output together; 0 for all others,
    whose length is open."""
    rotary_base: float = 10000.0
    """Of `rotary` positions: the last features of a head turn once in 2 pi times this many
    positions, nearly."""
    rotary_scaling: str = "none"
    """How much slower rotary positions turn for longer texts than training had: `linear`, all by
    `rotary_factor`; `llama3`, those that turn at most `rotary_low_factor` times in
    `rotary_trained_length` positions, and others in part, up to `rotary_high_factor` times."""
    rotary_factor: float = 1.0
    rotary_low_factor: float = 1.0
    rotary_high_factor: float = 4.0
    rotary_trained_length: int = 8192
    num_kv_heads: int = 0
    """Heads of keys and values, each of which as many heads of queries share (grouped-query
    attention; Ainslie et al. 2023); 0 is `num_heads`, each its own."""
    attention_bias: bool = True
    """Biases in the projections of attention; the authors have none."""
    ffn_bias: bool = True
    """Biases in the feed-forward."""
    tie_embeddings: bool = True
    """One matrix for the embedding and the output."""
    output_bias: bool = False
    """A bias beside the output matrix; the authors have one."""
    output_dropout: float = 0.0
    """On the states that the output matrix multiplies."""
    dropout_layers: str = "all"
    """`all`, or `reference`: the last layer drops nothing, as in the authors' code."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_encoder_layers:
            raise ConfigError(
                "num_encoder_layers of a language model must be 0, got "
                f"{self.num_encoder_layers}; its depth is num_decoder_layers"
            )
        for name in ("kernel_size", "dilation_base", "first_window", "window_multiplier"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.positions == "relative" and self.attention != "full":
            raise ConfigError(
                "positions: relative needs attention: full, as sparse attention has no place for "
                f"its vectors, got attention: {self.attention}; use positions: rotary"
            )
        if not 0.0 <= self.output_dropout < 1.0:
            raise ConfigError(f"output_dropout must be in [0, 1), got {self.output_dropout}")
        self._check_positions()
        self._check_matrices()

    def _check_positions(self) -> None:
        """Raise ConfigError for sizes of positions that are not there."""
        self._check_table(self.max_positions)
        if not self.rotary_base > 1.0:
            raise ConfigError(f"rotary_base must be > 1, got {self.rotary_base}")
        if self.rotary_scaling == "none":
            return
        if self.positions != "rotary":
            raise ConfigError(
                f"rotary_scaling: {self.rotary_scaling} is of positions: rotary, got positions: "
                f"{self.positions}; set rotary_scaling: none"
            )
        if not self.rotary_factor >= 1.0:
            raise ConfigError(f"rotary_factor must be >= 1, got {self.rotary_factor}")
        if not 0.0 < self.rotary_low_factor < self.rotary_high_factor:
            raise ConfigError(
                "rotary_low_factor must be > 0 and less than rotary_high_factor, got "
                f"{self.rotary_low_factor} and {self.rotary_high_factor}"
            )
        if self.rotary_trained_length < 1:
            raise ConfigError(
                f"rotary_trained_length must be >= 1, got {self.rotary_trained_length}"
            )

    def _check_matrices(self) -> None:
        """Raise ConfigError for matrices that do not fit one another."""
        if self.num_kv_heads < 0 or self.num_heads % self.kv_heads:
            raise ConfigError(
                f"num_kv_heads must be 0 or divide num_heads = {self.num_heads}, got "
                f"{self.num_kv_heads}"
            )
        if self.kv_heads != self.num_heads and self.positions == "relative":
            raise ConfigError(
                "positions: relative has no place for grouped queries, got num_kv_heads: "
                f"{self.num_kv_heads}; use positions: rotary"
            )
        self._check_fix_norm(self.tie_embeddings)

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.num_kv_heads or self.num_heads

    @property
    def family(self) -> str:
        return "lm"
