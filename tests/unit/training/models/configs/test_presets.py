"""Presets: the sizes of the papers' runs, and families of one size against their baseline."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.training.models.sample_networks import parameters
from training.models import PRESETS, JointConfig, TransformerConfig, build_model
from training.models.configs.language_model import ATTENTIONS


@pytest.mark.parametrize("size", ["tiny", "small", "iwslt_small", "base", "big"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_macaron_has_its_baselines_parameters_plus_a_norm_and_a_bias_a_layer(
    size: str, norm: str
) -> None:
    baseline = replace(PRESETS[f"transformer_{size}"], norm=norm)
    macaron = replace(PRESETS[f"macaron_{size}"], norm=norm)
    layers = baseline.num_encoder_layers + baseline.num_decoder_layers
    extra = layers * 3 * baseline.model_dim  # gain and bias of the norm, bias of the output
    assert parameters(macaron) == parameters(baseline) + extra


def test_presets_have_the_published_sizes() -> None:
    # reference: 6 layers, 512 / 1024 wide, embeddings shared; Vaswani et al. 2017, table 3
    assert parameters(PRESETS["transformer_base"]) == pytest.approx(61e6, rel=0.02)
    assert parameters(PRESETS["transformer_big"]) == pytest.approx(210e6, rel=0.02)
    assert parameters(PRESETS["macaron_small"]) == 7_583_232
    assert PRESETS["macaron_iwslt_small"].ffn_dim == 512
    assert PRESETS["transformer_iwslt_small"].dropout == 0.3
    presets = {name: config for name, config in PRESETS.items() if config.family != "bert"}
    assert {config.norm for config in presets.values()} == {"pre"}


@pytest.mark.parametrize(
    "size", ["tiny", "small", "small_6_2", "small_12_1", "iwslt_small", "base", "big"]
)
@pytest.mark.parametrize(
    "family",
    ["macaron", "attention_ffn_attention", "two_hidden", "weighted", "universal", "relative"],
)
def test_all_families_of_a_size_have_the_parameters_of_the_baseline(family: str, size: str) -> None:
    config, baseline = PRESETS[f"{family}_{size}"], PRESETS[f"transformer_{size}"]
    assert isinstance(config, TransformerConfig)
    assert isinstance(baseline, TransformerConfig)
    close = {"universal": 0.035, "relative": 0.01}.get(family, 0.005)
    assert parameters(config) == pytest.approx(parameters(baseline), rel=close)


@pytest.mark.parametrize(
    ("preset", "millions"),
    [
        ("transformer_base", 65),
        ("transformer_big", 213),
        ("macaron_base", 65),
        ("macaron_big", 213),
        ("weighted_base", 65),
        ("weighted_big", 213),
        ("universal_base", 65),
        ("relative_base", 65),
        ("relative_big", 213),
    ],
)
def test_parameters_are_those_that_the_papers_tell(preset: str, millions: float) -> None:
    """With the vocabulary of 37,000 pieces; the tables round to a million or more."""
    config = replace(PRESETS[preset], vocab_size=37000)
    assert isinstance(config, TransformerConfig)
    assert parameters(config) / 1e6 == pytest.approx(millions, rel=0.04)


@pytest.mark.parametrize("depth", [8, 10])
def test_deeper_baselines_are_the_baseline_but_for_their_depth(depth: int) -> None:
    """The paper's 284 and 355 million for 8 and 10 layers count the embedding once a layer."""
    big = PRESETS["transformer_big"]
    deeper = PRESETS[f"transformer_big_{depth}_{depth}"]
    assert deeper == replace(big, num_encoder_layers=depth, num_decoder_layers=depth)
    assert isinstance(big, TransformerConfig)
    assert isinstance(deeper, TransformerConfig)
    embedding = 1024 * 32768
    layers = (parameters(big) - embedding) / 6
    assert parameters(deeper) == pytest.approx(embedding + depth * layers, rel=1e-4)
    published = {8: 284e6, 10: 355e6}[depth]
    assert 213e6 / 6 * depth == pytest.approx(published, rel=1e-3)


# Convolutions


@pytest.mark.parametrize("mixing", ["light_conv", "dynamic_conv"])
@pytest.mark.parametrize("size", ["tiny", "small", "small_6_2", "small_12_1", "base", "big"])
def test_convolutional_presets_are_as_large_as_the_baseline(size: str, mixing: str) -> None:
    family = mixing.replace("_", "")
    config, baseline = PRESETS[f"{family}_{size}"], PRESETS[f"transformer_{size}"]
    assert isinstance(config, TransformerConfig)
    assert isinstance(baseline, TransformerConfig)
    assert (config.encoder_mixing, config.decoder_mixing) == (mixing, mixing)
    assert parameters(config) == pytest.approx(parameters(baseline), rel=0.03)


