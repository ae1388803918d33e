"""The TensorRT engines of a manifest, and the check of an engine's file against its hash."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt, field_validator

from serving.bundle.strict import Strict

Library = Literal["tensorrt", "tensorrt_rtx"]
ANY_GPU = "any"
Span = tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt]
"""Smallest, usual and largest size of an axis; an engine is tuned for the usual one."""


class EngineFile(Strict):
    """A graph compiled by TensorRT for a range of sizes, and for one GPU or any.

    The graph itself stays in the bundle. It is run if the engine does not fit.
    """

    file: str
    graph: str
    """Name of the ONNX file that the engine was built from."""
    capacity: PositiveInt | None = None
    """Number of cache slots; null if the graph has no caches."""
    library: Library
    version: str
    """Version of that library. An engine runs only with the version that built it."""
    gpu: str
    """Name of the GPU that the engine was built for, or `any`."""
    compute_capability: str | None = None
    """Compute capability of that GPU, such as 9.0; null for any GPU."""
    precision: Literal["fp32", "fp16", "bf16"]
    profile: dict[str, Span]
    """Sizes that the engine accepts, by axis letter."""
    bytes: PositiveInt
    build_seconds: NonNegativeFloat
    sha256: str
    """SHA-256 of the engine's file. `files` of the manifest does not list engines: if one is
    damaged, the graph is run instead."""

    @field_validator("file")
    @classmethod
    def _is_plain_name(cls, name: str) -> str:
        if name != Path(name).name or name == "..":
            raise ValueError("must be the plain name of a file in the bundle")
        return name

    def takes(self, sizes: Mapping[str, int]) -> bool:
        """Whether the engine accepts these sizes, given by axis letter."""
        capacity = self.capacity is None or self.capacity == sizes["C"]
        spans = self.profile.items()
        return capacity and all(low <= sizes[axis] <= high for axis, (low, _, high) in spans)
