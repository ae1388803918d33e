"""A module becomes a graph of ONNX, through torch.onnx, at the opset of this project."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import onnx
import torch
from torch import nn
from torch.export import Dim

from serving.bundle.graph import Tensor
from training.models.operators.traced import OPSET


def trace_graph(
    module: nn.Module,
    arguments: tuple[Any, ...],
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
) -> onnx.ModelProto:
    """The graph of a module in evaluation, fp32, for example arguments; axes of `inputs` that have
    a name may have any size. Sizes 0 and 1 and equal sizes of examples would be taken for fixed
    ones. The values of arguments have no influence on it."""
    shapes = [
        {i: Dim.DYNAMIC for i, axis in enumerate(tensor.axes) if isinstance(axis, str)}
        for tensor in inputs
    ]
    with _quiet():
        program = torch.onnx.export(
            module.eval(),
            (*arguments, {}),  # a dictionary at the end is taken for keyword arguments
            dynamo=True,
            opset_version=OPSET,
            input_names=[tensor.name for tensor in inputs],
            output_names=[tensor.name for tensor in outputs],
            dynamic_shapes=_like(arguments, iter(shapes)),
            verbose=False,
        )
    assert program is not None
    return program.model_proto


def _like(value: Any, leaves: Iterator[Any]) -> Any:
    """Leaves in the nesting of `value`."""
    if isinstance(value, dict):
        return {name: _like(item, leaves) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_like(item, leaves) for item in value)
    return next(leaves)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns of its own deprecations and of packages it could use."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
