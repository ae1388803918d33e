"""The int8 weights of a graph, as they lie in its file.

ONNX Runtime copies what it reads; a kernel that lays a weight out anew leaves that copy unused.
Weights that are mapped from the file take no memory that could not be used for other things.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEAST_BYTES = 65536
"""Smaller weights are not worth it."""
_DTYPES = {2: np.uint8, 3: np.int8}
"""Of one byte, so that they may lie anywhere; by their numbers in onnx.proto."""
# Fields of onnx.proto.
_GRAPH, _INITIALIZER = 7, 5
_DIMS, _DATA_TYPE, _NAME, _RAW_DATA = 1, 2, 8, 9
# Wire types of protocol buffers.
_VARINT, _FIXED64, _DELIMITED = 0, 1, 2

_Field = tuple[int, int, int]


class MappedWeights:
    """The larger weights of one byte an element that an ONNX file holds itself, by name."""

    def __init__(self, file: Path) -> None:
        """Map the file; raises OSError where it cannot be read. Of one that is no ONNX file there
        are none."""
        self.arrays: dict[str, NDArray[Any]] = {}
        if not file.stat().st_size:
            return
        with file.open("rb") as opened:
            self._map = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            self._find()
        except (IndexError, ValueError, UnicodeDecodeError):  # ONNX Runtime will say what it is
            self.arrays.clear()

    def release(self) -> None:
        """Let the system take what has been read; it is read again where it is needed."""
        if self.arrays and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def _find(self) -> None:
        for number, begin, end in _fields(self._map, 0, len(self._map)):
            if number == _GRAPH:
                for inner, first, last in _fields(self._map, begin, end):
                    if inner == _INITIALIZER:
                        self._note(first, last)

    def _note(self, begin: int, end: int) -> None:
        dims: list[int] = []
        data_type, name, raw = 0, "", (0, 0)
        for number, first, last in _fields(self._map, begin, end):
            if number == _DIMS and last < 0:
                dims.append(first)
            elif number == _DIMS:
                dims += _varints(self._map, first, last)
            elif number == _DATA_TYPE:
                data_type = first
            elif number == _NAME:
                name = self._map[first:last].decode()
            elif number == _RAW_DATA:
                raw = first, last
        size = raw[1] - raw[0]
        if data_type in _DTYPES and size >= _LEAST_BYTES and size == math.prod(dims):
            array = np.frombuffer(self._map, _DTYPES[data_type], size, raw[0])
            self.arrays[name] = array.reshape(dims)


def _fields(data: mmap.mmap, begin: int, end: int) -> Iterator[_Field]:
    """Each field's number, and where its bytes begin and end; of a number itself and -1."""
    while begin < end:
        key, begin = _varint(data, begin)
        wire = key & 7
        if wire == _VARINT:
            value, begin = _varint(data, begin)
            yield key >> 3, value, -1
        elif wire == _DELIMITED:
            size, begin = _varint(data, begin)
            if begin + size > end:
                raise ValueError("a field ends behind the message that it is in")
            yield key >> 3, begin, begin + size
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
