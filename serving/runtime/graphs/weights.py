"""The int8 weights of a graph, mapped from its file, and the graph without them.

ONNX Runtime copies the weights that it reads, and a kernel that rearranges a weight leaves that
copy unused. Mapped weights need no memory of their own: the system can drop their pages and read
them again.
"""

from __future__ import annotations

import math
import mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serving.runtime.graphs.protobuf import VARINT, Field, fields, message, number, varints

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


class _Cut(NamedTuple):
    """An initializer whose data are left out of the graph."""

    tensor: Field
    raw: Field


class MappedWeights:
    """The larger weights of one byte per element that an ONNX file contains itself, by name."""

    def __init__(self, file: Path) -> None:
        """Map the file. Raises OSError if it cannot be read. A file that is not an ONNX file has no
        such weights."""
        self.arrays: dict[str, NDArray[Any]] = {}
        self._file, self._cuts = file, list[_Cut]()
        self._graphs: list[Field] = []
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
            located = number(_DATA_LOCATION << 3 | VARINT) + number(_EXTERNAL)
            kept = data[tensor.begin : raw.key] + data[raw.end : tensor.end]
            parts += [data[at : tensor.key], message(_INITIALIZER, kept + reference + located)]
            at = tensor.end
        parts.append(data[at : graph.end])
        return data[: graph.key] + message(_GRAPH, b"".join(parts)) + data[graph.end :]

    def _find(self) -> None:
        for field in fields(self._map, 0, len(self._map)):
            if field.number == _GRAPH:
                self._graphs.append(field)
                for inner in fields(self._map, field.begin, field.end):
                    if inner.number == _INITIALIZER:
                        self._note(inner)

    def _note(self, tensor: Field) -> None:
        dims: list[int] = []
        data_type, name, raw = 0, "", Field(_RAW_DATA, 0, 0, 0)
        for field in fields(self._map, tensor.begin, tensor.end):
            if field.number == _DIMS:
                dims += varints(self._map, field)
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


def _entry(key: str, value: str) -> bytes:
    """One entry of the external data that say where a tensor's numbers are."""
    return message(_EXTERNAL_DATA, message(_KEY, key.encode()) + message(_VALUE, value.encode()))
