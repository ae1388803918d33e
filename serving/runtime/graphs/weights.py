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

from serving.runtime.graphs.file import (
    DATA_LOCATION,
    DTYPES,
    EXTERNAL_DATA,
    GRAPH,
    INITIALIZER,
    KEY,
    VALUE,
    read_tensor,
)
from serving.runtime.graphs.protobuf import VARINT, Field, fields, message, number

_LEAST_BYTES = 65536
"""Size in bytes below which mapping a weight is not worth it."""
_ONE_BYTE = [number for number, dtype in DTYPES.items() if np.dtype(dtype).itemsize == 1]
"""Types whose numbers have one byte each, and so may lie at any address."""
_EXTERNAL = 1
"""The value of `DATA_LOCATION` for numbers in another file."""


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
        except (LookupError, ValueError):  # ONNX Runtime will report it
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
            located = number(DATA_LOCATION << 3 | VARINT) + number(_EXTERNAL)
            kept = data[tensor.begin : raw.key] + data[raw.end : tensor.end]
            parts += [data[at : tensor.key], message(INITIALIZER, kept + reference + located)]
            at = tensor.end
        parts.append(data[at : graph.end])
        return data[: graph.key] + message(GRAPH, b"".join(parts)) + data[graph.end :]

    def _find(self) -> None:
        for field in fields(self._map, 0, len(self._map)):
            if field.number == GRAPH:
                self._graphs.append(field)
                for inner in fields(self._map, field.begin, field.end):
                    if inner.number == INITIALIZER:
                        self._note(inner)

    def _note(self, field: Field) -> None:
        tensor = read_tensor(self._map, field)
        raw = tensor.raw
        if raw is None or tensor.data_type not in _ONE_BYTE:
            return
        size = raw.end - raw.begin
        if size >= _LEAST_BYTES and size == math.prod(tensor.dims):
            array = np.frombuffer(self._map, DTYPES[tensor.data_type], size, raw.begin)
            self.arrays[tensor.name] = array.reshape(tensor.dims)
            self._cuts.append(_Cut(field, raw))


def _entry(key: str, value: str) -> bytes:
    """One entry of the external data that say where a tensor's numbers are."""
    return message(EXTERNAL_DATA, message(KEY, key.encode()) + message(VALUE, value.encode()))
