"""Builds a TensorRT engine of one graph, by the common interface of TensorRT and TensorRT-RTX."""

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
"""Smallest, usual and largest shape of an input."""
_ATTENTION = "ATTENTION"
"""Part of the name of each attention layer's type."""


@dataclass(frozen=True)
class BuiltEngine:
    """An engine that a builder has made."""

    content: bytes
    seconds: float


class EngineBuilder:
    """Builds engines with one library and caches its timings for later builds."""

    def __init__(self, library: TensorRT, timing_cache: Path | None) -> None:
        """`timing_cache` is read if it exists, and written after each engine."""
        self._library, self._timing_cache = library, timing_cache

    def build(self, model: onnx.ModelProto, shapes: Mapping[str, Shapes], name: str) -> BuiltEngine:
        """Build the engine of a graph for these input shapes.

        Raises ExportError with the library's message; for an unsupported node, with its name and
        operator.
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
        """The timings of earlier builds, to which the builder adds; None without a cache. Timings
        of another GPU or version are ignored."""
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
    """The shapes of a graph's inputs; `axes` are the axes of the manifest, by name."""
    shapes: dict[str, Shapes] = {}
    for value in model.graph.input:
        found = list(axes[value.name])
        dims = value.type.tensor_type.shape.dim
        if len(found) < len(dims):  # caches with the additional axis of `static_caches`
            found.insert(1, 1)
        sizes = [
            (dim.dim_value,) * 3 if dim.dim_value else spans[str(axis)]
            for dim, axis in zip(dims, found, strict=True)
        ]
        least, usual, largest = (tuple(size[place] for size in sizes) for place in range(3))
        shapes[value.name] = (least, usual, largest)
    return shapes


def _build(trt: Any, builder: Any, network: Any, config: Any) -> Any:
    """Build the engine, if possible with activation memory that the session provides: TensorRT-RTX
    captures CUDA graphs of such engines only, and some need more memory than exists. TensorRT has
    no such choice."""
    by_session = getattr(trt.BuilderFlag, "REQUIRE_USER_ALLOCATION", None)
    if by_session is not None:
        config.set_flag(by_session)
        engine = builder.build_serialized_network(network, config)
        if engine is not None:
            return engine
        config.clear_flag(by_session)
    return builder.build_serialized_network(network, config)


def _flags(trt: Any) -> int:
    """Types are fixed in the graph; version 11 supports no other networks but still has the
    flag."""
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    return 0 if flag is None else 1 << int(flag)


def _let_decompose(trt: Any, network: Any) -> None:
    """Allow attention to be computed by several kernels if there is no fused one, as in fp32;
    otherwise the library refuses. The parser does not type layers."""
    for place in range(network.num_layers):
        layer = network.get_layer(place)
        if _ATTENTION in str(layer.type):
            layer.__class__ = trt.IAttentionInputLayer
            layer.attention.decomposable = True


def _tell(errors: list[Any]) -> str:
    """The parser's first error with its node; a refused cache is reported by several nodes."""
    if not errors:
        return "it, and gives no reason"
    first = errors[0]
    node = f"node {first.node_name()!r} ({first.node_operator()})"
    more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    return f"{node}: {' '.join(first.desc().split())}{more}"
