"""Translation models of fairseq (Ott et al. 2019), and of macaron-net, which is built on it (Lu et
al. 2019): a `.pt` with its `dict.*.txt` and a SentencePiece model.

Names are those of fairseq's `models/transformer.py` and `models/lightconv.py`. Names of version
0.6, which macaron-net has, are converted as fairseq's own `upgrade_state_dict` does.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from export.errors import ExportError
from export.importing.folder import (
    Weights,
    checkpoint_file,
    has_checkpoint_file,
    integer_of,
    read_pickled,
)
from export.importing.layers import State, take_norm, transformer_state
from export.importing.model import ACTIVATIONS, Imported, LanguageChoice, loaded
from export.importing.vocabularies.languages import short_code
from export.importing.vocabularies.pair import Written, check_tags, find_pieces, one_pair
from serving.search.ids import SpecialIds
from training.models import TransformerConfig

_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
"""The special pieces, which come before those that the files of the dictionary list."""
_UNUSED_ROWS = 2
"""Number of unused rows at the start of a table of positions: those up to the padding's."""
_ADVICE = (
    "save its weights and options again with the fairseq that trained it, without other objects"
)
_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm", "macaron_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
"""The norms that `layer_norms` used to number, in order."""
_NUMBERED = re.compile(r"model\.(encoder|decoder)\.layers\.(\d+)\.layer_norms\.(\d)\.(weight|bias)")
_JOINED = re.compile(r"(.*\.)in_proj_(weight|bias)")
_CONVOLUTIONS = {"lightweight": "light_conv", "dynamic": "dynamic_conv"}
_KERNELS = {"encoder": (3, 7, 15, 31, 31, 31, 31), "decoder": (3, 7, 15, 31, 31, 31)}
"""The default widths of `models/lightconv.py`."""
_BUFFERS = re.compile(r"model\.(encoder|decoder)\.(version|embed_positions\._float_tensor)")


def find_dictionaries(source: Path) -> list[Path]:
    """The files of the dictionary beside a checkpoint."""
    folder = source if source.is_dir() else source.parent
    return sorted(folder.glob("dict.*.txt"))


def has_fairseq(source: Path) -> bool:
    """Whether it is one `.pt`, or a folder with one, with files of a dictionary beside it."""
    return has_checkpoint_file(source) and bool(find_dictionaries(source))


def read_fairseq(source: Path, choice: LanguageChoice) -> Imported:
    """Read a translation model; raises ExportError, with file and entry, if something is not
    supported."""
    path = checkpoint_file(source)
    found = read_pickled(path, _ADVICE, allowed=[argparse.Namespace])
    options = _options(path, found)
    written = _dictionaries(path, options, choice)
    check_tags(path, written)
    config = _config(path, options, found["model"], written)
    weights = Weights(path, _renamed(found["model"]), "its options")
    state = _state(weights, config, options)
    weights.finish()
    languages_given = {
        ours: options[theirs]
        for ours, theirs in (("from_code", "source_lang"), ("to_code", "target_lang"))
        if short_code(str(options.get(theirs)))
    }
    languages = one_pair(path, choice, languages_given)
    return Imported(
        _kind(config),
        loaded(config, state),
        find_pieces(path.parent, written, _SPECIAL[:3], languages),
        SpecialIds(pad=1, unk=3, bos=2, eos=2),  # the decoder starts with the end
        languages,
        {"beam_size": 5, "length_penalty": 1.0, "eos_in_length": True},
    )


def _kind(config: TransformerConfig) -> str:
    """Description of the model for people."""
    if config.encoder_mixing != "attention":
        names = {"light_conv": "LightConv", "dynamic_conv": "DynamicConv"}
        sides = dict.fromkeys(
            names[each] for each in (config.encoder_mixing, config.decoder_mixing)
        )
        return f"a {' and '.join(sides)} of fairseq"
    return f"a {'Macaron Net' if config.block == 'macaron' else 'Transformer'} of fairseq"


def _options(path: Path, found: Any) -> dict[str, Any]:
    """The options of model and task; before version 0.10 all of them are in `args`."""
    if not isinstance(found, dict) or not isinstance(found.get("model"), dict):
        raise ExportError(f"{path}: not a checkpoint of fairseq, which has the part model")
    if isinstance(found.get("args"), argparse.Namespace):
        return dict(vars(found["args"]))
    options: dict[str, Any] = {}
    cfg = found.get("cfg")
    for part in ("task", "model"):
        given = cfg.get(part) if isinstance(cfg, dict) else None
        options |= vars(given) if isinstance(given, argparse.Namespace) else given or {}
    if not options:
        raise ExportError(f"{path}: the options are missing, in args or in cfg")
    return options


