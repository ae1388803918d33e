"""Presets of model configurations: the sizes of the papers' runs, and small ones.

Macaron halves the inner size of each of its two feed-forwards, so a Macaron preset and its baseline
have equal parameter counts up to one norm and one bias a layer (Lu et al. 2019, section 4.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from training.models.configs.bert import BertConfig
from training.models.configs.common import ModelConfig
from training.models.configs.joint import JointConfig
from training.models.configs.language_model import ATTENTIONS, LanguageModelConfig
from training.models.configs.transformer import TransformerConfig

_BaselineT = TypeVar("_BaselineT", TransformerConfig, BertConfig)


def _convolution(mixing: str) -> Callable[[TransformerConfig], TransformerConfig]:
    """The baseline with convolutions on both sides. With six layers it is the authors' setting: one
    more encoder layer, and no GLU on IWSLT14. With fewer layers, the
    feed-forward gets the quarter of attention's weights that a sublayer with GLU does not have."""

    def convert(baseline: TransformerConfig) -> TransformerConfig:
        changed = replace(baseline, encoder_mixing=mixing, decoder_mixing=mixing)
        if baseline.num_decoder_layers < 6:
            return replace(changed, ffn_dim=baseline.ffn_dim + baseline.model_dim // 2)
        changed = replace(changed, num_encoder_layers=7, kernel_dropout=0.1)
        if baseline is _IWSLT_SMALL:
            return replace(changed, conv_glu=False)
        return replace(changed, conv_input_dropout=0.1)

    return convert


def _macaron(baseline: _BaselineT) -> _BaselineT:
    return replace(baseline, block="macaron", ffn_dim=baseline.ffn_dim // 2)


def _attention_ffn_attention(baseline: TransformerConfig) -> TransformerConfig:
    """The baseline with a second self-attention, whose parameters replace 2 model_dim of the
    feed-forward. If that is all of the feed-forward, one layer less gives model_dim to each of the
    others."""
    ffn_dim = baseline.ffn_dim - 2 * baseline.model_dim
    block = replace(baseline, block="attention_ffn_attention")
    if ffn_dim > 0:
        return replace(block, ffn_dim=ffn_dim)
    depth = baseline.num_encoder_layers - 1
    return replace(
        block, ffn_dim=baseline.model_dim, num_encoder_layers=depth, num_decoder_layers=depth
    )


def _two_hidden(baseline: TransformerConfig) -> TransformerConfig:
    """The baseline with two hidden layers of size F', a multiple of 8, that keep its number of
    weights: 2 D F' + F'^2 is about 2 D F."""
    dim = baseline.model_dim
    ffn_dim = math.sqrt(dim * dim + 2 * dim * baseline.ffn_dim) - dim
    return replace(baseline, ffn_hidden_layers=2, ffn_dim=8 * round(ffn_dim / 8))


def _weighted(baseline: TransformerConfig) -> TransformerConfig:
    return replace(baseline, block="weighted")


def _relative(baseline: TransformerConfig) -> TransformerConfig:
    """The baseline with the authors' largest distances: 16, or 8 for big models."""
    most = 8 if baseline.model_dim >= 1024 else 16
    return replace(baseline, positions="relative", max_relative_distance=most)


def _universal(baseline: TransformerConfig, model_dim: int, num_heads: int) -> TransformerConfig:
    """The baseline with one shared layer on each side, so much wider that it has as many parameters
    as all layers of the baseline."""
    ratio = baseline.ffn_dim // baseline.model_dim
    return replace(
        baseline,
        share_layers=True,
        model_dim=model_dim,
        num_heads=num_heads,
        ffn_dim=ratio * model_dim,
    )


_SMALL = TransformerConfig()
_TINY = replace(_SMALL, model_dim=128, ffn_dim=512, vocab_size=4000)
# A step of decoding runs only the decoder: layers cost less in the encoder (Kasai et al. 2021).
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

_BASELINES = {
    "tiny": _TINY,
    "small": _SMALL,
    "small_6_2": _SMALL_6_2,
    "small_12_1": _SMALL_12_1,
    "iwslt_small": _IWSLT_SMALL,
    "base": _BASE,
    "big": _BIG,
}
_FAMILIES: dict[str, Callable[[TransformerConfig], TransformerConfig]] = {
    "transformer": lambda baseline: baseline,
    "macaron": _macaron,
    "attention_ffn_attention": _attention_ffn_attention,
    "two_hidden": _two_hidden,
    "weighted": _weighted,
    "relative": _relative,
    "lightconv": _convolution("light_conv"),
    "dynamicconv": _convolution("dynamic_conv"),
}
_DEEPER: dict[str, ModelConfig] = {
    f"transformer_{size}_{depth}_{depth}": replace(
        _BASELINES[size], num_encoder_layers=depth, num_decoder_layers=depth
    )
    for size in ("tiny", "small", "iwslt_small", "base", "big")
    for depth in (8, 10)
}
# Width and heads; those of `base` are the authors'.
_UNIVERSAL: dict[str, ModelConfig] = {
    f"universal_{size}": _universal(_BASELINES[size], model_dim, num_heads)
    for size, model_dim, num_heads in (
        ("tiny", 200, 5),
        ("small", 400, 5),
        ("small_6_2", 440, 5),
        ("small_12_1", 544, 4),
        ("iwslt_small", 1120, 10),
        ("base", 1024, 16),
        ("big", 2240, 35),
    )
}

PRESETS: dict[str, ModelConfig] = (
    {
        f"{family}_{size}": convert(baseline)
        for family, convert in _FAMILIES.items()
        for size, baseline in _BASELINES.items()
    }
    | _DEEPER
    | _UNIVERSAL
    | _JOINT
    | _LM
    | _BERT
)
"""Presets by name. `iwslt_small`, `base` and `big` have the sizes of the Macaron authors' runs;
`joint_*_iwslt` and `_nist` those of the joint representation's authors; `lm_wikitext2_*` those of
"Transformer on a Diet"; `bert_base` that of BERT, and `bert_base_released` the size that the
Macaron authors ran. The others are for small machines; `6_2` and `12_1` are the numbers of layers
in encoder and decoder. At one size, all families of translation models have as many parameters as
the baseline, to within a few hundredths, except for the deeper baselines `8_8` and `10_10`."""
