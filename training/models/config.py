"""Model configurations and their presets.

Macaron halves the inner size of each of its two feed-forwards, so a Macaron preset and its baseline
have equal parameter counts up to one norm and one bias a layer (Lu et al. 2019, section 4.1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from training.errors import ConfigError

ATTENTIONS = ("full", "dilated", "dilated_memory", "cascade")
"""What the layers of a language model see; see `light_attention.layer_offsets`."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ABC):
    """What the configurations of all architectures have in common."""

    least_encoder_layers: ClassVar[int] = 1
    least_decoder_layers: ClassVar[int] = 1
    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "norm": ("pre", "post"),
        "norm_type": ("layer", "rms", "scale"),
        "activation": ("relu", "gelu", "silu", "reglu", "geglu", "swiglu"),
        "attention_init": ("xavier", "small"),
        "embedding_scale": ("token", "sum", "none"),
    }
    """What the fields may be that choose by a name."""
    decoding_budget: ClassVar[int] = 8192
    """Beams x `batch_cost` of a batch that is decoded: a few hundred short sentences."""

    architecture: str
    """Which kind of model it is: a key of `ARCHITECTURES`."""
    model_dim: int = 256
    num_heads: int = 4
    ffn_dim: int = 1024
    """Inner size of one feed-forward; layers of Macaron and joint models have two."""
    activation: str = "relu"
    """Of the feed-forward: `relu`, `gelu`, `silu`, or gated `reglu`, `geglu`, `swiglu`, which have
    three matrices of `ffn_dim` each: two thirds of it keep the number of parameters."""
    num_encoder_layers: int = 3
    num_decoder_layers: int = 3
    vocab_size: int = 8000
    """Pieces of the vocabulary that source and target share."""
    norm: str = "pre"
    """`pre`: normalise each sublayer's input, and once at the end; `post`: after each residual."""
    norm_type: str = "layer"
    """`layer`: LayerNorm; `rms`: RMSNorm (Zhang and Sennrich 2019); `scale`: ScaleNorm (Nguyen and
    Salazar 2019)."""
    norm_eps: float = 1e-5
    """Added to the variance, with `rms` to the mean square; with `scale` the least length."""
    embedding_scale: str = "token"
    """What sqrt(model_dim) multiplies: the vector of a `token`, its `sum` with the position, or
    `none` of them."""
    fix_norm: bool = False
    """Vectors of unit length in the embedding and the output matrix, which must be one (FixNorm;
    Nguyen and Salazar 2019)."""
    fix_norm_scale: bool = False
    """A learnt factor of the logits beside `fix_norm`."""
    attention_init: str = "xavier"
    """`xavier`: uniform, as in fairseq; `small`: N(0, sqrt(2 / (5 model_dim))) (SmallInit; Nguyen
    and Salazar 2019)."""
    dropout: float = 0.1
    """After embeddings and each sublayer."""
    attention_dropout: float = 0.0
    """On attention probabilities, after the softmax."""
    activation_dropout: float = 0.0
    """Inside the feed-forward, after the activation and its gate."""

    def __post_init__(self) -> None:
        if ARCHITECTURES.get(self.architecture) is not type(self):
            raise ConfigError(
                f"architecture must be one of {sorted(ARCHITECTURES)}, got {self.architecture!r}"
            )
        least = dict.fromkeys(("num_heads", "ffn_dim", "vocab_size"), 1) | {
            "num_encoder_layers": self.least_encoder_layers,
            "num_decoder_layers": self.least_decoder_layers,
        }
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ConfigError(f"{name} must be >= {low}, got {getattr(self, name)}")
        # Sinusoids need two frequencies at least.
        if self.model_dim < 4 or self.model_dim % (2 * self.num_heads):
            raise ConfigError(
                f"model_dim must be >= 4 and a multiple of 2 * num_heads = {2 * self.num_heads}, "
                f"got {self.model_dim}"
            )
        for name, allowed in self.choices.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name} of architecture {self.architecture!r} must be one of {allowed}, "
                    f"got {getattr(self, name)!r}"
                )
        if not self.norm_eps > 0.0:
            raise ConfigError(f"norm_eps must be > 0, got {self.norm_eps}")
        if self.fix_norm_scale and not self.fix_norm:
            raise ConfigError(
                "fix_norm_scale needs fix_norm: true, got fix_norm: false; set both or neither"
            )
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"{name} must be in [0, 1), got {getattr(self, name)}")

    @property
    def first_activation(self) -> str:
        """Activation of the first of a Macaron layer's two feed-forwards."""
        return self.activation

    @property
    def norm_affine(self) -> bool:
        """Whether the norms of layers have gains and biases of their own."""
        return True

    @property
    @abstractmethod
    def family(self) -> str:
        """What a bundle's manifest calls models of this kind."""

    def batch_cost(self, source_length: int, target_length: int) -> int:
        """What one row of a padded batch counts in the token budget: its longer side."""
        return max(source_length, target_length)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(ModelConfig):
    """Sizes of an encoder-decoder Transformer with one embedding for source, target and output."""

    architecture: str = "transformer"
    block: str = "standard"
    """`standard`, `macaron`, or `package.module:name` of a pair (encoder layer, decoder layer)."""

    @property
    def family(self) -> str:
        """`macaron` for its block; `transformer` for the standard one and one's own."""
        return "macaron" if self.block == "macaron" else "transformer"


