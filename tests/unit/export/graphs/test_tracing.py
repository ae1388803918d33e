"""What torch.onnx knows of operators is read once."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.onnx._internal.exporter._registration import ONNXRegistry

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
