"""Checkpoints of OpenNMT-py 3 (Klein et al. 2017): an encoder-decoder with its vocabulary and its
options in one file.

The names of its parts are those that its converter to CTranslate2 reads.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from export.errors import ExportError
from export.importing.folder import checkpoint_file, integer_of, number_of, read_pickled
from export.importing.model import Imported, LanguageChoice, loaded
from export.importing.toolkits.ctranslate2_file import SpecFile
from export.importing.toolkits.spec_layers import SpecLayers
from export.importing.vocabularies.pair import (
    Written,
    check_special,
    check_tags,
    find_pieces,
    one_pair,
    special_piece_ids,
)
from serving.search.ids import SpecialIds

_PARTS = frozenset({"model", "generator", "vocab", "opt"})
_OLDER = (
    "OpenNMT-py 2 saved its vocabulary as objects: convert the file with tools/convertv2_v3.py of "
    "OpenNMT-py 3"
)
_ACTIVATIONS = {"relu": 0, "silu": 2, "gelu": 3}
_IN_LAYER = re.compile(
    r"(encoder|decoder)\.(?:transformer|transformer_layers)\.(\d+)\.([\w.]+)\.(weight|bias)"
)
_OF_LAYER = {
    "self_attn.linear_query": "self_attention/linear_0",
    "self_attn.linear_keys": "self_attention/linear_0",
    "self_attn.linear_values": "self_attention/linear_0",
    "self_attn.final_linear": "self_attention/linear_1",
    "layer_norm": "self_attention/layer_norm",
    "layer_norm_1": "self_attention/layer_norm",
    "context_attn.linear_query": "attention/linear_0",
    "context_attn.linear_keys": "attention/linear_1",
    "context_attn.linear_values": "attention/linear_1",
    "context_attn.final_linear": "attention/linear_2",
    "layer_norm_2": "attention/layer_norm",
    "feed_forward.w_1": "ffn/linear_0",
    "feed_forward.w_2": "ffn/linear_1",
    "feed_forward.w_3": "ffn/linear_0_noact",
    "feed_forward.layer_norm": "ffn/layer_norm",
}
"""Parts of a layer; parts with the same name there are joined row below row, in this order."""
_DISTANCES = "self_attn.relative_positions_embeddings"
_OUTSIDE = {
    "encoder.embeddings.make_embedding.emb_luts.0": "encoder/embeddings_0",
    "decoder.embeddings.make_embedding.emb_luts.0": "decoder/embeddings",
    "encoder.layer_norm": "encoder/layer_norm",
    "decoder.layer_norm": "decoder/layer_norm",
    "generator": "decoder/projection",
}
_POSITIONS = "embeddings.make_embedding.pe.pe"
_NORM_KINDS = {"weight": "gamma", "bias": "beta"}


def read_opennmt(source: Path, choice: LanguageChoice) -> Imported:
    """Read a checkpoint of OpenNMT-py; raises ExportError, with file and entry, if something is not
    supported."""
    path = checkpoint_file(source)
    checkpoint = _load(path)
    options = vars(checkpoint["opt"])
    _check_options(path, options)
    written = _vocabulary(path, checkpoint["vocab"])
    check_tags(path, written)
    tensors = {**checkpoint["model"]}
    tensors |= {f"generator.{name}": value for name, value in checkpoint["generator"].items()}
    file = SpecFile("", _renamed(tensors), _numbers(path, options, tensors))
    layers = SpecLayers(path, file, number_of(f"{path}: norm_eps", options.get("norm_eps", 1e-6)))
    layers.check_rows(path, written)
    pieces = {
        "pad": "<blank>",
        "unk": "<unk>",
        "bos": options.get("decoder_start_token") or "<s>",
        "eos": "</s>",
    }
    ids = special_piece_ids(path, written.target, pieces)
    special = SpecialIds(**ids)
    check_special(path, written, {pieces[name]: ids[name] for name in ("unk", "eos")})
    silent = sorted(set(pieces.values()) - {pieces["unk"]})
    languages = one_pair(source, choice, {})
    return Imported(
        "a Transformer of OpenNMT-py",
        loaded(layers.config, layers.state),
        find_pieces(path.parent, written, silent, languages),
        special,
        languages,
        {"beam_size": 5, "length_penalty": 1.0, "eos_in_length": True},
        source_end=False,
    )


def _load(path: Path) -> dict[str, Any]:
    """The parts of the file."""
    found = read_pickled(path, _OLDER, allowed=[argparse.Namespace])
    if not isinstance(found, dict) or not found.keys() >= _PARTS:
        raise ExportError(
            f"{path}: not a checkpoint of OpenNMT-py, which has the parts "
            f"{', '.join(sorted(_PARTS))}"
        )
    if not isinstance(found["opt"], argparse.Namespace):
        raise ExportError(f"{path}: opt must hold the options, got {type(found['opt']).__name__}")
    return found


def _check_options(path: Path, options: Mapping[str, Any]) -> None:
    """Raise ExportError for options that change what the model computes and are not supported."""
    for name, supported, usual in (
        ("encoder_type", ("transformer",), "transformer"),
        ("decoder_type", ("transformer",), "transformer"),
        ("self_attn_type", ("scaled-dot", "scaled-dot-flash"), "scaled-dot"),
        ("pos_ffn_activation_fn", tuple(_ACTIVATIONS), "relu"),
        ("layer_norm", ("standard", "rms"), "standard"),
        ("multiquery", (False,), False),
        ("num_kv", (0, options.get("heads", 8)), 0),
        ("parallel_residual", (False,), False),
        ("sliding_window", (0,), 0),
        ("num_experts", (0,), 0),
        ("aan_useffn", (False,), False),
        ("copy_attn", (False,), False),
        ("generator_function", ("softmax",), "softmax"),
    ):
        found = options.get(name, usual)
        if found not in supported:
            listed = " or ".join(map(repr, supported))
            raise ExportError(f"{path}: {name} {found!r} is not supported; it must be {listed}")
    relative = options.get("max_relative_positions", 0)
    if not isinstance(relative, int) or relative < 0:
        raise ExportError(
            f"{path}: max_relative_positions {relative} (rotary, ALiBi) is not supported; it must "
            "be 0 or more"
        )
    if bool(options.get("position_encoding", False)) == (relative > 0):
        raise ExportError(
            f"{path}: one of position_encoding and max_relative_positions must be set, got "
            f"{options.get('position_encoding', False)} and {relative}"
        )


def _vocabulary(path: Path, vocab: Any) -> Written:
    lists: list[list[str]] = []
    for side in ("src", "tgt"):
        found = vocab.get(side) if isinstance(vocab, dict) else None
        if not isinstance(found, list) or not all(isinstance(piece, str) for piece in found):
            raise ExportError(f"{path}: vocab must have a list of pieces for src and for tgt")
        lists.append(found)
    if vocab.get("src_feats"):
        raise ExportError(f"{path}: vocab has src_feats; features of pieces are not supported")
    return Written(*lists)


def _numbers(
    path: Path, options: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> dict[str, float]:
    """The options in CTranslate2's form; vectors are scaled if positions are added."""
    name = "encoder.embeddings.make_embedding.emb_luts.0.weight"
    if name not in tensors:
        raise ExportError(f"{path}: the tensor {name!r} is missing")
    scaled = bool(options.get("position_encoding", False))
    of_side = {
        "num_heads": integer_of(f"{path}: heads", options.get("heads", 8)),
        "activation": _ACTIVATIONS[options.get("pos_ffn_activation_fn", "relu")],
        "pre_norm": 1,
        "scale_embeddings": math.sqrt(tensors[name].shape[1]) if scaled else 0,
    }
    return {f"{s}/{name}": float(v) for s in ("encoder", "decoder") for name, v in of_side.items()}


