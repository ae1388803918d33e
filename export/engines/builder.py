"""One graph to one TensorRT engine, by the interface that TensorRT and TensorRT-RTX share."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from export.errors import ExportError
from serving.bundle.engines import Span
from serving.runtime.gpu.tensorrt_library import TensorRT
from training.runs.checkpoint import write_atomically

Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Least, usual and largest shape of an input."""
_ATTENTION = "ATTENTION"
"""In the types of layers."""


@dataclass(frozen=True)
class BuiltEngine:
    """What a builder made of a graph."""

    content: bytes
    seconds: float


class EngineBuilder:
    """Builds engines with one library, and keeps what it has timed for the next ones."""

    def __init__(self, library: TensorRT, timing_cache: Path | None) -> None:
        """`timing_cache` is read where it exists, and written after each engine."""
        self._library, self._timing_cache = library, timing_cache

    def build(self, model: onnx.ModelProto, shapes: Mapping[str, Shapes], name: str) -> BuiltEngine:
        """The engine of a graph for inputs of such shapes.

        Raises ExportError with what the library says: of a node that it cannot read, with the
        node's name and operator.
        """
        begin = time.perf_counter()
        trt: Any = self._library.module
        log = self._library.logger()
        builder = trt.Builder(log)
        network = builder.create_network(_flags(trt))
        parser = trt.OnnxParser(network, log)
        if not parser.parse(model.SerializeToString()):
            errors = [parser.get_error(place) for place in range(parser.num_errors)]
            raise ExportError(f"{name}: {self._says} cannot read {_tell(errors)}")
        _let_decompose(trt, network)
        profile = builder.create_optimization_profile()
        for input_name, (least, usual, largest) in shapes.items():
            profile.set_shape(input_name, least, usual, largest)
        config = builder.create_builder_config()
        config.add_optimization_profile(profile)
        cache = self._read_timing_cache(config)
        engine = _build(trt, builder, network, config)
        if engine is None:
            raise ExportError(
                f"{name}: {self._says} builds no engine: "
                f"{'; '.join(log.errors) or 'no reason given'}; narrow --profile, or serve the "
                "bundle without engines"
            )
        if self._timing_cache is not None and cache is not None:
            write_atomically(self._timing_cache, bytes(cache.serialize()))
        return BuiltEngine(bytes(engine), time.perf_counter() - begin)

    @property
    def _says(self) -> str:
        return f"{self._library.name} {self._library.version}"

    def _read_timing_cache(self, config: Any) -> Any:
        """The timings of earlier builds, which the builder adds to; None where there are to be
        none. What is of another GPU or version is not used."""
        if self._timing_cache is None:
            return None
        content = self._timing_cache.read_bytes() if self._timing_cache.exists() else b""
        cache = config.create_timing_cache(content)
        if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
            cache = config.create_timing_cache(b"")
            if cache is not None and not config.set_timing_cache(cache, ignore_mismatch=False):
                return None
        return cache


def input_shapes(
    model: onnx.ModelProto, axes: Mapping[str, tuple[str | int, ...]], spans: Mapping[str, Span]
) -> dict[str, Shapes]:
    """The shapes of a graph's inputs; `axes` are those of the manifest, by name."""
    shapes: dict[str, Shapes] = {}
    for value in model.graph.input:
        found = list(axes[value.name])
        dims = value.type.tensor_type.shape.dim
        if len(found) < len(dims):  # caches that `static_caches` gave an axis more
            found.insert(1, 1)
        sizes = [
            (dim.dim_value,) * 3 if dim.dim_value else spans[str(axis)]
            for dim, axis in zip(dims, found, strict=True)
        ]
        least, usual, largest = (tuple(size[place] for size in sizes) for place in range(3))
        shapes[value.name] = (least, usual, largest)
    return shapes


def _build(trt: Any, builder: Any, network: Any, config: Any) -> Any:
    """The engine, where it can be had with memory that the session gives: TensorRT-RTX lets CUDA
    graphs be captured of such alone, and wants more for some than there is. TensorRT gives no
    choice."""
    by_session = getattr(trt.BuilderFlag, "REQUIRE_USER_ALLOCATION", None)
    if by_session is not None:
        config.set_flag(by_session)
        engine = builder.build_serialized_network(network, config)
        if engine is not None:
            return engine
        config.clear_flag(by_session)
    return builder.build_serialized_network(network, config)


def _flags(trt: Any) -> int:
    """Types stand in the graph; version 11 knows no other networks, and has the flag still."""
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    return 0 if flag is None else 1 << int(flag)


def _let_decompose(trt: Any, network: Any) -> None:
    """Let attention be computed by several kernels where the library has none that does it in one,
    as in fp32; without this it refuses. The parser leaves layers untyped."""
    for place in range(network.num_layers):
        layer = network.get_layer(place)
        if _ATTENTION in str(layer.type):
            layer.__class__ = trt.IAttentionInputLayer
            layer.attention.decomposable = True


def _tell(errors: list[Any]) -> str:
    """The first thing that a parser says, with its node; a refused cache is named by several."""
    if not errors:
        return "it, and gives no reason"
    first = errors[0]
    node = f"node {first.node_name()!r} ({first.node_operator()})"
    more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    return f"{node}: {' '.join(first.desc().split())}{more}"
