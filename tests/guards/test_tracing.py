"""A test never gets the graph of another model than its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import Tensor, nn

from export.graphs.tracing import trace_graph
from serving.bundle.graph import Tensor as GraphTensor
from tests.toy import tracing
from tests.toy.tracing import Trace, kept_from_run_to_run, remembering


class Network(nn.Linear):
    config = "some sizes"


class Other(Network):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + 1.0


class Whole(nn.Module):
    """As the modules that are exported: a model and what is made of it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Tensor) -> Tensor:
        found: Tensor = self.model(features)
        return found


def network(kind: type[Network] = Network, *, change: float = 0.0, width: int = 2) -> Whole:
    torch.manual_seed(1)
    model = kind(3, width)
    with torch.no_grad():
        model.weight[1, 2] += change
    return Whole(model)


def export(trace: Trace, module: nn.Module, name: str) -> onnx.ModelProto:
    ins = (GraphTensor(name="features", dtype="float32", axes=("B", 3), role="source"),)
    outs = (GraphTensor(name=name, dtype="float32", axes=("B", "N"), role="logits"),)
    return trace(module, (torch.zeros(5, 3),), ins, outs)


def test_a_graph_is_traced_once_and_each_has_its_own_weights(tmp_path: Path) -> None:
    traced: list[nn.Module] = []

    def noted(module: nn.Module, *others: Any) -> onnx.ModelProto:
        traced.append(module)
        return trace_graph(module, *others)

    trace = remembering(noted, tmp_path)
    features = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    different = [
        (network(), "found"),
        (network(change=0.5), "found"),
        (network(Other), "found"),
        (network(width=4), "found"),
        (network(), "another"),
    ]
    for _ in range(2):
        for module, name in different:
            graph = export(trace, module, name)
            (found,) = ReferenceEvaluator(graph).run([name], {"features": features})
            with torch.no_grad():
                wanted = module(torch.from_numpy(features)).numpy()
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
            graph.graph.ClearField("node")  # whoever has it may change it
    assert [each for each, _ in different if each in traced] == [
        module for number, (module, _) in enumerate(different) if number != 1
    ]
    assert len(traced) == 4


def test_code_that_changes_is_traced_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = tmp_path / "training/models/block.py", tmp_path / "serving/search/ids.py"
    for file in (model, ids, tmp_path / "export/graphs/a.py", tmp_path / "serving/bundle/graph.py"):
        file.parent.mkdir(parents=True)
        file.write_text("a")
    monkeypatch.setattr(tracing, "ROOT", tmp_path)
    kept = [kept_from_run_to_run(tmp_path / "kept") for _ in range(2)]
    for file in (model, ids):
        file.write_text("b")
        kept.append(kept_from_run_to_run(tmp_path / "kept"))
    assert kept[0] == kept[1]
    assert len(set(kept)) == 3
    os.utime(kept[0], (0, 0))
    kept_from_run_to_run(tmp_path / "kept")
    assert sorted((tmp_path / "kept").iterdir()) == sorted(kept[2:])
    os.utime(kept[3], (0, 0))
    assert kept_from_run_to_run(tmp_path / "kept").exists()  # it is used, however old
