"""T5Gemma of Hugging Face `transformers` (Zhang et al. 2025, "Encoder-Decoder Gemma"): layers of
Gemma 2 on both sides, and an attention to the source."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as FastTokenizer
from torch import Tensor

from export.errors import ExportError
from export.importing.folder import Options, Weights, read_json, read_weights
from export.importing.layers import State
from export.importing.model import (
    HARMLESS,
    FastTokenizerFile,
    Imported,
    LanguageChoice,
    find_file,
    generation_options,
    loaded,
    read_cap,
    read_options,
    search_options,
)
from export.importing.vocabularies.byte_pairs import read_tokenizer_file
from export.importing.vocabularies.text_side import TOKENIZER
from serving.bundle.languages import Languages
from serving.search.ids import SpecialIds
from training.errors import ConfigError
from training.models import TransformerConfig

_SIDES = ("encoder", "decoder")
_ACTIVATION = "gelu_pytorch_tanh"
_EMBEDDINGS = {side: f"model.{side}.embed_tokens.weight" for side in _SIDES}
_OUTPUT = "lm_head.out_proj.weight"
_LEAST_WINDOW = 4096
"""A window that is as wide as a text may be hides nothing."""
_BEGIN = "<bos>"
_OF_ENCODER = {
    "encoder_dim": "model_dim",
    "encoder_heads": "num_heads",
    "encoder_ffn_dim": "ffn_dim",
}
"""Sizes of an encoder that may differ from the decoder's, and the decoder's field for each."""
_HARMLESS = HARMLESS | {
    "cache_implementation",
    "classifier_dropout_rate",
    "cross_attention_hidden_size",  # that of the encoder
    "dropout_rate",
    "initializer_range",
    "is_decoder",
    "layer_types",  # windows hide nothing
    "max_position_embeddings",
}
_IDS = frozenset({"bos_token_id", "eos_token_id", "pad_token_id"})
"""Options that are ignored here: the special ids are those of the decoder's options."""


def read_t5gemma(folder: Path, choice: LanguageChoice) -> Imported:
    """Read a folder of a T5Gemma; raises ExportError, with file and entry, if something is not
    supported. Without a choice it reads and writes English."""
    options, generation = read_options(folder), generation_options(folder)
    weights = read_weights(folder)
    sides = {side: Options(options.path, options.need(side, dict)) for side in _SIDES}
    read = {side: _read_side(own, side) for side, own in sides.items()}
    sizes = read["decoder"][0]
    if read["encoder"][0] != sizes:
        raise ExportError(
            f"{options.path}: encoder and decoder must have equal {', '.join(sizes)}, got "
            f"{_differing(read['encoder'][0], sizes)}"
        )
    ids = _special_ids(sides["decoder"], sizes["vocab_size"])
    options.must("is_encoder_decoder", True, default=True)
    options.must("vocab_size", sizes["vocab_size"], default=sizes["vocab_size"])
    config = _config(options, sizes, read, weights)
    content, begins, ends = _read_tokenizer(folder)
    search = search_options(generation)
    options.finish(_HARMLESS | _IDS)
    for own in sides.values():
        own.finish(_HARMLESS | _IDS)
    return Imported(
        "T5Gemma of Hugging Face transformers",
        loaded(config, _state(weights, config, {side: read[side][1] for side in _SIDES})),
        FastTokenizerFile(content),
        replace(ids, unk=_unknown(folder, content)),
        _languages(choice, begins=begins),
        search,
        source_end=ends,
    )


