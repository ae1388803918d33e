"""Traces a module into an ONNX graph, through torch.onnx, at the opset of this project."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from typing import Any

import onnx
import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.fx import Interpreter, Node

from export.graphs.known_operators import use_known_operators
from serving.bundle.graph import Tensor
from training.models.operators.traced import OPSET

_REGISTRIES: dict[int, Any] = {}
"""Cached operator tables, by opset."""


def trace_graph(
    module: nn.Module,
    arguments: tuple[Any, ...],
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
) -> onnx.ModelProto:
    """Trace a module in evaluation mode, in fp32, with example arguments; axes of `inputs` that
    have a name are variable. Examples must avoid the sizes 0 and 1 and equal sizes, which would be
    taken as fixed. The values of the arguments do not matter."""
    shapes = [
        {i: Dim.DYNAMIC for i, axis in enumerate(tensor.axes) if isinstance(axis, str)}
        for tensor in inputs
    ]
    with _quiet(), _operators_read_once(), _traced_once(), rules_by_operator():
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
def _operators_read_once() -> Iterator[None]:
    """Keep one operator table for all graphs. torch.onnx would read it again for each graph from
    the source of hundreds of functions, which costs as much as two layers."""
    # Half a second to import, which is not for commands that trace nothing.
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    registry: Any = ONNXRegistry
    read = registry.from_torchlib
    registry.from_torchlib = staticmethod(partial(_copied, read))
    try:
        yield
    finally:
        registry.from_torchlib = read


def _copied(read: Callable[..., Any], *, opset_version: int) -> Any:
    """A copy of the table for one graph, which may add operators to it."""
    if opset_version not in _REGISTRIES:
        _REGISTRIES[opset_version] = read(opset_version=opset_version)
    registry = copy(_REGISTRIES[opset_version])
    registry.functions = {target: list(known) for target, known in registry.functions.items()}
    return registry


@contextlib.contextmanager
def _traced_once() -> Iterator[None]:
    """Keep torch.onnx from tracing a program again for replaceable operators and for value types
    that are already known. Also keep PyTorch from caching results by tensors, because with symbolic
    sizes the look-up takes longer than the computation, and from recording the lines of code that
    called each operator, which no graph holds."""
    from torch._dynamo import config
    from torch.fx import config as fx_config
    from torch.onnx._internal.exporter import _decomp, _fx_passes
    from torch.onnx._internal.fx.passes import type_promotion

    passes: Any = _fx_passes
    promotion: Any = type_promotion._TypePromotionInterpreter
    trace_again, run_node = passes.decompose_with_registry, promotion.run_node

    def known_operators_used(program: ExportedProgram, registry: Any) -> ExportedProgram:
        known = frozenset(_decomp.get_onnx_implemented_overloads(registry))
        return program if use_known_operators(program, known) else trace_again(program, registry)

    def promoted(interpreter: Any, node: Node) -> Any:
        """The promotion of a node's arguments, from their types only."""
        with interpreter._set_current_node(node):
            rule = type_promotion.get_type_promotion_rule(node, interpreter.type_promotion_table)
            if rule is not None:
                interpreter._maybe_promote_node(node, rule)
        return node.meta["val"] if "val" in node.meta else Interpreter.run_node(interpreter, node)

    passes.decompose_with_registry, promotion.run_node = known_operators_used, promoted
    traces_left_out = fx_config.do_not_emit_stack_traces
    fx_config.do_not_emit_stack_traces = True
    try:
        with config.patch(fake_tensor_cache_enabled=False):
            yield
    finally:
        passes.decompose_with_registry, promotion.run_node = trace_again, run_node
        fx_config.do_not_emit_stack_traces = traces_left_out


@contextlib.contextmanager
def rules_by_operator() -> Iterator[None]:
    """Keep the exporter's optimizer from trying a rule on a node of another operator than the rule
    is about. It would prepare a match first, which takes a fifth of an export's time; the graphs
    are the same."""
    # Half a second to import, which is not for commands that trace nothing.
    from onnxscript.rewriter import _matcher

    matcher: Any = _matcher.SimplePatternMatcher
    match = matcher.match

    def matched(own: Any, model: Any, graph: Any, node: Any, **options: Any) -> Any:
        begun_with = own.pattern.output_nodes[0]  # the matcher's first comparison is with this one
        if begun_with.op.matches(node.op_type) and begun_with.domain.matches(node.domain):
            return match(own, model, graph, node, **options)
        return None

    matcher.match = matched
    try:
        yield
    finally:
        matcher.match = match


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's warnings about its own deprecations and optional packages."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
