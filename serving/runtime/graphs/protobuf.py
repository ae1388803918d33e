"""Messages of protocol buffers, such as ONNX files, read and written field by field.

The package `onnx` would read the weights into memory, which here stay in the file.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import NamedTuple

VARINT, DELIMITED = 0, 2
"""Wire types."""
_FIXED64 = 1


class Field(NamedTuple):
    """A field of a message, by the positions of its bytes in the file."""

    number: int
    key: int
    """Position of the field's key."""
    begin: int
    """Position of the field's content; the value itself if the field is a number."""
    end: int
    """Position after the content; -1 if the field is a number."""


def fields(data: mmap.mmap | bytes, begin: int, end: int) -> Iterator[Field]:
    """Yield each field of a message; of a number of four or eight bytes the content is these bytes.

    Raises ValueError or IndexError if the bytes are no message.
    """
    while begin < end:
        key = begin
        tag, begin = _varint(data, begin)
        wire = tag & 7
        if wire == VARINT:
            value, begin = _varint(data, begin)
            yield Field(tag >> 3, key, value, -1)
        elif wire == DELIMITED:
            size, begin = _varint(data, begin)
            if begin + size > end:
                raise ValueError("a field ends after the message that contains it")
            yield Field(tag >> 3, key, begin, begin + size)
            begin += size
        else:
            size = 8 if wire == _FIXED64 else 4
            if begin + size > end:
                raise ValueError("a number ends after the message that contains it")
            yield Field(tag >> 3, key, begin, begin + size)
            begin += size


def varints(data: mmap.mmap | bytes, field: Field) -> list[int]:
    """The numbers of a field that may be packed."""
    if field.end < 0:
        return [field.begin]
    begin, found = field.begin, []
    while begin < field.end:
        value, begin = _varint(data, begin)
        found.append(value)
    return found


def signed(value: int) -> int:
    """The number of 64 bits that is written as this one without a sign."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _varint(data: mmap.mmap | bytes, begin: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[begin]
        begin += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, begin
        shift += 7


def number(value: int) -> bytes:
    """A number as `varints` reads it."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def message(field: int, content: bytes) -> bytes:
    """A field that contains bytes."""
    return number(field << 3 | DELIMITED) + number(len(content)) + content
