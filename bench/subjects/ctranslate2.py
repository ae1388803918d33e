"""Conversion of the same weights for CTranslate2. The other rival is
`bench.systems.pytorch.eager`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from bench.errors import BenchError
from serving.bundle.shortlist import Shortlist
from training.models import Transformer, TransformerConfig

VOCABULARY_MAP = "vmap.txt"
"""The file name under which CTranslate2 looks for it."""
_KNOWN: dict[str, tuple[Any, ...]] = {
    "block": ("standard",),
    "ffn_hidden_layers": (1,),
    "share_layers": (False,),
    "encoder_mixing": ("attention",),
    "decoder_mixing": ("attention",),
    "norm": ("pre", "post"),
    "norm_type": ("layer", "rms"),
    "attention_soft_cap": (0.0,),
    "logit_soft_cap": (0.0,),
    "embedding_scale": ("token",),
    "positions": ("sinusoid", "relative"),
    "fix_norm_scale": (False,),
    "embedding_norm": (False,),
    "output_bias": (False,),
    "head_dim": (0,),
    "attention_bias": (True,),
    "ffn_bias": (True,),
    "tie_embeddings": (True,),
}
"""The values of configuration fields that CTranslate2 supports."""
_KNOWN_MACARON = {
    **_KNOWN,
    "block": ("macaron",),
    "norm": ("pre",),
    "norm_type": ("layer",),
    "positions": ("sinusoid",),
}
"""The values for a Macaron Net, whose layers are made of two that CTranslate2 has. With norms after
the residuals a layer's empty half would change its input."""
BOS, EOS, UNK = "<s>", "</s>", "<unk>"
"""CTranslate2's names of the special pieces, which are those of SentencePiece."""


def check_convertible(config: TransformerConfig) -> None:
    """Raise BenchError for an architecture or an option that CTranslate2 does not support."""
    _check(config, _KNOWN, "the baseline Transformer or of a joint model")


def _check(
    config: TransformerConfig, supported: Mapping[str, tuple[Any, ...]], models: str
) -> None:
    for name, known in supported.items():
        if getattr(config, name) not in known:
            raise BenchError(
                f"{name} must be {' or '.join(map(repr, known))} for the comparison with "
                f"CTranslate2, got {getattr(config, name)!r}; give a run of {models}"
            )


def convert_to_ctranslate2(
    model: Transformer,
    vocabulary: Sequence[str],
    folder: Path,
    quantization: str,
    *,
    shortlist: Shortlist | None = None,
) -> None:
    """Save a baseline model in CTranslate2's format, with weights of type `quantization`.

    `vocabulary` is the written form of each id. int8 weights are saved as int8, so that loading
    them takes no extra memory. A `shortlist` becomes CTranslate2's vocabulary map.
    """
    check_convertible(model.config)
    spec = _new_spec(model, 1)
    for layer_spec, layer in zip(spec.encoder.layer, model.encoder, strict=True):
        set_self_attention(layer_spec.self_attention, layer)
        set_ffn(layer_spec.ffn, layer)
    for layer_spec, layer in zip(spec.decoder.layer, model.decoder, strict=True):
        set_self_attention(layer_spec.self_attention, layer)
        _set_source_attention(layer_spec.attention, layer)
        set_ffn(layer_spec.ffn, layer)
    _save(spec, model.config, vocabulary, folder, quantization)
    if shortlist is not None:
        text = vocabulary_map(shortlist, vocabulary)
        (folder / VOCABULARY_MAP).write_text(text, encoding="utf-8")


def convert_macaron_to_ctranslate2(
    model: Transformer, vocabulary: Sequence[str], folder: Path, quantization: str
) -> None:
    """Save a Macaron Net in CTranslate2's format, with weights of type `quantization`.

    CTranslate2 has no layer with two feed-forwards. Each layer becomes two: one with the first
    feed-forward, whose attentions add nothing because their weights are zero, and one with all the
    rest. The function is the same, but CTranslate2 also computes the attentions that add nothing.
    Raises BenchError for another architecture or an option that CTranslate2 does not support.
    """
    _check(model.config, _KNOWN_MACARON, "a Macaron Net with these options")
    spec = _new_spec(model, 2)
    dim = model.config.model_dim
    for number, layer in enumerate(model.encoder):
        first, second = spec.encoder.layer[2 * number : 2 * number + 2]
        _set_no_attention(first.self_attention, dim)
        _set_feed_forward(first.ffn, layer.first_ffn, layer.first_ffn_residual)
        set_self_attention(second.self_attention, layer)
        _set_feed_forward(second.ffn, layer.ffn, layer.ffn_residual)
    for number, layer in enumerate(model.decoder):
        first, second = spec.decoder.layer[2 * number : 2 * number + 2]
        _set_no_attention(first.self_attention, dim)
        _set_no_attention(first.attention, dim)
        _set_feed_forward(first.ffn, layer.first_ffn, layer.first_ffn_residual)
        set_self_attention(second.self_attention, layer)
        _set_source_attention(second.attention, layer)
        _set_feed_forward(second.ffn, layer.ffn, layer.ffn_residual)
    _save(spec, model.config, vocabulary, folder, quantization)


