"""Conversion of the same weights for CTranslate2. The other rival is
`bench.systems.pytorch.eager`."""

from __future__ import annotations

from collections.abc import Sequence
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
BOS, EOS, UNK = "<s>", "</s>", "<unk>"
"""CTranslate2's names of the special pieces, which are those of SentencePiece."""


def check_convertible(config: TransformerConfig) -> None:
    """Raise BenchError for an architecture or an option that CTranslate2 does not support."""
    for name, known in _KNOWN.items():
        if getattr(config, name) not in known:
            raise BenchError(
                f"{name} must be {' or '.join(map(repr, known))} for the comparison with "
                f"CTranslate2, got {getattr(config, name)!r}; give a run of the baseline "
                "Transformer or of a joint model"
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
    import ctranslate2

    config = model.config
    check_convertible(config)
    spec = ctranslate2.specs.TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        with_relative_position=config.positions == "relative",
        pre_norm=config.norm == "pre",
        rms_norm=config.norm_type == "rms",
        activation=activation_of(config.activation),
        ffn_glu=config.activation.endswith("glu"),
        alignment_layer=model.alignment_layer,
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
    for layer_spec, layer in zip(spec.encoder.layer, model.encoder, strict=True):
        set_self_attention(layer_spec.self_attention, layer)
        set_ffn(layer_spec.ffn, layer)
    for layer_spec, layer in zip(spec.decoder.layer, model.decoder, strict=True):
        set_self_attention(layer_spec.self_attention, layer)
        source: Any = layer.source_attention
        set_norm(layer_spec.attention.layer_norm, layer.source_attention_residual.norm)
        linears = (source.query_proj, source.key_value_proj, source.out_proj)
        for linear_spec, linear in zip(layer_spec.attention.linear, linears, strict=True):
            set_linear(linear_spec, linear)
        set_ffn(layer_spec.ffn, layer)
    spec.register_source_vocabulary(list(vocabulary))
    spec.register_target_vocabulary(list(vocabulary))
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = BOS, EOS, UNK
    spec.config.decoder_start_token = BOS
    spec.config.add_attribute("layer_norm_epsilon", config.norm_eps)
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir(parents=True)
    spec.save(str(folder))
    if shortlist is not None:
        text = vocabulary_map(shortlist, vocabulary)
        (folder / VOCABULARY_MAP).write_text(text, encoding="utf-8")


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
    """Set the norm and the products of a layer's feed-forward."""
    set_norm(spec.layer_norm, layer.ffn_residual.norm)
    set_linear(spec.linear_0, layer.ffn.up_proj)
    if layer.ffn.is_gated:  # the rows of the gate come first
        up = spec.linear_0
        up.weight, weight = np.split(up.weight, 2)
        up.bias, bias = np.split(up.bias, 2)
        spec.linear_0_noact.weight, spec.linear_0_noact.bias = weight, bias
    set_linear(spec.linear_1, layer.ffn.down_proj)


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
