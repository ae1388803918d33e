"""The inputs and outputs of a bundle's graphs, as its manifest names them."""

from __future__ import annotations

import math
from collections import Counter
from typing import Literal, Self

from pydantic import field_validator, model_validator

from serving.bundle.strict import Strict

DType = Literal["int64", "int32", "float32", "float16", "bfloat16"]
_LETTERS = frozenset(("B", "K", "Q", "C", "S", "D", "V", "N", "R", "T", "M", "BS", "L"))
_REPEATED = ("self", "state", "source")
"""Roles that several inputs or outputs of a graph may have."""
FLOAT_BYTES: dict[DType, int] = {"float32": 4, "float16": 2, "bfloat16": 2}
Role = Literal[
    "token",
    "position",
    "slot_position",
    "ancestor",
    "write_index",
    "visible",
    "score",
    "label",
    "self",
    "state",
    "source",
    "source_mask",
    "candidate_score",
    "candidate_token",
    "candidate_parent",
    "label_score",
    "logits",
    "output_index",
    "top_rank",
    "top_score",
    "top_token",
    "alignment",
    "alignment_query",
    "column",
    "segment",
    "slot",
    "packed_row",
    "vector",
    "class_score",
]


class Tensor(Strict):
    """An input or output of a graph."""

    name: str
    dtype: DType
    axes: tuple[str | int, ...]
    """Axes by letter (B K Q C S D V N R T; M for rows of logits or ids of packed texts; BS = B * S;
    L for pieces of the longest shortlist) or by fixed size."""
    role: Role

    @field_validator("axes")
    @classmethod
    def _are_known(cls, axes: tuple[str | int, ...]) -> tuple[str | int, ...]:
        for axis in axes:
            if (axis not in _LETTERS) if isinstance(axis, str) else (axis < 1):
                raise ValueError(f"an axis must be a known letter or a number from 1 on: {axis!r}")
        return axes

    @model_validator(mode="after")
    def _caches_are_floats(self) -> Self:
        if self.is_cache and self.dtype not in FLOAT_BYTES:
            raise ValueError(f"the cache {self.name!r} must be one of {', '.join(FLOAT_BYTES)}")
        return self

    @property
    def slot_size(self) -> int:
        """Number of numbers in one slot of a row, if this is a cache."""
        return math.prod(axis for axis in self.axes if isinstance(axis, int))

    @property
    def is_cache(self) -> bool:
        """Whether the tensor is a cache, which each step reads and writes in place."""
        return self.role in ("self", "state")


class Graph(Strict):
    """An ONNX file, and the inputs and outputs of its graph by role."""

    file: str
    opset: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @field_validator("inputs", "outputs")
    @classmethod
    def _have_their_own_roles(cls, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        for role, count in Counter(tensor.role for tensor in tensors).items():
            if count > 1 and role not in _REPEATED:
                raise ValueError(f"only one may have the role {role!r}")
        return tensors
