"""Weights that two graphs of a bundle have in common, such as tied embeddings, stored once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx.external_data_helper import set_external_data

_LEAST_BYTES = 1 << 16
_PAGE = 4096
"""What begins with a page is read in place."""


def share_weights(models: Sequence[onnx.ModelProto], file: Path) -> None:
    """Move initializers that several models hold into a file beside them, if there are any.

    The models are changed in place: they refer to the file by its name.
    """
    places: dict[bytes, list[onnx.TensorProto]] = {}
    for model in models:
        for tensor in model.graph.initializer:
            if len(tensor.raw_data) >= _LEAST_BYTES:
                places.setdefault(tensor.raw_data, []).append(tensor)
    content = bytearray()
    for data, tensors in places.items():
        if len(tensors) < 2:
            continue
        content += bytes(-len(content) % _PAGE)
        for tensor in tensors:
            set_external_data(tensor, file.name, offset=len(content), length=len(data))
            tensor.ClearField("raw_data")
        content += data
    if content:
        file.write_bytes(content)