def _renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors by CTranslate2's names, with queries, keys and values joined. A tensor with an
    unknown name keeps it, and is refused later by that name."""
    order = {part: place for place, part in enumerate(_OF_LAYER)}
    parts: dict[str, dict[int, Tensor]] = defaultdict(dict)
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        match = _IN_LAYER.fullmatch(name)
        part, _, kind = name.rpartition(".")
        side, _, rest = name.partition(".")
        if match and match[3] in _OF_LAYER:
            here = _named(f"{match[1]}/layer_{match[2]}/{_OF_LAYER[match[3]]}", match[4])
            parts[here][order[match[3]]] = tensor
        elif match and match[3] == _DISTANCES:
            here = f"{match[1]}/layer_{match[2]}/self_attention/relative_position"
            found |= {f"{here}_{kind}": tensor for kind in ("keys", "values")}
        elif part in _OUTSIDE and kind in _NORM_KINDS:
            found[_named(_OUTSIDE[part], kind)] = tensor
        elif rest == _POSITIONS:
            found[f"{side}/position_encodings/encodings"] = tensor.squeeze(1)
        else:
            found[name] = tensor
    joined = {here: torch.cat([x for _, x in sorted(of.items())]) for here, of in parts.items()}
    return found | joined


def _named(part: str, kind: str) -> str:
    return f"{part}/{_NORM_KINDS[kind] if part.endswith('layer_norm') else kind}"