def _dictionaries(path: Path, options: Mapping[str, Any], choice: LanguageChoice) -> Written:
    """The written forms of the ids of both sides; raises ExportError if one embedding belongs to
    two lists, or if it is unknown which list belongs to which side."""
    files = find_dictionaries(path)
    if not files:
        raise ExportError(f"{path.parent}: dict.<language>.txt is missing, the pieces of the ids")
    lists = {file.name: _read_dictionary(file) for file in files}
    first = lists[files[0].name]
    if all(pieces == first for pieces in lists.values()):
        return Written([*_SPECIAL, *first], [*_SPECIAL, *first])
    if options.get("share_all_embeddings"):
        other = next(name for name, pieces in lists.items() if pieces != first)
        raise ExportError(
            f"{path.parent / other}: differs from {files[0].name}, and share_all_embeddings says "
            "that source and target share one dictionary"
        )
    sides = []
    for option, chosen in (("source_lang", choice.source), ("target_lang", choice.target)):
        code = options.get(option) or ",".join(chosen)
        if f"dict.{code}.txt" not in lists:
            raise ExportError(
                f"{path.parent}: dict.{code or '<language>'}.txt is missing, the dictionary of "
                f"{option}; there are {', '.join(lists)}"
            )
        sides.append([*_SPECIAL, *lists[f"dict.{code}.txt"]])
    return Written(*sides)


def _read_dictionary(file: Path) -> list[str]:
    """The pieces of a dictionary, in whose lines a count follows each piece."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise ExportError(f"{file}: cannot be read: {error}") from error
    pieces = []
    for number, line in enumerate(lines, 1):
        piece, _, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if line and not (piece and count.isdigit()):
            raise ExportError(f"{file}: line {number} must be a piece and its count, got {line!r}")
        if line:
            pieces.append(piece)
    return pieces


def _config(
    path: Path, options: Mapping[str, Any], model: Mapping[str, Tensor], written: Written
) -> TransformerConfig:
    _check_options(path, options)
    convolves = _convolves(options)
    activation = "relu" if convolves else options.get("activation_fn", "relu")
    if activation not in ACTIVATIONS:
        raise ExportError(
            f"{path}: activation_fn {activation!r} is not supported; supported: "
            f"{', '.join(ACTIVATIONS)}"
        )
    shared = options.get("share_all_embeddings")
    learnt = _equal(path, options, "learned_pos", False)
    rows = model.get("encoder.embed_positions.weight") if learnt else None
    config = TransformerConfig(
        block="macaron" if options.get("macaron") else "standard",
        model_dim=_size(path, options, "embed_dim", 512),
        num_heads=_size(path, options, "attention_heads", 8),
        ffn_dim=_size(path, options, "ffn_embed_dim", 2048),
        activation=ACTIVATIONS[activation],
        num_encoder_layers=_layers(path, options, "encoder", 7 if convolves else 6),
        num_decoder_layers=_layers(path, options, "decoder", 6),
        vocab_size=len(written.target),
        source_vocab_size=0 if shared else len(written.source),
        tie_embeddings=bool(shared or options.get("share_decoder_input_output_embed")),
        norm="pre" if _equal(path, options, "normalize_before", False) else "post",
        embedding_scale="none" if options.get("no_scale_embedding") else "token",
        positions="learnt" if learnt else "fairseq",
        max_positions=0 if rows is None else len(rows) - _UNUSED_ROWS,
        embedding_norm=bool(options.get("layernorm_embedding")),
    )
    return _with_convolutions(path, options, config) if convolves else config


def _convolves(options: Mapping[str, Any]) -> bool:
    """Whether it is a model of `models/lightconv.py`."""
    named = str(options.get("arch")).startswith(("lightconv", "dynamicconv"))
    return named or "encoder_kernel_size_list" in options


def _with_convolutions(
    path: Path, options: Mapping[str, Any], config: TransformerConfig
) -> TransformerConfig:
    """The configuration with the options that `models/lightconv.py` reads beside the
    Transformer's."""
    found: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        kind = options.get(f"{side}_conv_type", "dynamic")
        if kind not in _CONVOLUTIONS:
            raise ExportError(
                f"{path}: {side}_conv_type {kind!r} is not supported; it must be "
                f"{' or '.join(map(repr, _CONVOLUTIONS))}"
            )
        width = options.get(f"{side}_conv_dim", config.model_dim)
        if width != config.model_dim:
            raise ExportError(
                f"{path}: {side}_conv_dim {width} is not supported; it must be {side}_embed_dim, "
                f"{config.model_dim}"
            )
        found[f"{side}_mixing"] = _CONVOLUTIONS[kind]
        layers = getattr(config, f"num_{side}_layers")
        found[f"{side}_kernel_sizes"] = _kernel_sizes(path, options, side, layers)
    return replace(
        config,
        conv_glu=bool(_equal(path, options, "glu", True)),
        kernel_softmax=bool(options.get("weight_softmax", True)),
        **found,
    )


