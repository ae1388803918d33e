"""A cache of graphs traced by torch.export."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import onnx
import onnx_ir
import pytest
from filelock import FileLock
from torch import nn
from torch.onnx import ONNXProgram
from torch.onnx._internal._lazy_import import onnxscript_apis

from export.graphs.tracing import rules_by_operator

Trace = Callable[..., onnx.ModelProto]


def remembering(trace: Trace, folder: Path) -> Trace:
    """`trace_graph` of `export.graphs.tracing` with a cache in `folder`.

    A trace depends on a module with its classes and the shapes of its weights. The weights are
    inserted afterwards, and the exporter's optimizer, which sees their values, runs once per set of
    values. Every caller gets its own copy of the graph. Processes may share the folder.
    """

    def traced(
        module: nn.Module, arguments: tuple[Any, ...], inputs: Any, outputs: Any
    ) -> onnx.ModelProto:
        path = folder / f"{_fingerprint(module, inputs, outputs)}.onnx"
        optimized = path.with_name(f"{path.stem}-{_values(module)}.onnx")
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                model = _unoptimized(trace, module, arguments, inputs, outputs)
                path.write_bytes(model.SerializeToString())
            if not optimized.exists():
                optimized.write_bytes(_optimized(module, path).SerializeToString())
        return onnx.load_model_from_string(optimized.read_bytes())

    return traced


def _optimized(module: nn.Module, path: Path) -> onnx.ModelProto:
    """The graph of a file with the weights of a module."""
    graph = onnx_ir.from_proto(onnx.load_model_from_string(path.read_bytes()))
    tensors = dict(chain(module.named_parameters(), module.named_buffers()))
    for name, weight in graph.graph.initializers.items():
        if name in tensors:
            weight.const_value = onnx_ir.tensor(tensors[name].detach().numpy(), name=name)
    with rules_by_operator():
        return onnx_ir.to_proto(onnxscript_apis.optimize(graph))


def _unoptimized(trace: Trace, module: nn.Module, *others: Any) -> onnx.ModelProto:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXProgram, "optimize", lambda program: None)
        return trace(module, *others)


def _values(module: nn.Module) -> str:
    found = hashlib.sha256()
    for tensor in chain(module.parameters(), module.buffers()):
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def _fingerprint(module: nn.Module, inputs: Any, outputs: Any) -> str:
    classes = [(name, type(part), part.extra_repr()) for name, part in module.named_modules()]
    config: Any = module.model.config  # type: ignore[union-attr]
    tensors = chain(module.named_parameters(), module.named_buffers())
    shapes = [(name, tensor.shape, tensor.dtype) for name, tensor in tensors]
    described = repr((classes, config, shapes, inputs, outputs))
    return hashlib.sha256(described.encode()).hexdigest()
