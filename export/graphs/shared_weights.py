"""Weights outside the graph files: those that two graphs share, such as tied embeddings, and those
of a graph that is too large for one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx.external_data_helper import set_external_data

LEAST_BYTES = 1 << 16
"""Smallest size in bytes of a weight that is stored outside."""
MOST_BYTES = (1 << 31) - (1 << 24)
"""Largest number of bytes of weights in a graph's own file: protobuf writes less than 2 GiB, nodes
included."""
_PAGE = 4096
"""Alignment: data that starts at a page is read in place."""


def share_weights(
    models: Sequence[onnx.ModelProto],
    file: Path,
    *,
    least_bytes: int = LEAST_BYTES,
    most_bytes: int = MOST_BYTES,
) -> None:
    """Move shared initializers, and all initializers of a model with more than `most_bytes` of
    them, into a file beside the graphs; those below `least_bytes` stay.

    Changes the models in place: they refer to the file by name.
    """
    places: dict[bytes, list[onnx.TensorProto]] = {}
    moved: set[bytes] = set()
    for model in models:
        large = [t for t in model.graph.initializer if len(t.raw_data) >= least_bytes]
        for tensor in large:
            places.setdefault(tensor.raw_data, []).append(tensor)
        if sum(len(tensor.raw_data) for tensor in large) > most_bytes:
            moved.update(tensor.raw_data for tensor in large)
    moved.update(data for data, tensors in places.items() if len(tensors) > 1)
    if not moved:
        return
    with file.open("wb") as out:
        for data, tensors in places.items():
            if data not in moved:
                continue
            out.write(bytes(-out.tell() % _PAGE))
            for tensor in tensors:
                set_external_data(tensor, file.name, offset=out.tell(), length=len(data))
                tensor.ClearField("raw_data")
            out.write(data)
