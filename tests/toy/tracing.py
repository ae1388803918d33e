"""Graphs that torch.export has traced before."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from copy import copy
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import onnx
from filelock import FileLock
from torch import nn

Trace = Callable[..., onnx.ModelProto]


def remembering(trace: Trace, folder: Path) -> Trace:
    """`trace` of `export.graphs.onnx_graph`, which reads from `folder` what it has traced before.

    A graph is that of a module with its classes, its weights, and its inputs and outputs. All who
    ask for one get a copy of their own, which they may change. Processes may share the folder.
    """

    def traced(
        module: nn.Module, arguments: tuple[Any, ...], inputs: Any, outputs: Any
    ) -> onnx.ModelProto:
        path = folder / f"{_fingerprint(module, inputs, outputs)}.onnx"
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                path.write_bytes(trace(module, arguments, inputs, outputs).SerializeToString())
        return onnx.load_model_from_string(path.read_bytes())

    return traced


def made_once(make_registry: Callable[..., Any]) -> Callable[..., Any]:
    """`make_registry` of torch.onnx's operators, a sixth of the time of a small graph, which makes
    one of each opset; an export gets a copy, to which it may add its own."""
    make = cache(make_registry)

    def made(*, opset_version: int) -> Any:
        registry = copy(make(opset_version=opset_version))
        registry.functions = {target: list(known) for target, known in registry.functions.items()}
        return registry

    return made


def _fingerprint(module: nn.Module, inputs: Any, outputs: Any) -> str:
    classes = [(name, type(part), part.extra_repr()) for name, part in module.named_modules()]
    config: Any = module.model.config  # type: ignore[union-attr]
    found = hashlib.sha256(repr((classes, config, inputs, outputs)).encode())
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        found.update(name.encode())
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()