def _read_side(options: Options, side: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sizes that both sides must share, and those that each side has of its own: sizes, layers,
    heads of keys and values, and the number whose root divides scores."""
    options.must("model_type", "t5_gemma_module", "gemma2", default="t5_gemma_module")
    options.must("hidden_activation", _ACTIVATION, default=_ACTIVATION)
    options.must("attention_bias", False, default=False)
    options.must("tie_word_embeddings", True, default=True)
    window = options.integer_or_none("sliding_window", _LEAST_WINDOW)
    if window is not None and window < _LEAST_WINDOW:
        raise ExportError(
            f"{options.path}: sliding_window of the {side} must be at least {_LEAST_WINDOW}, got "
            f"{window!r}"
        )
    base = options.get("rope_theta", 10000.0)
    for name in ("rope_scaling", "rope_parameters"):
        rotary = options.get(name) or {}
        if not isinstance(rotary, dict):
            raise ExportError(f"{options.path}: {name} must be a JSON object, got {rotary!r}")
        base = rotary.get("rope_theta", base)
        if rotary.get("rope_type", "default") != "default" or base != 10000.0:
            raise ExportError(
                f"{options.path}: rotary positions of the {side} must be of the type 'default' "
                f"with a base of 10000, got {rotary!r} and {base!r}"
            )
    sizes = {
        "head_dim": options.integer("head_dim", 256),
        "vocab_size": options.integer("vocab_size"),
        "norm_eps": options.number("rms_norm_eps", 1e-6),
        "attention_soft_cap": read_cap(options, "attn_logit_softcapping", 50.0),
    }
    own = {
        "model_dim": options.integer("hidden_size"),
        "num_heads": options.integer("num_attention_heads"),
        "ffn_dim": options.integer("intermediate_size"),
        "layers": options.integer("num_hidden_layers"),
        "kv_heads": options.integer("num_key_value_heads", 4),
        "scalar": options.number("query_pre_attn_scalar", 256.0, above=0.0),
        # The encoder's value has no effect.
        "logit_soft_cap": read_cap(options, "final_logit_softcapping", 30.0),
    }
    kv_heads = own["kv_heads"]
    if kv_heads < 1 or own["num_heads"] % kv_heads:
        raise ExportError(
            f"{options.path}: num_key_value_heads of the {side} must divide "
            f"{own['num_heads']}, got {kv_heads!r}"
        )
    return sizes, own


def _differing(encoder: dict[str, Any], decoder: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value} and {decoder[name]}"
        for name, value in encoder.items()
        if value != decoder[name]
    )


def _config(
    options: Options,
    sizes: dict[str, Any],
    read: dict[str, tuple[dict[str, Any], dict[str, Any]]],
    weights: Weights,
) -> TransformerConfig:
    encoder, decoder = (read[side][1] for side in _SIDES)
    tied = options.flag("tie_word_embeddings", True)
    shared = weights.same(_EMBEDDINGS["encoder"], _EMBEDDINGS["decoder"])
    try:
        return TransformerConfig(
            **sizes,
            **{name: decoder[name] for name in _OF_ENCODER.values()},
            **{
                name: encoder[other]
                for name, other in _OF_ENCODER.items()
                if encoder[other] != decoder[other]
            },
            num_encoder_layers=encoder["layers"],
            num_decoder_layers=decoder["layers"],
            source_vocab_size=0 if shared else sizes["vocab_size"],
            logit_soft_cap=decoder["logit_soft_cap"],
            activation="geglu_tanh",
            positions="rotary",
            norm="sandwich",
            norm_type="rms",
            embedding_scale="token",
            attention_bias=False,
            ffn_bias=False,
            tie_embeddings=tied,
        )
    except ConfigError as error:
        raise ExportError(f"{options.path}: {error}") from error


def _special_ids(options: Options, size: int) -> SpecialIds:
    """The decoder's special ids; raises ExportError for several end tokens. Models for chats have
    several, and nothing here puts the turns of a chat around a source."""
    found = {"pad": options.get("pad_token_id", 0), "bos": options.get("bos_token_id", 2),
             "eos": options.get("eos_token_id", 1)}  # fmt: skip
    for name, value in found.items():
        chats = "; models for chats (-it) are not read, take the one without -it"
        hint = chats if isinstance(value, list) else ""
        if type(value) is not int or not 0 <= value < size:
            raise ExportError(
                f"{options.path}: {name}_token_id of the decoder must be one id in "
                f"[0, {size - 1}], got {value!r}{hint}"
            )
    return SpecialIds(**found)


def _read_tokenizer(folder: Path) -> tuple[bytes, bool, bool]:
    """The vocabulary, and whether sources begin with bos and end with eos."""
    path = find_file(folder, TOKENIZER, "the pieces")
    tokenizer_config = folder / "tokenizer_config.json"
    options = read_json(tokenizer_config) if tokenizer_config.is_file() else {}
    content = read_tokenizer_file(path)
    begins, ends = options.get("add_bos_token", True), options.get("add_eos_token", False)
    return content, bool(begins), bool(ends)


def _unknown(folder: Path, content: bytes) -> int:
    unknown = FastTokenizer.from_str(content.decode()).token_to_id("<unk>")
    if unknown is None:
        raise ExportError(f"{folder / TOKENIZER}: the piece <unk> is missing")
    return int(unknown)


def _languages(choice: LanguageChoice, *, begins: bool) -> Languages:
    source, target = choice.source or ("en",), choice.target or ("en",)
    if not begins:
        return Languages(source=source, target=target)
    prefixes: dict[str, tuple[str, ...]] = dict.fromkeys(target, (_BEGIN,))
    chosen = tuple(product(source, target))
    pairs = tuple(pair for pair in chosen if pair[0] != pair[1]) or chosen
    return Languages(source=source, target=target, pairs=pairs, prefixes=prefixes)


def _state(weights: Weights, config: TransformerConfig, own: dict[str, dict[str, Any]]) -> State:
    shape = (config.vocab_size, config.model_dim)
    state: State = {}
    if config.source_vocab_size:
        state["source_embedding.weight"] = weights.take(
            _EMBEDDINGS["encoder"], config.source_vocab_size, config.source_width
        )
    else:
        weights.drop(_EMBEDDINGS["encoder"])
    if config.tie_embeddings:
        state["embedding.weight"] = weights.take_one((_EMBEDDINGS["decoder"], _OUTPUT), *shape)
    else:
        state["embedding.weight"] = weights.take(_EMBEDDINGS["decoder"], *shape)
        state["output_matrix"] = weights.take(_OUTPUT, *shape)
    for side in _SIDES:
        layers = _Layers(weights, config, side, own)
        for number in range(getattr(config, f"num_{side}_layers")):
            state |= layers.read(number)
        gain = weights.take(f"model.{side}.norm.weight", own[side]["model_dim"])
        state[f"{side}_norm.weight"] = 1.0 + gain
    weights.finish()
    return state


class _Layers:
    """The layers of one side. Heads of keys and values that several heads of queries share are
    repeated, and gains are stored less one."""

    def __init__(
        self,
        weights: Weights,
        config: TransformerConfig,
        side: str,
        own: dict[str, dict[str, Any]],
    ) -> None:
        self._weights, self._side, self._source_dim = weights, side, config.source_width
        self._config = config.of_encoder() if side == "encoder" else config
        self._kv_heads = own[side]["kv_heads"]
        self._factor = math.sqrt(config.head_width / own[side]["scalar"])

    def read(self, number: int) -> State:
        """The state of one layer."""
        there, here = f"model.{self._side}.layers.{number}", f"{self._side}.{number}"
        dim, wide = self._config.model_dim, self._config.ffn_dim
        query, key, value, out = self._attention(f"{there}.self_attn", dim)
        state = {
            f"{here}.self_attention.in_proj.weight": torch.cat([query, key, value]),
            f"{here}.self_attention.out_proj.weight": out,
        }
        norms = {"self_attention": "self_attn", "ffn": "feedforward"}
        if self._side == "decoder":
            query, key, value, out = self._attention(f"{there}.cross_attn", self._source_dim)
            state[f"{here}.source_attention.query_proj.weight"] = query
            state[f"{here}.source_attention.key_value_proj.weight"] = torch.cat([key, value])
            state[f"{here}.source_attention.out_proj.weight"] = out
            norms["source_attention"] = "cross_attn"
        take = self._weights.take
        state[f"{here}.ffn.up_proj.weight"] = torch.cat(
            [take(f"{there}.mlp.{part}_proj.weight", wide, dim) for part in ("gate", "up")]
        )
        state[f"{here}.ffn.down_proj.weight"] = take(f"{there}.mlp.down_proj.weight", dim, wide)
        for ours, theirs in norms.items():
            for norm, place in (("norm", "pre"), ("output_norm", "post")):
                gain = take(f"{there}.{place}_{theirs}_layernorm.weight", dim)
                state[f"{here}.{ours}_residual.{norm}.weight"] = 1.0 + gain
        return state

    def _attention(self, name: str, source_dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries, keys and values, each for all heads of queries, and the output. Keys and values
        are of a state of `source_dim` features."""
        config, take = self._config, self._weights.take
        dim, width, heads = config.model_dim, config.head_width, config.num_heads
        query = take(f"{name}.q_proj.weight", heads * width, dim) * self._factor
        key, value = (
            take(f"{name}.{part}_proj.weight", self._kv_heads * width, source_dim)
            .reshape(self._kv_heads, width, source_dim)
            .repeat_interleave(heads // self._kv_heads, 0)
            .reshape(heads * width, source_dim)
            for part in "kv"
        )
        return query, key, value, take(f"{name}.o_proj.weight", dim, heads * width)
