"""Sizes and options of a decoder-only language model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from training.errors import ConfigError
from training.models.configs.common import ModelConfig

ATTENTIONS = ("full", "dilated", "dilated_memory", "cascade")
"""Attention patterns of the paper's models; see `light_attention.layer_offsets`."""


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig(ModelConfig):
    """Sizes of a decoder-only language model with the attention of Wang et al. 2020, "Transformer
    on a Diet".

    `norm="post"` is the paper's (with a norm after the embedding, as in the authors' code),
    `"none"` is that of their published commands, `"pre"` is common today. `"output"` normalises
    what each sublayer adds (OLMo 2), `"sandwich"` its input too (Gemma 2). `dropout` is their
    dropout_h.
    """

    least_encoder_layers: ClassVar[int] = 0
    choices: ClassVar[dict[str, tuple[str, ...] | tuple[int, ...]]] = ModelConfig.choices | {
        "norm": ("pre", "post", "none", "output", "sandwich"),
        "block": ("standard", "macaron", "parallel"),
        "attention": (*ATTENTIONS, "windows"),
        "positions": ("sinusoid", "gluon", "relative", "rotary", "learnt", "none"),
        "rotary_scaling": ("none", "linear", "llama3", "listed"),
        "query_key_norm": ("none", "head", "width"),
        "dropout_layers": ("all", "reference"),
    }

    architecture: str = "lm"
    num_encoder_layers: int = 0
    block: str = "standard"
    """`standard`; `macaron`: two half feed-forwards around the attention; or `parallel`: attention
    and feed-forward read the same state, and both are added to it (GPT-NeoX)."""
    attention: str = "full"
    """`full`, `dilated`, `dilated_memory`, `cascade` or `windows`; see
    `light_attention.layer_offsets`."""
    kernel_size: int = 3
    """Dilated attention: positions that each dilation sees."""
    dilation_base: int = 2
    """The dilation of layer l, counted from 0, is dilation_base^l."""
    first_window: int = 4
    """Cascade attention: positions that the first layer sees, including its own."""
    window_multiplier: int = 2
    """The window of layer l, counted from 0, is first_window * window_multiplier^l."""
    layer_windows: tuple[int, ...] = ()
    """Windowed attention: positions that each layer sees, including its own; 0 sees all. A shorter
    list is repeated cyclically."""
    head_dim: int = 0
    """Features per attention head; 0 is model_dim / num_heads."""
    query_key_norm: str = "none"
    """A norm of queries and keys before rotation: `head`, over each head (Qwen3), or `width`, over
    all heads together (OLMo 2)."""
    attention_soft_cap: float = 0.0
    """Upper bound of attention scores, cap * tanh(score / cap); 0 turns it off."""
    logit_soft_cap: float = 0.0
    """Likewise for logits."""
    positions: str = "sinusoid"
    """The kinds that all models have, and three more: `gluon`, the sinusoids of the authors' code,
    whose columns do not pair up; `learnt`, a table of `max_positions` rows; `none`, where only
    causal attention shows the order."""
    max_positions: int = 0
    """Rows of a `learnt` table, which limits prompt and output together; 0 for other positions,
    which have no limit."""
    rotary_base: float = 10000.0
    """`rotary` positions: the last features of a head turn once in about 2 pi times this many
    positions."""
    rotary_scaling: str = "none"
    """Slower `rotary` positions, for texts longer than in training. `linear`: all by
    `rotary_factor`. `llama3`: fully for features that turn at most `rotary_low_factor` times in
    `rotary_trained_length` positions, and in part up to `rotary_high_factor` times. `listed`: each
    angle of a head by its own entry of `rotary_factors`."""
    rotary_factor: float = 1.0
    rotary_low_factor: float = 1.0
    rotary_high_factor: float = 4.0
    rotary_trained_length: int = 8192
    rotary_factors: tuple[float, ...] = ()
    rotary_dim: int = 0
    """Number of leading features of a head that are rotated; 0 rotates all."""
    rotary_layers: tuple[int, ...] = ()
    """A pattern of layers that is repeated: 1 for a layer with rotary positions, 0 for one without.
    If it is empty, all layers have them."""
    window_rotary_base: float = 0.0
    """`rotary_base` of layers with a window, which are then not scaled; 0 uses that of the
    others."""
    num_kv_heads: int = 0
    """Number of key and value heads, each shared by several query heads (grouped-query attention;
    Ainslie et al. 2023); 0 is `num_heads`."""
    attention_bias: bool = True
    """Biases in the projections of attention; the authors have none."""
    attention_output_bias: bool = True
    """Only with `attention_bias`: whether the output projection has a bias too."""
    ffn_bias: bool = True
    """Biases in the feed-forward."""
    tie_embeddings: bool = True
    """Share one matrix between embedding and output."""
    output_bias: bool = False
    """A bias of the output layer; the authors have one."""
    output_dropout: float = 0.0
    """Dropout of the states before the output matrix."""
    dropout_layers: str = "all"
    """`all`, or `reference`: none in the last layer, as in the authors' code."""

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
        if self.block == "parallel" and self.norm in ("post", "none"):
            raise ConfigError(
                "block: parallel adds up sublayers of normalised inputs and needs norm: "
                f"pre, output or sandwich, got norm: {self.norm}"
            )
        for name in ("attention_soft_cap", "logit_soft_cap"):
            if not getattr(self, name) >= 0.0:
                raise ConfigError(f"{name} must be >= 0, got {getattr(self, name)}")
        if self.positions == "relative" and (
            self.attention_soft_cap or self.query_key_norm != "none"
        ):
            raise ConfigError(
                "positions: relative does not support attention_soft_cap or query_key_norm, got "
                f"{self.attention_soft_cap} and {self.query_key_norm}; use positions: rotary"
            )
        self._check_windows()
        self._check_positions()
        self._check_rotary()
        self._check_matrices()

    def _check_width(self) -> None:
        if not self.head_dim:
            super()._check_width()
            return
        if self.model_dim < 4 or self.model_dim % 2:
            raise ConfigError(f"model_dim must be >= 4 and even, got {self.model_dim}")
        if self.head_dim < 2 or self.head_dim % 2:
            raise ConfigError(f"head_dim must be 0 or even, got {self.head_dim}")

    def _check_windows(self) -> None:
        """Raise ConfigError for layer windows that do not apply or are out of range."""
        if bool(self.layer_windows) != (self.attention == "windows"):
            raise ConfigError(
                "layer_windows must have a window for each layer, or a cycle of them, for "
                f"attention: windows and none for others, got {list(self.layer_windows)} for "
                f"{self.attention!r}"
            )
        if any(window < 0 for window in self.layer_windows):
            raise ConfigError(f"layer_windows must be >= 0, got {list(self.layer_windows)}")

    def _check_rotary(self) -> None:
        """Raise ConfigError for rotary options that do not apply or do not fit the head."""
        for name in ("rotary_dim", "rotary_layers", "window_rotary_base", "rotary_factors"):
            if getattr(self, name) and self.positions != "rotary":
                raise ConfigError(
                    f"{name} needs positions: rotary, got positions: {self.positions}; leave it out"
                )
        if self.rotary_dim % 2 or not 0 <= self.rotary_dim <= self.head_width:
            raise ConfigError(
                f"rotary_dim must be even and at most the {self.head_width} features of a head, "
                f"got {self.rotary_dim}"
            )
        if not set(self.rotary_layers) <= {0, 1}:
            raise ConfigError(f"rotary_layers must be 0 or 1 each, got {list(self.rotary_layers)}")
        if self.window_rotary_base and not self.window_rotary_base > 1.0:
            raise ConfigError(f"window_rotary_base must be 0 or > 1, got {self.window_rotary_base}")
        listed = self.rotary_scaling == "listed"
        if len(self.rotary_factors) != (self.rotary_width // 2 if listed else 0):
            raise ConfigError(
                f"rotary_factors must be {self.rotary_width // 2} with rotary_scaling: listed and "
                f"none with others, got {len(self.rotary_factors)} with {self.rotary_scaling!r}"
            )
        if not all(factor > 0.0 for factor in self.rotary_factors):
            raise ConfigError(f"rotary_factors must be > 0, got {list(self.rotary_factors)}")

    def _check_positions(self) -> None:
        """Raise ConfigError for position options that do not apply."""
        self._check_table(self.max_positions)
        if not self.rotary_base > 1.0:
            raise ConfigError(f"rotary_base must be > 1, got {self.rotary_base}")
        if self.rotary_scaling == "none":
            return
        if self.positions != "rotary":
            raise ConfigError(
                f"rotary_scaling: {self.rotary_scaling} needs positions: rotary, got positions: "
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
        """Raise ConfigError for sizes that do not fit each other."""
        if self.num_kv_heads < 0 or self.num_heads % self.kv_heads:
            raise ConfigError(
                f"num_kv_heads must be 0 or divide num_heads = {self.num_heads}, got "
                f"{self.num_kv_heads}"
            )
        if self.kv_heads != self.num_heads and self.positions == "relative":
            raise ConfigError(
                "positions: relative does not support grouped queries, got num_kv_heads: "
                f"{self.num_kv_heads}; use positions: rotary"
            )
        self._check_fix_norm(self.tie_embeddings)

    def window_of(self, layer: int) -> int:
        """Positions that a layer sees, by `layer_windows`; 0 sees all."""
        return self.layer_windows[layer % len(self.layer_windows)] if self.layer_windows else 0

    def of_layer(self, layer: int) -> LanguageModelConfig:
        """The configuration of one layer, with its own window and positions."""
        if self.rotary_layers and not self.rotary_layers[layer % len(self.rotary_layers)]:
            return replace(
                self,
                positions="none",
                rotary_scaling="none",
                rotary_dim=0,
                rotary_layers=(),
                rotary_factors=(),
                window_rotary_base=0.0,
            )
        if self.window_rotary_base and self.window_of(layer):
            return replace(
                self,
                rotary_base=self.window_rotary_base,
                rotary_scaling="none",
                rotary_factors=(),
            )
        return self

    @property
    def head_width(self) -> int:
        return self.head_dim or super().head_width

    @property
    def rotary_width(self) -> int:
        """Number of features of a head that are rotated."""
        return self.rotary_dim or self.head_width

    @property
    def kv_heads(self) -> int:
        """Number of key and value heads."""
        return self.num_kv_heads or self.num_heads

    @property
    def family(self) -> str:
        return "lm"