@dataclass(frozen=True, kw_only=True)
class JointConfig(ModelConfig):
    """Sizes of a joint-representation model (Li et al. 2020, "Neural Machine Translation with Joint
    Representation"): Reformer-base without encoder layers, Reformer-fast with them.

    `num_encoder_layers` is the depth of the PreNet, `num_decoder_layers` that of the joint layers.
    The defaults follow the authors' code where it and the paper disagree: the paper has
    `embedding_scale="sum"`.
    """

    least_encoder_layers: ClassVar[int] = 0
    choices: ClassVar[dict[str, tuple[str, ...]]] = ModelConfig.choices | {
        "norm": ("pre",),
        "joint_dropout": ("shared", "ordinary"),
    }
    decoding_budget: ClassVar[int] = 131072

    architecture: str = "joint"
    tie_embeddings: bool = True
    """One embedding for source, target and output; the authors have three."""
    joint_dropout: str = "shared"
    """`shared`: noise of the joint layers is shared along source or target or both (dropout 1d and
    2d, section 3.4 of the paper); `ordinary`: each element has its own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fix_norm and not self.tie_embeddings:
            raise ConfigError(
                "fix_norm needs tie_embeddings: true, since its vectors are those of the output "
                "matrix, got tie_embeddings: false; change one of them"
            )

    @property
    def family(self) -> str:
        return "joint"

    def batch_cost(self, source_length: int, target_length: int) -> int:
        """Cells of one row: a joint model keeps a state for each pair of positions."""
        return source_length * target_length


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig(ModelConfig):
    """Sizes of a decoder-only language model with the attention of Wang et al. 2020, "Transformer
    on a Diet".

    `norm="post"` is the paper's (with a norm after the embedding, as in the authors' code),
    `"none"` what their published commands ran, `"pre"` today's custom. `dropout` is their
    dropout_h.
    """

    least_encoder_layers: ClassVar[int] = 0
    choices: ClassVar[dict[str, tuple[str, ...]]] = ModelConfig.choices | {
        "norm": ("pre", "post", "none"),
        "block": ("standard", "macaron"),
        "attention": ATTENTIONS,
        "positions": ("sinusoid", "gluon"),
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
    """`sinusoid`: as in translation; `gluon`: the authors' code, whose columns do not pair up."""
    attention_bias: bool = True
    """Biases in the projections of attention; the authors have none."""
    output_bias: bool = False
    """A bias beside the output matrix, which is the embedding; the authors have one."""
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
        if not 0.0 <= self.output_dropout < 1.0:
            raise ConfigError(f"output_dropout must be in [0, 1), got {self.output_dropout}")

    @property
    def family(self) -> str:
        return "lm"


