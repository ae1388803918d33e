"""The file `model.bin` of CTranslate2, written from its documented layout."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from tests.unit.export.importing.small_bart import random_tensors

DIM, FFN, SIZE = 8, 12, 6
TYPES = ["f4", "i1", "i2", "i4", "f2"]


def text(value: str) -> bytes:
    return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"


def variable(name: str, value: np.ndarray) -> bytes:
    kind = TYPES.index(value.dtype.str[1:])
    head = struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)
    return text(name) + head + struct.pack("<BI", kind, value.nbytes) + value.tobytes()


def write_spec(
    path: Path,
    variables: Mapping[str, Any],
    aliases: Mapping[str, str] | None = None,
    *,
    spec: str = "TransformerSpec",
    version: int = 6,
) -> None:
    """Variables by name, each of which may be another's by an alias."""
    parts = [struct.pack("<I", version), text(spec), struct.pack("<II", 7, len(variables))]
    parts += [variable(name, np.asarray(value)) for name, value in variables.items()]
    parts.append(struct.pack("<I", len(aliases or {})))
    parts += [text(alias) + text(name) for alias, name in (aliases or {}).items()]
    path.write_bytes(b"".join(parts))


def spec_tensors(size: int = SIZE, source_size: int | None = None) -> dict[str, Tensor]:
    """A pre-norm Transformer of one layer a side."""
    shapes: dict[str, tuple[int, ...]] = {
        "encoder/embeddings_0/weight": (source_size or size, DIM),
        "decoder/embeddings/weight": (size, DIM),
        "decoder/projection/weight": (size, DIM),
        "decoder/projection/bias": (size,),
    }

    def norm(name: str) -> None:
        shapes[f"{name}/gamma"] = shapes[f"{name}/beta"] = (DIM,)

    def linear(name: str, rows: int, columns: int = DIM) -> None:
        shapes[f"{name}/weight"], shapes[f"{name}/bias"] = (rows, columns), (rows,)

    for side in ("encoder", "decoder"):
        layer = f"{side}/layer_0"
        norm(f"{side}/layer_norm")
        norm(f"{layer}/self_attention/layer_norm")
        linear(f"{layer}/self_attention/linear_0", 3 * DIM)
        linear(f"{layer}/self_attention/linear_1", DIM)
        if side == "decoder":
            norm(f"{layer}/attention/layer_norm")
            for number, rows in enumerate((DIM, 2 * DIM, DIM)):
                linear(f"{layer}/attention/linear_{number}", rows)
        norm(f"{layer}/ffn/layer_norm")
        linear(f"{layer}/ffn/linear_0", FFN)
        linear(f"{layer}/ffn/linear_1", DIM, FFN)
    found = random_tensors(shapes)
    if source_size is None:
        found["encoder/embeddings_0/weight"] = found["decoder/embeddings/weight"].clone()
    found["decoder/projection/weight"] = found["decoder/embeddings/weight"].clone()
    return found


OPTIONS = {
    f"{side}/{name}": value
    for side in ("encoder", "decoder")
    for name, value in {"num_heads": 2.0, "activation": 0.0, "pre_norm": 1.0}.items()
}


def arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """The tensors and the options as variables of a file."""
    found = {name: tensor.numpy() for name, tensor in tensors.items()}
    return found | {name: np.array(value, np.float32) for name, value in OPTIONS.items()}


def gates(tensors: dict[str, Tensor]) -> None:
    """Give both feed-forwards a gate."""
    for side in ("encoder", "decoder"):
        there = f"{side}/layer_0/ffn"
        for kind in ("weight", "bias"):
            tensors[f"{there}/linear_0_noact/{kind}"] = tensors[f"{there}/linear_0/{kind}"] + 1
