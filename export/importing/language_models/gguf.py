"""A file of GGUF, the format of llama.cpp, with a Llama in it: floats or quantised weights that the
`gguf` package can turn into floats. Nothing in it is executed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as FastTokenizer
from torch import Tensor

from export.errors import ExportError
from export.importing.folder import Options, Weights
from export.importing.language_models.model import ImportedLanguageModel, loaded, model_config
from export.importing.language_models.options import SIZES
from export.importing.language_models.state import Names, decoder_state
from serving.search.ids import SpecialIds
from training.models.positions import rotary_slowing

if TYPE_CHECKING:
    from gguf import GGUFReader

MAGIC = b"GGUF"
_ORDINARY, _CONTROL, _ADDED = 1, 3, 4
"""Types of tokens."""
_MERGED = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"""
_MERGED += r"""| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
"""What Llama 3 never merges across."""


def is_gguf(source: Path) -> bool:
    """Whether it is a file that begins as GGUF does."""
    if not source.is_file():
        return False
    with source.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_gguf(path: Path) -> ImportedLanguageModel:
    """Read a file; raises ExportError, with file and entry, for what is not supported."""
    reader = _open(path)
    header = Options(path, {name: field.contents() for name, field in reader.fields.items()})
    header.must("general.architecture", "llama")
    tokens = header.need("tokenizer.ggml.tokens", list)
    sizes, longest = _read_sizes(header, len(tokens))
    header.finish(name for name in reader.fields if not name.startswith("llama."))
    weights = Weights(path, _read_tensors(path, reader), "its header")
    sizes["tie_embeddings"] = f"{_NAMES.output}.weight" not in weights
    if _SLOWER in weights:
        sizes |= _read_slowing(path, weights, sizes)
    state = decoder_state(weights, path, sizes, _NAMES)
    special_ids, other_ends = _read_special_ids(header, len(tokens))
    name = str(header.get("general.name", "")).strip()
    return ImportedLanguageModel(
        f"Llama in GGUF{f' ({name})' if name else ''}",
        loaded(path, sizes, state),
        _read_tokenizer(header, tokens, special_ids),
        special_ids,
        longest,
        header.get("tokenizer.chat_template"),
        header.get("general.license"),
        other_ends,
    )


def _open(path: Path) -> GGUFReader:
    try:
        from gguf import GGMLQuantizationType, GGUFReader
    except ImportError as error:
        raise ExportError(
            f"{path}: reading GGUF needs the package gguf; install it with `pip install gguf`"
        ) from error

    class Reader(GGUFReader):
        """Names the tensor of a type that the package does not know."""

        def _build_tensors(self, start_offs: int, fields: list[Any]) -> None:
            for field in fields:
                kind, known = int(field.parts[4][0]), {t.value for t in GGMLQuantizationType}
                if kind not in known:
                    raise ExportError(
                        f"{path}: the tensor {field.name!r} has the type {kind}, which is not "
                        "known; supported are floats and what the package gguf can turn into them"
                    )
            super()._build_tensors(start_offs, fields)

    try:
        return Reader(path)
    except ExportError:
        raise
    except Exception as error:  # the package raises whatever NumPy does
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ExportError(f"{path}: cannot be read, it may be cut off: {reason}") from error


def _read_sizes(header: Options, vocab_size: int) -> tuple[dict[str, Any], int]:
    """The sizes of the model, and how many tokens it may read."""
    scaling = header.must("llama.rope.scaling.type", "none", "linear", default="none")
    header.must("llama.expert_count", 0, default=0)
    header.must("llama.vocab_size", vocab_size, default=vocab_size)
    dim = header.need("llama.embedding_length", int)
    heads = header.need("llama.attention.head_count", int)
    width = dim // heads if heads else 0
    for name in ("rope.dimension_count", "attention.key_length", "attention.value_length"):
        header.must(f"llama.{name}", width, default=width)
    return {
        **SIZES,
        "model_dim": dim,
        "num_heads": heads,
        "num_kv_heads": header.get("llama.attention.head_count_kv", 0),
        "num_decoder_layers": header.need("llama.block_count", int),
        "ffn_dim": header.need("llama.feed_forward_length", int),
        "vocab_size": vocab_size,
        "norm_eps": header.need("llama.attention.layer_norm_rms_epsilon", float),
        "rotary_base": header.get("llama.rope.freq_base", 10000.0),
        "rotary_scaling": scaling,
        "rotary_factor": header.get("llama.rope.scaling.factor", 1.0),
        "attention_bias": False,
        "ffn_bias": False,
    }, header.need("llama.context_length", int)


def _read_tensors(path: Path, reader: GGUFReader) -> dict[str, Tensor]:
    from gguf import dequantize

    tensors = {}
    for entry in reader.tensors:
        try:
            values = dequantize(entry.data, entry.tensor_type)
        except (NotImplementedError, ValueError) as error:
            raise ExportError(
                f"{path}: the tensor {entry.name!r} has the type {entry.tensor_type.name}, which "
                "cannot be turned into floats"
            ) from error
        shape = [int(axis) for axis in reversed(entry.shape)]
        tensors[entry.name] = torch.tensor(values, dtype=torch.float32).reshape(shape)
    return tensors


def _read_slowing(path: Path, weights: Weights, sizes: dict[str, Any]) -> dict[str, Any]:
    """How rotary positions are scaled, of which a file holds the result, by angle; raises
    ExportError where that is not as Llama 3.1 and those after it do it."""
    slower_F = weights.take(_SLOWER, sizes["model_dim"] // sizes["num_heads"] // 2)
    scaled = {"rotary_scaling": "llama3", "rotary_factor": float(slower_F.max())}
    config = model_config(path, sizes | scaled)
    wanted_F = rotary_slowing(config)
    assert wanted_F is not None
    if not torch.allclose(slower_F, wanted_F, rtol=1e-3):
        raise ExportError(
            f"{path}: {_SLOWER} must scale positions as Llama 3.1 does, from "
            f"{config.rotary_low_factor:g} to {config.rotary_high_factor:g} turns in "
            f"{config.rotary_trained_length} positions"
        )
    return scaled


def _halves(rows: Tensor, heads: int) -> Tensor:
    """Features that are turned together lie side by side in the file, and half a head apart
    here."""
    by_head = rows.reshape(heads, -1, 2, rows.shape[-1])
    return by_head.transpose(1, 2).reshape(rows.shape)


_SLOWER = "rope_freqs.weight"
_NAMES = Names(
    embedding="token_embd",
    output="output",
    norm="output_norm",
    attention_norm="blk.{}.attn_norm",
    ffn_norm="blk.{}.ffn_norm",
    query_key_value=("blk.{}.attn_q", "blk.{}.attn_k", "blk.{}.attn_v"),
    attention_output="blk.{}.attn_output",
    up=("blk.{}.ffn_gate", "blk.{}.ffn_up"),
    down="blk.{}.ffn_down",
    heads=_halves,
)


def _read_special_ids(header: Options, vocab_size: int) -> tuple[SpecialIds, tuple[int, ...]]:
    """The special ids, and those that end a text beside eos: the ends of a turn and of a message,
    at which llama.cpp stops too."""
    eos = header.need("tokenizer.ggml.eos_token_id", int)
    names = {"bos": "bos", "unk": "unknown", "pad": "padding"}
    found = {ours: header.get(f"tokenizer.ggml.{theirs}_token_id", eos)
             for ours, theirs in names.items()}  # fmt: skip
    ends = {name: header.get(f"tokenizer.ggml.{name}_token_id", eos) for name in ("eot", "eom")}
    for name, value in {**found, **ends, "eos": eos}.items():
        if not 0 <= value < vocab_size:
            raise ExportError(
                f"{header.path}: the id of {name} must be in [0, {vocab_size - 1}], got {value}"
            )
    others = dict.fromkeys(end for end in ends.values() if end != eos)
    return SpecialIds(**found, eos=eos), tuple(others)


def _read_tokenizer(header: Options, tokens: list[str], special_ids: SpecialIds) -> bytes:
    """The vocabulary as a file of the `tokenizers` library."""
    header.must("tokenizer.ggml.model", "gpt2")
    header.must("tokenizer.ggml.add_eos_token", False, default=False)
    kind = header.must("tokenizer.ggml.pre", *_SPLITTERS)
    pairs = [tuple(merge.split(" ")) for merge in header.need("tokenizer.ggml.merges", list)]
    ids = {token: number for number, token in enumerate(tokens)}
    if len(ids) < len(tokens):
        raise ExportError(f"{header.path}: tokenizer.ggml.tokens has a token twice")
    try:
        model = models.BPE(vocab=ids, merges=pairs, ignore_merges=kind == "llama-bpe")
    except Exception as error:  # the library raises nothing more special
        reason = " ".join(str(error).split())
        raise ExportError(f"{header.path}: tokenizer.ggml.merges: {reason}") from error
    tokenizer = FastTokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(_SPLITTERS[kind])
    tokenizer.decoder = decoders.ByteLevel()
    types = header.get("tokenizer.ggml.token_type", [_ORDINARY] * len(tokens))
    for number, (token, type_) in enumerate(zip(tokens, types, strict=True)):
        if type_ in (_CONTROL, _ADDED) or number == special_ids.eos:
            control = type_ != _ADDED
            added = AddedToken(token, normalized=False, special=control)
            (tokenizer.add_special_tokens if control else tokenizer.add_tokens)([added])
    if header.get("tokenizer.ggml.add_bos_token", kind == "llama-bpe"):
        first = tokens[special_ids.bos]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{json.dumps(first)[1:-1]} $A", special_tokens=[(first, special_ids.bos)]
        )
    return str(tokenizer.to_str()).encode()


_BYTES_BY_WORD = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
_SPLITTERS: dict[str, list[Any]] = {
    "gpt-2": [_BYTES_BY_WORD],
    "smollm": [pre_tokenizers.Digits(individual_digits=True), _BYTES_BY_WORD],
    "llama-bpe": [pre_tokenizers.Split(Regex(_MERGED), "isolated"), _BYTES],
}
"""What stands between merges never, by the name that llama.cpp has for it."""