@dataclass(frozen=True, kw_only=True)
class BertConfig(ModelConfig):
    """Sizes of a bidirectional encoder (Devlin et al. 2019), standard or Macaron (Lu et al. 2019).

    The defaults are those of BERT, which the Macaron paper names as its setting; the presets
    `*_released` are what the authors' published code ran. Where paper and code disagree there is an
    option: `norm`, `norm_affine`, `positions`, `max_positions`, `embedding_scale`,
    `first_activation`, `attention_init` (with the feed-forward's), `output_bias`, `pooler`.
    """

    least_decoder_layers: ClassVar[int] = 0
    choices: ClassVar[dict[str, tuple[str, ...]]] = ModelConfig.choices | {
        "first_activation": ModelConfig.choices["activation"],
        "attention_init": ("normal", "xavier", "small", "kaiming"),
        "positions": ("learnt", "sinusoid"),
        "pooler": ("tanh", "none"),
    }

    architecture: str = "bert"
    num_decoder_layers: int = 0
    block: str = "standard"
    """`standard`, `macaron`, or `package.module:name` of a pair (encoder layer, decoder layer)."""
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
    """`learnt`: a table of `max_positions` vectors; `sinusoid`: computed."""
    max_positions: int = 512
    """Longest input in ids, special ones included."""
    num_segments: int = 2
    """Kinds of parts that have a vector of their own, which their tokens add; 0 is none."""
    pooler: str = "tanh"
    """`tanh`: a dense layer with tanh between the first token's state and what is told of a whole
    input; `none`: nothing is."""
    output_bias: bool = True
    """A bias beside the output matrix, which is the embedding."""

    def __post_init__(self) -> None:
        super().__post_init__()
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


ARCHITECTURES: dict[str, type[ModelConfig]] = {
    "transformer": TransformerConfig,
    "joint": JointConfig,
    "lm": LanguageModelConfig,
    "bert": BertConfig,
}


_BaselineT = TypeVar("_BaselineT", TransformerConfig, BertConfig)


