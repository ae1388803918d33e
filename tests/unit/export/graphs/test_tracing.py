"""What torch.onnx knows of operators is read once, and what its optimizer knows is tried where it
can apply."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from onnxscript.rewriter._matcher import SimplePatternMatcher
from torch import nn
from torch.fx import config as fx_config
from torch.onnx._internal.exporter._registration import ONNXRegistry

from export.graphs import tracing
from export.graphs.tracing import trace_graph
from serving.bundle.graph import Tensor


def test_graphs_do_not_read_the_operators_again_and_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features = Tensor(name="features", dtype="float32", axes=("B", 3), role="source")
    found = Tensor(name="found", dtype="float32", axes=("B", 2), role="logits")
    module = nn.Sequential(nn.Linear(3, 2), nn.Softplus())

    def graph() -> bytes:
        traced = trace_graph(module, (torch.zeros(5, 3),), (features,), (found,))
        written: bytes = traced.SerializeToString(deterministic=True)
        return written

    first = graph()
    monkeypatch.setattr(ONNXRegistry, "_register", None)  # whoever reads them calls it
    assert graph() == first
    with pytest.raises(TypeError):
        ONNXRegistry.from_torchlib()


class Normed(nn.Module):
    """What rules of the optimizer rewrite: an expanded product, a reshape and a transpose that do
    nothing."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.inner, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        found = self.norm(self.inner(features)).transpose(0, 1).transpose(0, 1)
        return found.reshape(found.shape).to(torch.float32) * 1.0 + features


def test_rules_tried_on_their_own_operators_alone_make_the_same_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And fewer of them are tried."""
    features = Tensor(name="features", dtype="float32", axes=("B", 6), role="source")
    found = Tensor(name="found", dtype="float32", axes=("B", 6), role="logits")
    tried = [0]
    init = SimplePatternMatcher._init_match

    def counted(matcher: SimplePatternMatcher, *arguments: Any) -> None:
        tried[0] += 1
        init(matcher, *arguments)

    monkeypatch.setattr(SimplePatternMatcher, "_init_match", counted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "rules_by_operator", contextlib.nullcontext)
        wanted = trace_graph(Normed(), (torch.zeros(5, 6),), (features,), (found,))
    everywhere, tried[0] = tried[0], 0
    graph = trace_graph(Normed(), (torch.zeros(5, 6),), (features,), (found,))
    assert graph.SerializeToString(deterministic=True) == wanted.SerializeToString(
        deterministic=True
    )
    assert 0 < tried[0] < everywhere / 4


def test_no_node_tells_which_lines_of_code_made_it() -> None:
    """To find them takes a fifth of a trace, and bundles do not hold them. Others who trace in this
    process have them."""
    features = Tensor(name="features", dtype="float32", axes=("B", 6), role="source")
    found = Tensor(name="found", dtype="float32", axes=("B", 6), role="logits")
    graph = trace_graph(Normed(), (torch.zeros(5, 6),), (features,), (found,))
    lines = [
        entry.value
        for node in graph.graph.node
        for entry in node.metadata_props
        if entry.key == "pkg.torch.onnx.stack_trace"
    ]
    assert lines
    assert not any(__file__ in each or "File " in each for each in lines)
    assert not fx_config.do_not_emit_stack_traces
