"""The files in which Marian keeps its models, read as data.

`.npz` as CTranslate2's converter reads it; `.bin` as Marian's sources write it (marian-dev:
`common/binary.cpp`, `common/types.h`; its fork browsermt/marian-dev for intgemm's integers:
`tensors/cpu/integer_common.h`), tried on published students. All numbers are little-endian.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor

from export.errors import ExportError
from export.importing.folder import Options, Weights

MODEL_OPTIONS = "special:model.yml"
"""The entry of a model's file that holds its options."""
_VERSION = 1
_FLOATS: dict[int, type[np.floating[Any]]] = {
    0x402: np.float16,
    0x404: np.float32,
    0x408: np.float64,
}
_INTEGERS: dict[int, type[np.signedinteger[Any]]] = {0x4101: np.int8, 0x4102: np.int16}
"""Weights as `marian-conv` quantises them for intgemm, by the codes of their types."""
_TEXT = 0x101
_ACTIVATION_SCALE = "_QuantMultA"
"""Ending of the name of an entry that holds the scale of a product's inputs; such scales are
ignored, because inputs are fitted anew."""


@dataclass(frozen=True)
class MarianFile:
    """A model: the options of its architecture and its parameters, in Marian's own layout."""

    options: Options
    weights: Weights


def read_model(path: Path) -> MarianFile:
    """Read a `.npz`, or a `.bin` of floats or of intgemm's integers.

    Raises ExportError, with file and entry, if it is damaged or packed for one kind of machine.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ExportError(f"{path}: cannot be read: {error.strerror or error}") from error
    text, tensors = _read_npz(path) if content[:2] == b"PK" else _read_binary(path, content)
    where = path / MODEL_OPTIONS
    return MarianFile(
        Options(where, read_mapping(where, text)), Weights(path, tensors, MODEL_OPTIONS)
    )


def is_model(path: Path) -> bool:
    """Whether a file begins as one that `read_model` reads."""
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError:
        return False
    if path.suffix == ".npz":
        return head[:2] == b"PK"
    return path.suffix == ".bin" and head == struct.pack("<Q", _VERSION)


def read_mapping(where: Path, text: str | bytes) -> dict[str, Any]:
    """The mapping in a YAML text; raises ExportError, which names `where`, if it is not one."""
    try:
        tree = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise ExportError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(tree, dict):
        raise ExportError(f"{where}: must be a mapping of options, got {type(tree).__name__}")
    return {str(name): value for name, value in tree.items()}


def _read_npz(path: Path) -> tuple[bytes, dict[str, Tensor]]:
    """Arrays by name; numpy's pickles are never read."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ExportError(f"{path}: cannot be read, it may be cut off: {error}") from error
    text = arrays.pop(MODEL_OPTIONS, None)
    if text is None:
        raise ExportError(f"{path}: {MODEL_OPTIONS} is missing, so it is not a model of Marian")
    return text.tobytes().rstrip(b"\0"), {
        name: torch.from_numpy(array) for name, array in arrays.items()
    }


@dataclass(frozen=True)
class _Entry:
    name: str
    type: int
    shape: tuple[int, ...]
    content: bytes


def _read_binary(path: Path, content: bytes) -> tuple[bytes, dict[str, Tensor]]:
    tensors, text = {}, None
    try:
        for entry in _entries(content):
            if entry.name == MODEL_OPTIONS and entry.type == _TEXT:
                text = entry.content.rstrip(b"\0")
            elif not entry.name.endswith(_ACTIVATION_SCALE):
                tensors[entry.name] = torch.from_numpy(_numbers(path, entry))
    except (struct.error, ValueError, OverflowError) as error:
        raise ExportError(f"{path}: cannot be read, it may be cut off: {error}") from error
    if text is None:
        raise ExportError(f"{path}: {MODEL_OPTIONS} is missing, so it is not a model of Marian")
    return text, tensors


def _entries(content: bytes) -> Iterator[_Entry]:
    """Iterate over the entries of a binary file.

    u64 version, u64 count; for each entry u64 length of name, type, number of axes, bytes; then all
    names, which end with 0; all axes, i32; u64 padding and so many bytes; the contents of all.
    """
    version, count = struct.unpack_from("<QQ", content)
    if version != _VERSION:
        raise ValueError(f"its version is {version}, {_VERSION} is supported")
    heads = [struct.unpack_from("<4Q", content, 16 + 32 * number) for number in range(count)]
    place, names, shapes = 16 + 32 * count, [], []
    for length, *_ in heads:
        names.append(_part(content, place, length).rstrip(b"\0").decode())
        place += length
    for _, _, axes, _ in heads:
        shapes.append(struct.unpack(f"<{axes}i", _part(content, place, 4 * axes)))
        place += 4 * axes
    (padding,) = struct.unpack_from("<Q", content, place)
    place += 8 + padding
    for (_, kind, _, size), name, shape in zip(heads, names, shapes, strict=True):
        yield _Entry(name, kind, shape, _part(content, place, size))
        place += size


def _part(content: bytes, place: int, size: int) -> bytes:
    if place + size > len(content):
        raise ValueError(f"{place + size} bytes are expected, it has {len(content)}")
    return content[place : place + size]


def _numbers(path: Path, entry: _Entry) -> NDArray[Any]:
    """A parameter in floats. Integers are followed by one multiplier for all (f32). Those of a
    product are transposed, although the shape does not say so; those of embeddings are not."""
    count, shape = int(np.prod(entry.shape, dtype=np.int64)), entry.shape
    if entry.type in _FLOATS:
        return np.frombuffer(entry.content, _FLOATS[entry.type], count).reshape(shape).copy()
    if entry.type not in _INTEGERS:
        raise ExportError(
            f"{path}: {entry.name!r} has a type ({entry.type:#x}) that is not supported; weights "
            "must be floats, or intgemm8 or intgemm16, which are not packed for one machine"
        )
    integers = np.frombuffer(entry.content, _INTEGERS[entry.type], count)
    (multiplier,) = struct.unpack_from("<f", entry.content, integers.nbytes)
    if not multiplier > 0.0 or len(shape) != 2:
        raise ExportError(
            f"{path}: {entry.name!r} must be a matrix with a multiplier > 0, got {list(shape)} and "
            f"{multiplier}"
        )
    transposed = "Wemb" not in entry.name
    table = integers.reshape(shape[::-1]).T if transposed else integers.reshape(shape)
    return table.astype(np.float32) * (np.float32(1.0) / np.float32(multiplier))