def _macaron(baseline: _BaselineT) -> _BaselineT:
    return replace(baseline, block="macaron", ffn_dim=baseline.ffn_dim // 2)


_SMALL = TransformerConfig()
_TINY = replace(_SMALL, model_dim=128, ffn_dim=512, vocab_size=4000)
# A step of decoding runs the decoder alone: layers cost less in the encoder (Kasai et al. 2021).
_SMALL_6_2 = replace(_SMALL, num_encoder_layers=6, num_decoder_layers=2)
_SMALL_12_1 = replace(_SMALL, num_encoder_layers=12, num_decoder_layers=1)
_IWSLT_SMALL = TransformerConfig(
    model_dim=512,
    num_heads=4,
    ffn_dim=1024,
    num_encoder_layers=6,
    num_decoder_layers=6,
    vocab_size=10000,
    dropout=0.3,
    attention_dropout=0.1,
    activation_dropout=0.1,
)
_BASE = replace(
    _IWSLT_SMALL, num_heads=8, ffn_dim=2048, vocab_size=32768, dropout=0.1, activation_dropout=0.1
)
_BIG = replace(_BASE, model_dim=1024, num_heads=16, ffn_dim=4096, dropout=0.3)

# As the authors ran them on IWSLT14 German-English and NIST Chinese-English.
_JOINT_BASE = JointConfig(
    model_dim=256,
    num_heads=4,
    ffn_dim=1024,
    num_encoder_layers=0,
    num_decoder_layers=7,
    vocab_size=10000,
    tie_embeddings=False,
    dropout=0.3,
)
_JOINT_FAST = replace(_JOINT_BASE, num_encoder_layers=5, num_decoder_layers=5)
_JOINT_BASE_NIST = replace(
    _JOINT_BASE,
    model_dim=512,
    num_heads=8,
    ffn_dim=2048,
    vocab_size=32000,
    dropout=0.1,
    attention_dropout=0.1,
    activation_dropout=0.1,
)
_JOINT_FAST_NIST = replace(_JOINT_BASE_NIST, num_encoder_layers=5, num_decoder_layers=5)
_JOINT: dict[str, ModelConfig] = {
    "joint_base_iwslt": _JOINT_BASE,
    "joint_fast_iwslt": _JOINT_FAST,
    "joint_fast_iwslt_scaled": replace(
        _JOINT_FAST, ffn_dim=1536, num_encoder_layers=7, num_decoder_layers=7
    ),
    "joint_base_nist": _JOINT_BASE_NIST,
    "joint_fast_nist": _JOINT_FAST_NIST,
    "joint_fast_nist_scaled": replace(
        _JOINT_FAST_NIST, ffn_dim=3072, num_encoder_layers=7, num_decoder_layers=7, dropout=0.2
    ),
    "joint_fast_small": JointConfig(
        model_dim=192, ffn_dim=768, num_encoder_layers=4, num_decoder_layers=4
    ),
    # As many parameters as transformer_tiny, to within a hundredth.
    "joint_fast_tiny": JointConfig(
        model_dim=128, ffn_dim=336, num_encoder_layers=3, num_decoder_layers=3, vocab_size=4000
    ),
    "joint_base_tiny": JointConfig(
        model_dim=128, ffn_dim=416, num_encoder_layers=0, num_decoder_layers=4, vocab_size=4000
    ),
}

# The authors' sizes; their norm, positions and dropout places are overrides of a recipe.
_LM_WIKITEXT2 = LanguageModelConfig(
    model_dim=320,
    num_heads=16,
    ffn_dim=2000,
    num_decoder_layers=3,
    vocab_size=33278,
    dropout=0.25,
    attention_dropout=0.25,
    attention_bias=False,
    output_bias=True,
    output_dropout=0.2,
)
_LM: dict[str, ModelConfig] = {
    **{
        f"lm_wikitext2_{attention}": replace(_LM_WIKITEXT2, attention=attention)
        for attention in ATTENTIONS
    },
    # 6.7 M parameters: with weights of one byte, and the embedding stored as input and as output
    # matrix, below 10 MB. Windows 8, 16, 32, 64.
    "lm_small": LanguageModelConfig(
        attention="cascade",
        first_window=8,
        model_dim=320,
        num_heads=8,
        ffn_dim=960,
        num_decoder_layers=4,
    ),
    "lm_tiny": LanguageModelConfig(
        attention="cascade", model_dim=32, num_heads=2, ffn_dim=64, num_decoder_layers=2
    ),
}

_BERT_BASE = BertConfig(
    model_dim=768, num_heads=12, ffn_dim=3072, num_encoder_layers=12, vocab_size=30522
)
_BERT_SMALL = replace(
    _BERT_BASE, model_dim=256, num_heads=4, ffn_dim=1024, num_encoder_layers=4, vocab_size=8000
)
_BERT_SIZES = {
    "tiny": replace(_BERT_SMALL, model_dim=128, num_heads=2, ffn_dim=512, num_encoder_layers=2),
    "small": _BERT_SMALL,
    "base": _BERT_BASE,
    "base_released": replace(
        _BERT_BASE,
        vocab_size=32768,
        norm="pre",
        norm_eps=1e-5,
        norm_affine=False,
        positions="sinusoid",
        max_positions=384,
        embedding_scale="token",
        first_activation="relu",
        attention_init="kaiming",
        output_bias=False,
        pooler="none",
    ),
}
_BERT: dict[str, ModelConfig] = {
    **{f"bert_{size}": config for size, config in _BERT_SIZES.items()},
    **{f"macaron_bert_{size}": _macaron(config) for size, config in _BERT_SIZES.items()},
}

PRESETS: dict[str, ModelConfig] = (
    {
        f"{family}_{size}": convert(baseline)
        for family, convert in (("transformer", lambda c: c), ("macaron", _macaron))
        for size, baseline in (
            ("tiny", _TINY),
            ("small", _SMALL),
            ("small_6_2", _SMALL_6_2),
            ("small_12_1", _SMALL_12_1),
            ("iwslt_small", _IWSLT_SMALL),
            ("base", _BASE),
            ("big", _BIG),
        )
    }
    | _JOINT
    | _LM
    | _BERT
)
"""`iwslt_small`, `base`, `big`: sizes of the Macaron authors' runs; `joint_*_iwslt`, `_nist`: those
of the joint representation's; `lm_wikitext2_*`: those of "Transformer on a Diet"; `bert_base`: that
of BERT, `bert_base_released` what the Macaron authors ran; the others: small machines, `6_2` and
`12_1` with so many layers in encoder and decoder."""
