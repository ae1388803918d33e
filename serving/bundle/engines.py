"""What a manifest says of TensorRT engines, and whether an engine's file is the one it means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt, field_validator

from serving.bundle.strict import Strict

Library = Literal["tensorrt", "tensorrt_rtx"]
ANY_GPU = "any"
Span = tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt]
"""Least, usual and largest size of an axis; an engine is tuned for the second."""


class EngineFile(Strict):
    """One graph as compiled by TensorRT: for some sizes, and for one GPU or for any.

    The graph itself stays in the bundle: it is run where the engine does not fit.
    """

    file: str
    graph: str
    """Name of the ONNX file that it was built from."""
    capacity: PositiveInt | None = None
    """How many slots its caches have; null where it has none."""
    library: Library
    version: str
    """Of that library, which reads no engine of another one."""
    gpu: str
    """Name of the GPU for which it was built, or `any`."""
    compute_capability: str | None = None
    """Of that GPU, such as 9.0; null for any."""
    precision: Literal["fp32", "fp16", "bf16"]
    profile: dict[str, Span]
    """Sizes of axes, by letter, for which it runs."""
    bytes: PositiveInt
    build_seconds: NonNegativeFloat
    sha256: str
    """Of the file. `files` of the manifest leaves engines out: a damaged one is not run, and its
    graph is."""

    @field_validator("file")
    @classmethod
    def _is_plain_name(cls, name: str) -> str:
        if name != Path(name).name or name == "..":
            raise ValueError("must be the plain name of a file in the bundle")
        return name

    def takes(self, sizes: Mapping[str, int]) -> bool:
        """Whether it runs for these sizes of axes, by letter."""
        capacity = self.capacity is None or self.capacity == sizes["C"]
        spans = self.profile.items()
        return capacity and all(low <= sizes[axis] <= high for axis, (low, _, high) in spans)
