"""The file `model.bin` of CTranslate2, read as data: variables by name, weights in fp32.

The layout is that of `ModelSpec.save` in CTranslate2 4 (binary version 6; unchanged since version
4): little-endian numbers; the version, the name of the specification and its revision; the
variables, each with name, shape, type and bytes; the aliases of variables. Integer weights have a
scale by which they are divided: one for each row in int8, one in int16.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from export.errors import ExportError

_VERSIONS = range(4, 7)
_TYPES = (
    torch.float32,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.float16,
    torch.bfloat16,
)
"""The types in the order of their numbers in the file."""
_SCALE = "_scale"
_MOST_AXES = 8


_START = re.compile(rb"[\x01-\x0f]\0\0\0.\0\w+\0", re.DOTALL)
"""A version, and a name with its length before it; models of Marian may be named as these are."""


def is_spec_file(path: Path) -> bool:
    """Whether a file is one of CTranslate2, by its first bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _START.match(file.read(64)) is not None


@dataclass(frozen=True)
class SpecFile:
    """The contents of the file."""

    spec: str
    """The name of CTranslate2's specification that the file follows."""
    tensors: dict[str, Tensor]
    """Matrices and vectors by name, in fp32."""
    options: dict[str, float]
    """Numbers without axes, by name."""


def read_spec_file(path: Path) -> SpecFile:
    """Read the file; raises ExportError, with the entry, if it is cut off or something is not
    supported."""
    reader = _Reader(path)
    version = reader.number("I", "the version")
    if version not in _VERSIONS:
        raise ExportError(
            f"{path}: binary version {version} is not supported, it must be {_VERSIONS[0]} to "
            f"{_VERSIONS[-1]}; convert the model again with a CTranslate2 of today"
        )
    spec = reader.text("the specification")
    reader.number("I", "the revision")
    variables = {}
    for _ in range(reader.number("I", "the number of variables")):
        name = reader.text("a name")
        variables[name] = reader.tensor(name)
    plain = _without_scales(path, variables)
    for _ in range(reader.number("I", "the number of aliases")):
        alias, name = reader.text("an alias"), reader.text("an alias")
        if name not in variables:
            raise ExportError(f"{path}: {alias!r} stands for {name!r}, which is missing")
        if name in plain:  # else it is the scale of a weight
            plain[alias] = plain[name]
    tensors = {name: value for name, value in plain.items() if value.dim()}
    options = {name: float(value) for name, value in plain.items() if not value.dim()}
    return SpecFile(spec, tensors, options)


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._content = path.read_bytes()
        except OSError as error:
            raise ExportError(f"{path}: cannot be read: {error.strerror or error}") from error
        self._at = 0

    def number(self, form: str, what: str) -> int:
        return int(struct.unpack(f"<{form}", self._take(struct.calcsize(form), what))[0])

    def text(self, what: str) -> str:
        """A text, which follows its length and ends with a zero."""
        written = self._take(self.number("H", what), what)
        try:
            return written.rstrip(b"\0").decode()
        except UnicodeDecodeError as error:
            raise ExportError(
                f"{self._path}: {what} is not a text; is this a model.bin?"
            ) from error

    def tensor(self, name: str) -> Tensor:
        axes = self.number("B", name)
        if axes > _MOST_AXES:
            raise ExportError(f"{self._path}: {name!r} has {axes} axes; the file is damaged")
        shape = [self.number("I", name) for _ in range(axes)]
        kind = self.number("B", name)
        if kind >= len(_TYPES):
            raise ExportError(f"{self._path}: {name!r} has the type {kind}, which is not known")
        content = self._take(self.number("I", name), name)
        wanted = int(np.prod(shape, dtype=np.int64)) * _TYPES[kind].itemsize
        if len(content) != wanted:
            raise ExportError(
                f"{self._path}: {name!r} has {len(content)} bytes where its shape {shape} needs "
                f"{wanted}; the file is damaged"
            )
        if not content:
            return torch.empty(shape, dtype=_TYPES[kind])
        return torch.frombuffer(bytearray(content), dtype=_TYPES[kind]).reshape(shape)

    def _take(self, size: int, what: str) -> bytes:
        found = self._content[self._at : self._at + size]
        if len(found) < size:
            raise ExportError(f"{self._path}: ends within {what!r}; the file is cut off")
        self._at += size
        return found


def _without_scales(path: Path, variables: dict[str, Tensor]) -> dict[str, Tensor]:
    """The variables without scales: integers are divided by theirs."""
    found = {}
    for name, value in variables.items():
        if name.endswith(_SCALE) and name.removesuffix(_SCALE) in variables:
            continue
        scale = variables.get(name + _SCALE)
        if scale is not None:
            if scale.dim() and scale.shape != value.shape[:1]:
                raise ExportError(
                    f"{path}: {name + _SCALE!r} must have a number for each of the "
                    f"{value.shape[0]} rows of {name!r}, got {list(scale.shape)}"
                )
            rows = scale.float().reshape(-1, *[1] * (value.dim() - 1)) if scale.dim() else scale
            value = value.float() / rows
        elif value.dim() and value.dtype in (torch.int8, torch.int16):
            raise ExportError(f"{path}: {name!r} has integers and no {name + _SCALE!r}")
        found[name] = value.float() if value.dim() else value
    return found
