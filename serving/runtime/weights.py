"""The int8 weights of a graph, mapped from its file, and the graph without them.

ONNX Runtime copies the weights that it reads, and a kernel that rearranges a weight leaves that
copy unused. Mapped weights need no memory of their own: the system can drop their pages and read
them again.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_LEAST_BYTES = 65536
"""Size in bytes below which mapping a weight is not worth it."""
_DTYPES = {2: np.uint8, 3: np.int8}
"""Types whose numbers have one byte each, and so may lie at any address, by their numbers in
onnx.proto."""
# Fields of onnx.proto.
_GRAPH, _INITIALIZER = 7, 5
_DIMS, _DATA_TYPE, _NAME, _RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 1, 2, 8, 9, 13, 14
_KEY, _VALUE = 1, 2
_EXTERNAL = 1
# Wire types of protocol buffers.
_VARINT, _FIXED64, _DELIMITED = 0, 1, 2


class _Field(NamedTuple):
    """A field of a protobuf message, by the positions of its bytes in the file."""

    number: int
    key: int
    """Position of the field's key."""
    begin: int
    """Position of the field's content; the value itself if the field is a number."""
    end: int
    """Position after the content; -1 if the field is a number."""


class _Cut(NamedTuple):
    """An initializer whose data are left out of the graph."""

    tensor: _Field
    raw: _Field


class MappedWeights:
    """The larger weights of one byte per element that an ONNX file contains itself, by name."""

    def __init__(self, file: Path) -> None:
        """Map the file. Raises OSError if it cannot be read. A file that is not an ONNX file has no
        such weights."""
        self.arrays: dict[str, NDArray[Any]] = {}
        self._file, self._cuts = file, list[_Cut]()
        self._graphs: list[_Field] = []
        if not file.stat().st_size:
            return
        with file.open("rb") as opened:
            self._map = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            self._find()
        except (IndexError, ValueError, UnicodeDecodeError):  # ONNX Runtime will report it
            self.arrays.clear()

    def release(self) -> None:
        """Let the system release the pages that have been read; they are read again when they are
        needed."""
        if self.arrays and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def place(self) -> tuple[int, int]:
        """The address of the mapped file, and its size in bytes; both are 0 if it has no such
        weights."""
        if not self.arrays:
            return 0, 0
        whole = np.frombuffer(self._map, np.uint8)
        return whole.ctypes.data, whole.size

    def graph(self) -> bytes | None:
        """The file's model with references to these weights in place of their data, because ONNX
        Runtime would keep a copy of the data while it loads. None if there are no such weights."""
        if not self.arrays or len(self._graphs) != 1:
            return None
        data, [graph] = self._map, self._graphs
        parts, at = [], graph.begin
        for tensor, raw in self._cuts:
            places = {
                "location": self._file.name,
                "offset": raw.begin,
                "length": raw.end - raw.begin,
            }
            reference = b"".join(_entry(key, str(value)) for key, value in places.items())
            located = _number(_DATA_LOCATION << 3 | _VARINT) + _number(_EXTERNAL)
            kept = data[tensor.begin : raw.key] + data[raw.end : tensor.end]
            parts += [data[at : tensor.key], _message(_INITIALIZER, kept + reference + located)]
            at = tensor.end
        parts.append(data[at : graph.end])
        return data[: graph.key] + _message(_GRAPH, b"".join(parts)) + data[graph.end :]

    def _find(self) -> None:
        for field in _fields(self._map, 0, len(self._map)):
            if field.number == _GRAPH:
                self._graphs.append(field)
                for inner in _fields(self._map, field.begin, field.end):
                    if inner.number == _INITIALIZER:
                        self._note(inner)

    def _note(self, tensor: _Field) -> None:
        dims: list[int] = []
        data_type, name, raw = 0, "", _Field(_RAW_DATA, 0, 0, 0)
        for field in _fields(self._map, tensor.begin, tensor.end):
            if field.number == _DIMS and field.end < 0:
                dims.append(field.begin)
            elif field.number == _DIMS:
                dims += _varints(self._map, field.begin, field.end)
            elif field.number == _DATA_TYPE:
                data_type = field.begin
            elif field.number == _NAME:
                name = self._map[field.begin : field.end].decode()
            elif field.number == _RAW_DATA:
                raw = field
        size = raw.end - raw.begin
        if data_type in _DTYPES and size >= _LEAST_BYTES and size == math.prod(dims):
            array = np.frombuffer(self._map, _DTYPES[data_type], size, raw.begin)
            self.arrays[name] = array.reshape(dims)
            self._cuts.append(_Cut(tensor, raw))


def _fields(data: mmap.mmap, begin: int, end: int) -> Iterator[_Field]:
    """Yield each field, except numbers of fixed width."""
    while begin < end:
        key = begin
        tag, begin = _varint(data, begin)
        wire = tag & 7
        if wire == _VARINT:
            value, begin = _varint(data, begin)
            yield _Field(tag >> 3, key, value, -1)
        elif wire == _DELIMITED:
            size, begin = _varint(data, begin)
            if begin + size > end:
                raise ValueError("a field ends after the message that contains it")
            yield _Field(tag >> 3, key, begin, begin + size)
            begin += size
        else:
            begin += 8 if wire == _FIXED64 else 4


def _varints(data: mmap.mmap, begin: int, end: int) -> Iterator[int]:
    while begin < end:
        value, begin = _varint(data, begin)
        yield value


def _varint(data: mmap.mmap, begin: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[begin]
        begin += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, begin
        shift += 7


def _number(value: int) -> bytes:
    """A number as `_varint` reads it."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def _message(number: int, content: bytes) -> bytes:
    """A field that contains bytes."""
    return _number(number << 3 | _DELIMITED) + _number(len(content)) + content


def _entry(key: str, value: str) -> bytes:
    """One entry of the external data that say where a tensor's numbers are."""
    return _message(_EXTERNAL_DATA, _message(_KEY, key.encode()) + _message(_VALUE, value.encode()))