def test_the_published_convolutional_preset_has_the_papers_layers() -> None:
    config = PRESETS["dynamicconv_iwslt_small"]
    assert isinstance(config, TransformerConfig)
    assert (config.num_encoder_layers, config.num_decoder_layers, config.conv_glu) == (7, 6, False)
    assert config.kernel_sizes("encoder") == (3, 7, 15, 31, 31, 31, 31)
    assert config.kernel_sizes("decoder") == (3, 7, 15, 31, 31, 31)
    widths = [layer.self_attention.width for layer in build_model(config).decoder]  # type: ignore[union-attr]
    assert widths == list(config.kernel_sizes("decoder"))


# Joint models


@pytest.mark.parametrize(
    ("preset", "millions"),
    [
        ("joint_base_iwslt", 16.8),
        ("joint_fast_iwslt", 17.6),
        ("joint_fast_iwslt_scaled", 27.8),
    ],
)
def test_joint_presets_have_the_published_sizes(preset: str, millions: float) -> None:
    # Source and target have vocabularies of their own in the paper (8848 and 6632 pieces).
    config = PRESETS[preset]
    layers = parameters(config) - 3 * config.vocab_size * 256
    assert layers + (8848 + 2 * 6632) * 256 == pytest.approx(millions * 1e6, abs=0.05e6)


@pytest.mark.parametrize("preset", ["joint_fast_tiny", "joint_base_tiny"])
def test_tiny_joint_presets_are_as_large_as_the_tiny_transformer(preset: str) -> None:
    transformer = parameters(PRESETS["transformer_tiny"])
    assert parameters(PRESETS[preset]) == pytest.approx(transformer, rel=0.01)


@pytest.mark.parametrize(
    ("preset", "values"),
    [
        # Section 3.5: PreNet and joint layers, width, inner width, heads, dropouts.
        ("joint_base_iwslt", (0, 7, 256, 1024, 4, 0.3, 0.0, 0.0)),
        ("joint_fast_iwslt", (5, 5, 256, 1024, 4, 0.3, 0.0, 0.0)),
        ("joint_fast_iwslt_scaled", (7, 7, 256, 1536, 4, 0.3, 0.0, 0.0)),
        ("joint_base_nist", (0, 7, 512, 2048, 8, 0.1, 0.1, 0.1)),
        ("joint_fast_nist", (5, 5, 512, 2048, 8, 0.1, 0.1, 0.1)),
        ("joint_fast_nist_scaled", (7, 7, 512, 3072, 8, 0.2, 0.1, 0.1)),
    ],
)
def test_joint_presets_are_the_authors_runs(preset: str, values: tuple[float, ...]) -> None:
    config = PRESETS[preset]
    assert isinstance(config, JointConfig)
    assert (config.norm, config.embedding_scale, config.joint_dropout) == ("pre", "token", "shared")
    assert not config.tie_embeddings
    found = (
        config.num_encoder_layers,
        config.num_decoder_layers,
        config.model_dim,
        config.ffn_dim,
        config.num_heads,
        config.dropout,
        config.attention_dropout,
        config.activation_dropout,
    )
    assert found == values


# Language models


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_language_presets_have_the_parameters_of_the_authors_code(kind: str) -> None:
    """The mask changes no weight: what differs between the paper's rows is not to be found."""
    wikitext2 = PRESETS[f"lm_wikitext2_{kind}"]
    assert parameters(replace(wikitext2, norm="none")) == 15_757_998
    assert parameters(replace(wikitext2, norm="none", vocab_size=10_000)) == 8_285_760
    assert parameters(replace(wikitext2, norm="post", vocab_size=10_000)) == 8_285_760 + 4_480


def test_the_small_language_model_fits_ten_megabytes_in_int8() -> None:
    assert parameters(PRESETS["lm_small"]) < 6.8e6


# Encoders


@pytest.mark.parametrize("size", ["tiny", "small", "base", "base_released"])
def test_a_macaron_encoder_has_its_baselines_parameters_plus_a_bias_and_a_norm_a_layer(
    size: str,
) -> None:
    baseline, macaron = PRESETS[f"bert_{size}"], PRESETS[f"macaron_bert_{size}"]
    vectors = 3 if baseline.norm_affine else 1  # of the norm a gain and a bias, where it has them
    extra = baseline.num_encoder_layers * vectors * baseline.model_dim
    assert parameters(macaron) == parameters(baseline) + extra


def test_bert_base_has_the_published_size() -> None:
    # `transformers` counts 110,106,428 with its second logit of NSP, which is one of 769 numbers
    assert parameters(PRESETS["bert_base"]) == 110_106_428 - 769
