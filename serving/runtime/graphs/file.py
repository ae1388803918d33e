"""The nodes and constants of an ONNX file, as far as a program needs them
(`serving.runtime.cpu_graphs`)."""

from __future__ import annotations

import functools
import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serving.runtime.graphs.protobuf import Field, fields, signed, varints

DTYPES: dict[int, type[np.generic]] = {
    1: np.float32,
    2: np.uint8,
    3: np.int8,
    6: np.int32,
    7: np.int64,
}
"""Types of numbers by their number in onnx.proto."""
# Fields of onnx.proto.
GRAPH, _MODEL_OPSET = 7, 8
_NODE, INITIALIZER, _INPUT, _OUTPUT = 1, 5, 11, 12
_NODE_INPUT, _NODE_OUTPUT, _NODE_OP, _NODE_ATTRIBUTE, _NODE_DOMAIN = 1, 2, 4, 5, 7
_ATTRIBUTE_NAME, _ATTRIBUTE_FLOAT, _ATTRIBUTE_INT, _ATTRIBUTE_INTS, _ATTRIBUTE_TYPE = 1, 2, 3, 8, 20
_FLOAT_TYPE, _INT_TYPE, _INTS_TYPE = 1, 2, 7
_FLOAT_BYTES = 4
_DIMS, _DATA_TYPE, _TENSOR_NAME, RAW_DATA = 1, 2, 8, 9
EXTERNAL_DATA, DATA_LOCATION = 13, 14
KEY, VALUE = 1, 2
_VALUE_NAME, _VALUE_TYPE = 1, 2
_TENSOR_TYPE, _ELEMENT, _SHAPE, _DIM, _DIM_VALUE, _DIM_NAME = 1, 1, 2, 1, 1, 2
_OPSET_DOMAIN, _OPSET_VERSION = 1, 2


class Node(NamedTuple):
    """A call of an operator; an input that is missing is an empty name."""

    domain: str
    operator: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: dict[str, float | None]
    """Numbers by name; None for an attribute that is not a number. Those of a list `perm` have the
    names `perm.0`, `perm.1` and so on; an empty one counts as no number."""


class ValueInfo(NamedTuple):
    """An input or output of the graph."""

    name: str
    dtype: str | None
    """The name of the type of its numbers; None for types that are not known."""
    shape: Sequence[int | str | None]


class StoredTensor(NamedTuple):
    """What a message of onnx.proto says of a constant."""

    name: str
    data_type: int
    dims: Sequence[int]
    raw: Field | None
    """The numbers as bytes, if they are in the message."""
    elsewhere: Mapping[str, str]
    """Where the numbers are, if they are in another file."""


def read_tensor(data: mmap.mmap, tensor: Field) -> StoredTensor:
    """Read the message of a constant, without its numbers.

    Raises ValueError, KeyError or IndexError if it is damaged.
    """
    dims, data_type, name = list[int](), 0, ""
    raw, elsewhere = None, dict[str, str]()
    for each in fields(data, tensor.begin, tensor.end):
        if each.number == _DIMS:
            dims += varints(data, each)
        elif each.number == _DATA_TYPE:
            data_type = each.begin
        elif each.number == _TENSOR_NAME:
            name = data[each.begin : each.end].decode()
        elif each.number == RAW_DATA:
            raw = each
        elif each.number == EXTERNAL_DATA:
            pair = {part.number: part for part in fields(data, each.begin, each.end)}
            key, value = (data[pair[part].begin : pair[part].end].decode() for part in (KEY, VALUE))
            elsewhere[key] = value
    return StoredTensor(name, data_type, dims, raw, elsewhere)


