"""A GGUF file, the format of llama.cpp, with a decoder in it: floats or quantised weights that the
`gguf` package can turn into floats. Nothing in it is executed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from export.errors import ExportError
from export.importing.folder import Options, Weights
from export.importing.language_models.gguf.architectures import (
    ARCHITECTURES,
    GgufHeader,
    read_sizes,
    scale_by_yarn,
)
from export.importing.language_models.gguf.tokenizer import read_gguf_tokenizer
from export.importing.language_models.model import ImportedLanguageModel, loaded
from export.importing.language_models.state import decoder_state
from serving.search.ids import SpecialIds

if TYPE_CHECKING:
    from gguf import GGUFReader

MAGIC = b"GGUF"


def is_gguf(source: Path) -> bool:
    """Whether it is a file that begins as GGUF does."""
    if not source.is_file():
        return False
    with source.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_gguf(path: Path) -> ImportedLanguageModel:
    """Read a file; raises ExportError, with file and entry, if something is not supported."""
    reader = _open(path)
    options = Options(path, {name: field.contents() for name, field in reader.fields.items()})
    name = options.must("general.architecture", *ARCHITECTURES)
    architecture = ARCHITECTURES[name]
    tokens = options.need("tokenizer.ggml.tokens", list)
    weights = Weights(path, _read_tensors(path, reader), "its header")
    header = GgufHeader(options, name, weights)
    sizes, longest = read_sizes(header, architecture, len(tokens))
    options.finish(key for key in reader.fields if not key.startswith(f"{name}."))
    state = decoder_state(weights, path, sizes, architecture.names)
    special_ids, other_ends = _read_special_ids(options, len(tokens))
    title = str(options.get("general.name", "")).strip()
    read = ImportedLanguageModel(
        f"{architecture.kind} in GGUF{f' ({title})' if title else ''}",
        loaded(path, sizes, state),
        read_gguf_tokenizer(options, tokens, special_ids, strips=name == "phi3"),
        special_ids,
        longest,
        options.get("tokenizer.chat_template"),
        options.get("general.license"),
        other_ends,
    )
    if architecture.finish is not None:
        architecture.finish(header, read)
    scale_by_yarn(header, read)
    return read


def _open(path: Path) -> GGUFReader:
    try:
        from gguf import GGMLQuantizationType, GGUFReader
    except ImportError as error:
        raise ExportError(
            f"{path}: reading GGUF needs the package gguf; install it with `pip install gguf`"
        ) from error

    class Reader(GGUFReader):
        """A reader whose error names the tensor of a type that the package does not know."""

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


def _read_special_ids(header: Options, vocab_size: int) -> tuple[SpecialIds, tuple[int, ...]]:
    """The special ids, and the ids that end a text beside eos: the ends of a turn and of a message,
    at which llama.cpp stops too."""
    eos = header.integer("tokenizer.ggml.eos_token_id")
    names = {"bos": "bos", "unk": "unknown", "pad": "padding"}
    found = {ours: header.integer(f"tokenizer.ggml.{theirs}_token_id", eos)
             for ours, theirs in names.items()}  # fmt: skip
    ends = {name: header.integer(f"tokenizer.ggml.{name}_token_id", eos) for name in ("eot", "eom")}
    for name, value in {**found, **ends, "eos": eos}.items():
        if value >= vocab_size:
            raise ExportError(
                f"{header.path}: the id of {name} must be in [0, {vocab_size - 1}], got {value}"
            )
    others = dict.fromkeys(end for end in ends.values() if end != eos)
    return SpecialIds(**found, eos=eos), tuple(others)