def _new_spec(model: Transformer, times: int) -> Any:
    """A specification with embeddings and the last norms set, and with `times` as many layers as
    the model; the last of each such group has the layer's attentions."""
    import ctranslate2

    config = model.config
    spec = ctranslate2.specs.TransformerSpec.from_config(
        (times * config.num_encoder_layers, times * config.num_decoder_layers),
        config.num_heads,
        with_relative_position=config.positions == "relative",
        pre_norm=config.norm == "pre",
        rms_norm=config.norm_type == "rms",
        activation=activation_of(config.activation),
        ffn_glu=config.activation.endswith("glu"),
        alignment_layer=times * model.alignment_layer + times - 1,
        alignment_heads=config.num_heads,  # our alignments are the mean over all heads
    )
    embedding = model.source_embedding or model.embedding
    spec.encoder.embeddings[0].weight = array_of(embedding.vectors)
    spec.decoder.embeddings.weight = array_of(model.embedding.vectors)
    spec.decoder.projection.weight = array_of(model.output_weight)
    # `scale_embeddings` is on and `position_encodings` is left out: CTranslate2 then multiplies by
    # sqrt(model_dim) and adds its own sinusoids, those of training/models/sublayers/embedding.py.
    if config.norm == "pre":
        set_norm(spec.encoder.layer_norm, model.encoder_norm)
        set_norm(spec.decoder.layer_norm, model.decoder_norm)
    return spec


def _save(
    spec: Any,
    config: TransformerConfig,
    vocabulary: Sequence[str],
    folder: Path,
    quantization: str,
) -> None:
    """Save a specification whose layers are set, with its vocabulary."""
    spec.register_source_vocabulary(list(vocabulary))
    spec.register_target_vocabulary(list(vocabulary))
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = BOS, EOS, UNK
    spec.config.decoder_start_token = BOS
    spec.config.add_attribute("layer_norm_epsilon", config.norm_eps)
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir(parents=True)
    spec.save(str(folder))


def vocabulary_map(shortlist: Shortlist, vocabulary: Sequence[str]) -> str:
    """A line per source piece, and one without a source for targets that are always allowed."""
    lines = ["\t" + " ".join(vocabulary[piece] for piece in shortlist.of([]))]
    for source, piece in enumerate(vocabulary):
        own = shortlist.own(source)
        if len(own):
            lines.append(f"{piece}\t{' '.join(vocabulary[target] for target in own)}")
    return "\n".join(lines) + "\n"


def set_self_attention(spec: Any, layer: Any) -> None:
    """Set the norm and the projections of a layer's self-attention."""
    set_norm(spec.layer_norm, layer.self_attention_residual.norm)
    set_linear(spec.linear[0], layer.self_attention.in_proj)
    set_linear(spec.linear[1], layer.self_attention.out_proj)
    relative = layer.self_attention.relative
    if relative is not None:
        spec.relative_position_keys = array_of(relative.keys_1RE[0])
        spec.relative_position_values = array_of(relative.values_1RE[0])


def set_ffn(spec: Any, layer: Any) -> None:
    """Set the norm and the products of a layer's only feed-forward."""
    _set_feed_forward(spec, layer.ffn, layer.ffn_residual)


def _set_feed_forward(spec: Any, ffn: Any, residual: Any) -> None:
    """Set the norm and the products of a feed-forward; a scale of its residual, which CTranslate2
    does not have, is multiplied into its output."""
    set_norm(spec.layer_norm, residual.norm)
    set_linear(spec.linear_0, ffn.up_proj)
    if ffn.is_gated:  # the rows of the gate come first
        up = spec.linear_0
        up.weight, weight = np.split(up.weight, 2)
        up.bias, bias = np.split(up.bias, 2)
        spec.linear_0_noact.weight, spec.linear_0_noact.bias = weight, bias
    set_linear(spec.linear_1, ffn.down_proj)
    spec.linear_1.weight *= residual.scale
    spec.linear_1.bias *= residual.scale


def _set_source_attention(spec: Any, layer: Any) -> None:
    """Set the norm and the projections of a decoder layer's attention to the source."""
    source = layer.source_attention
    set_norm(spec.layer_norm, layer.source_attention_residual.norm)
    linears = (source.query_proj, source.key_value_proj, source.out_proj)
    for linear_spec, linear in zip(spec.linear, linears, strict=True):
        set_linear(linear_spec, linear)


def _set_no_attention(spec: Any, dim: int) -> None:
    """Set an attention of width `dim` that adds zero: to itself with two products, to the source
    with three."""
    spec.layer_norm.gamma = np.ones(dim, np.float32)
    spec.layer_norm.beta = np.zeros(dim, np.float32)
    rows = (3 * dim, dim) if len(spec.linear) == 2 else (dim, 2 * dim, dim)
    for linear, count in zip(spec.linear, rows, strict=True):
        linear.weight = np.zeros((count, dim), np.float32)
        linear.bias = np.zeros(count, np.float32)


def activation_of(name: str) -> Any:
    """CTranslate2's name of an activation, plain or of a gate."""
    from ctranslate2.specs.common_spec import Activation

    found = {"relu": Activation.RELU, "gelu": Activation.GELU, "silu": Activation.SWISH}
    found["gelu_tanh"] = Activation.GELUTanh
    found |= {"reglu": found["relu"], "geglu": found["gelu"], "swiglu": found["silu"]}
    found["geglu_tanh"] = found["gelu_tanh"]
    return found[name]


def set_norm(spec: Any, norm: Any) -> None:
    """Set the scale of a norm, and its shift if it has one."""
    spec.gamma = array_of(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = array_of(norm.bias)


def set_linear(spec: Any, linear: nn.Linear) -> None:
    """Set a product and its bias."""
    spec.weight, spec.bias = array_of(linear.weight), array_of(linear.bias)


def array_of(parameter: Tensor) -> NDArray[np.float32]:
    """A copy of its values."""
    return parameter.detach().numpy().copy()