class GraphFile:
    """An ONNX file with one graph, mapped; its constants are read when they are asked for."""

    def __init__(self, file: Path) -> None:
        """Raises OSError if the file cannot be read, and ValueError, KeyError or IndexError if it
        is damaged."""
        self.opsets: dict[str, int] = {}
        """Versions by domain."""
        self.nodes: list[Node] = []
        """In an order in which they can run."""
        self.inputs: list[ValueInfo] = []
        self.outputs: list[ValueInfo] = []
        self._folder, self._tensors = file.parent, list[Field]()
        self._maps: dict[str, mmap.mmap] = {}
        """The mapped files by name: first the ONNX file, then those that it refers to."""
        self._data = self._mapped(file.name)
        for each in fields(self._data, 0, len(self._data)):
            if each.number == GRAPH:
                self._read_graph(each)
            elif each.number == _MODEL_OPSET:
                inner = self._inner(each)
                domain = self._text(inner.get(_OPSET_DOMAIN))
                self.opsets[domain] = inner[_OPSET_VERSION].begin

    @functools.cached_property
    def constants(self) -> dict[str, NDArray[Any]]:
        """By name. Those of one byte per number stay in the mapped file, the others are copied.

        Raises OSError if a file that they lie in cannot be read, and ValueError or KeyError if one
        is of another kind or damaged.
        """
        return dict(map(self._constant, self._tensors))

    def place(self) -> tuple[int, int]:
        """The address of the mapped ONNX file, and its size in bytes."""
        whole = np.frombuffer(self._data, np.uint8)
        return whole.ctypes.data, whole.size

    def release(self) -> None:
        """Let the system release the pages that have been read; they are read again when they are
        needed."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for each in self._maps.values():
                each.madvise(mmap.MADV_DONTNEED)

    def _mapped(self, name: str) -> mmap.mmap:
        if name not in self._maps:
            with (self._folder / name).open("rb") as opened:
                self._maps[name] = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        return self._maps[name]

    def _fields(self, outer: Field) -> Iterator[Field]:
        return fields(self._data, outer.begin, outer.end)

    def _inner(self, outer: Field) -> dict[int, Field]:
        """The fields of a message, of which each number is there once at most."""
        return {each.number: each for each in self._fields(outer)}

    def _text(self, each: Field | None) -> str:
        return "" if each is None else self._data[each.begin : each.end].decode()

    def _read_graph(self, graph: Field) -> None:
        if self.nodes:
            raise ValueError("the file has several graphs")
        for each in self._fields(graph):
            if each.number == _NODE:
                self.nodes.append(self._node(each))
            elif each.number == INITIALIZER:
                self._tensors.append(each)
            elif each.number == _INPUT:
                self.inputs.append(self._value(each))
            elif each.number == _OUTPUT:
                self.outputs.append(self._value(each))

    def _node(self, node: Field) -> Node:
        inputs, outputs, attributes = list[str](), list[str](), dict[str, float | None]()
        operator = domain = ""
        for each in self._fields(node):
            if each.number == _NODE_INPUT:
                inputs.append(self._text(each))
            elif each.number == _NODE_OUTPUT:
                outputs.append(self._text(each))
            elif each.number == _NODE_OP:
                operator = self._text(each)
            elif each.number == _NODE_DOMAIN:
                domain = self._text(each)
            elif each.number == _NODE_ATTRIBUTE:
                attributes |= self._attribute(each)
        return Node(domain, operator, inputs, outputs, attributes)

    def _attribute(self, attribute: Field) -> dict[str, float | None]:
        listed = [each for each in self._fields(attribute) if each.number == _ATTRIBUTE_INTS]
        inner = self._inner(attribute)
        name = self._text(inner.get(_ATTRIBUTE_NAME))
        if inner[_ATTRIBUTE_TYPE].begin != _INTS_TYPE:
            return {name: self._number(inner)}
        numbers = [signed(number) for each in listed for number in varints(self._data, each)]
        named: dict[str, float | None] = {
            f"{name}.{place}": number for place, number in enumerate(numbers)
        }
        return named or {name: None}

    def _number(self, attribute: dict[int, Field]) -> float | None:
        kind = attribute[_ATTRIBUTE_TYPE].begin
        if kind == _INT_TYPE:
            return signed(attribute[_ATTRIBUTE_INT].begin) if _ATTRIBUTE_INT in attribute else 0
        if kind == _FLOAT_TYPE:
            if _ATTRIBUTE_FLOAT not in attribute:
                return 0.0
            written = attribute[_ATTRIBUTE_FLOAT]
            if written.end - written.begin != _FLOAT_BYTES:
                raise ValueError("a number of an attribute has another form")
            found: float = struct.unpack_from("<f", self._data, written.begin)[0]
            return found
        return None

    def _constant(self, field: Field) -> tuple[str, NDArray[Any]]:
        tensor = read_tensor(self._data, field)
        if tensor.data_type not in DTYPES:
            raise ValueError("a constant has another type of numbers")
        dtype = np.dtype(DTYPES[tensor.data_type])
        count = int(np.prod(tensor.dims, dtype=np.int64))
        data, begin, size = self._data, 0, 0
        if tensor.elsewhere:
            location = tensor.elsewhere["location"]
            if Path(location).name != location:
                raise ValueError("constants must lie in a file of the same folder")
            data = self._mapped(location)
            begin, size = int(tensor.elsewhere.get("offset", "0")), int(tensor.elsewhere["length"])
        elif tensor.raw is not None:
            begin, size = tensor.raw.begin, tensor.raw.end - tensor.raw.begin
        if size != count * dtype.itemsize:
            raise ValueError("a constant is not stored as plain bytes")
        array = np.frombuffer(data, dtype, count, begin).reshape(tensor.dims)
        # Longer numbers may lie at any address in the file, where no kernel may read them.
        return tensor.name, array if dtype.itemsize == 1 else array.copy()

    def _value(self, value: Field) -> ValueInfo:
        inner = self._inner(value)
        name = self._text(inner.get(_VALUE_NAME))
        if _VALUE_TYPE not in inner:
            return ValueInfo(name, None, ())
        kind = self._inner(self._inner(inner[_VALUE_TYPE])[_TENSOR_TYPE])
        dtype = DTYPES.get(kind[_ELEMENT].begin)
        shape: list[int | str | None] = []
        for dim in self._fields(kind[_SHAPE]) if _SHAPE in kind else ():
            size = self._inner(dim)
            named = self._text(size[_DIM_NAME]) if _DIM_NAME in size else None
            shape.append(size[_DIM_VALUE].begin if _DIM_VALUE in size else named)
        return ValueInfo(name, None if dtype is None else dtype.__name__, shape)