def _kernel_sizes(
    path: Path, options: Mapping[str, Any], side: str, layers: int
) -> tuple[int, ...]:
    """The widths of a side's convolutions, one per layer; a single width applies to all layers."""
    name = f"{side}_kernel_size_list"
    widths = options.get(name) or _KERNELS[side]
    if not isinstance(widths, list | tuple):
        raise ExportError(f"{path}: {name} must be a list of widths, got {widths!r}")
    widths = tuple(widths) * layers if len(widths) == 1 else tuple(widths)
    if len(widths) != layers:
        raise ExportError(
            f"{path}: {name} must have a width for each of {layers} layers, got {list(widths)}"
        )
    for width in widths:
        if type(width) is not int or width < 3 or width % 2 == 0:
            raise ExportError(
                f"{path}: {name} {list(widths)} is not supported; widths must be odd, from 3 on"
            )
    return widths


def _check_options(path: Path, options: Mapping[str, Any]) -> None:
    """Raise ExportError for options that change the computation and are not supported."""
    for name in (
        "adaptive_softmax_cutoff",
        "no_cross_attention",
        "cross_self_attention",
        "no_token_positional_embeddings",
        "no_decoder_final_norm",
        "scale_fc",
        "scale_attn",
        "scale_heads",
        "scale_resids",
        "quant_noise_pq",
    ):
        if options.get(name):
            raise ExportError(
                f"{path}: {name} {options[name]!r} is not supported; it must be left out"
            )


def _equal(path: Path, options: Mapping[str, Any], name: str, usual: Any) -> Any:
    """An option that both sides must have alike."""
    values = [options.get(f"{side}_{name}", usual) for side in ("encoder", "decoder")]
    if values[0] != values[1]:
        raise ExportError(
            f"{path}: encoder_{name} and decoder_{name} must be equal, got {values[0]} and "
            f"{values[1]}"
        )
    return values[0]


def _size(path: Path, options: Mapping[str, Any], name: str, usual: int) -> int:
    """A size that both sides must have alike."""
    return integer_of(f"{path}: encoder_{name}", _equal(path, options, name, usual))


def _layers(path: Path, options: Mapping[str, Any], side: str, usual: int) -> int:
    """The number of a side's layers."""
    return integer_of(f"{path}: {side}_layers", options.get(f"{side}_layers", usual))


def _renamed(model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights by the names that `transformers` has for the same parts."""
    found: dict[str, Tensor] = {}
    for given, tensor in model.items():
        name = f"model.{given}"
        if _BUFFERS.fullmatch(name):
            continue
        if given in ("decoder.output_projection.weight", "decoder.embed_out"):
            name = "lm_head.weight"
        if numbered := _NUMBERED.fullmatch(name):
            side, layer, number, kind = numbered.groups()
            name = f"model.{side}.layers.{layer}.{_NORMS[side][int(number)]}.{kind}"
        name = name.replace(".conv_layer_norm.", ".self_attn_layer_norm.")
        if name.endswith(".conv.weight"):
            tensor = tensor.flatten(0, -2)  # [H,1,K], or [H,K] of the modules for CUDA
        if joined := _JOINED.fullmatch(name):
            for part, rows in zip("qkv", tensor.chunk(3), strict=True):
                found[f"{joined[1]}{part}_proj.{joined[2]}"] = rows
        else:
            found[name] = tensor
    return found


def _state(weights: Weights, config: TransformerConfig, options: Mapping[str, Any]) -> State:
    state = transformer_state(weights, config)
    for side in ("encoder", "decoder"):
        if config.positions == "learnt":
            rows = config.max_positions + _UNUSED_ROWS
            table = weights.take(f"model.{side}.embed_positions.weight", rows, config.model_dim)
            state[f"{side}_side.positions.weight"] = table[_UNUSED_ROWS:].clone()
        if config.embedding_norm:
            norm = f"model.{side}.layernorm_embedding"
            state |= take_norm(weights, norm, f"{side}_side.norm", config.model_dim)
    return state
