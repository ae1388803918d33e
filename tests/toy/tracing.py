"""A cache of graphs traced by torch.export."""

from __future__ import annotations

import functools
import hashlib
import inspect
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
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

ROOT = Path(__file__).parents[2]
_TRACED = ("training/models", "export/graphs", "serving/bundle/graph.py", "serving/search/ids.py")
"""What a trace depends on beside the classes of its module."""
_TRACERS = ("torch", "onnx", "onnxscript", "onnx-ir")
_DAY = 24 * 3600


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


def kept_from_run_to_run(folder: Path) -> Path:
    """The part of a folder whose graphs were traced by the code as it is now.

    Parts of other code that no run has used for a day are removed.
    """
    found = hashlib.sha256(repr([sys.version, *map(version, _TRACERS)]).encode())
    files = chain.from_iterable(_python_files(ROOT / name) for name in _TRACED)
    for file in [*sorted(files), Path(__file__)]:
        found.update(file.read_bytes())
    part = folder / found.hexdigest()[:16]
    part.mkdir(parents=True, exist_ok=True)
    part.touch()
    for other in folder.iterdir():
        if other.stat().st_mtime < time.time() - _DAY:
            shutil.rmtree(other, ignore_errors=True)
    return part


def _python_files(path: Path) -> Iterable[Path]:
    return path.rglob("*.py") if path.is_dir() else [path]


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
    classes = [
        (name, type(part), _source(type(part)), part.extra_repr())
        for name, part in module.named_modules()
    ]
    config: Any = module.model.config  # type: ignore[union-attr]
    tensors = chain(module.named_parameters(), module.named_buffers())
    shapes = [(name, tensor.shape, tensor.dtype) for name, tensor in tensors]
    described = repr((classes, config, shapes, inputs, outputs))
    return hashlib.sha256(described.encode()).hexdigest()


@functools.cache
def _source(kind: type) -> str:
    """Names the code of a class of this repository, such as a block of a test's own, and of what it
    is derived from."""
    found = hashlib.sha256()
    for each in kind.__mro__[:-1]:  # object has no file
        file = Path(inspect.getfile(each))
        if file.is_relative_to(ROOT) and "site-packages" not in file.parts:
            found.update(file.read_bytes())
    return found.hexdigest()
