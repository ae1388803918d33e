"""A test never gets the graph of another model than its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn

from tests.toy.tracing import remembering


class Network(nn.Linear):
    config = "some sizes"


class Other(Network):
    pass


class Whole(nn.Module):
    """As the modules that are exported: a model and what is made of it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


def network(kind: type[Network] = Network, *, change: float = 0.0) -> Whole:
    torch.manual_seed(1)
    model = kind(3, 2)
    with torch.no_grad():
        model.weight[1, 2] += change
    return Whole(model)


def test_a_graph_is_traced_again_where_anything_of_it_differs(tmp_path: Path) -> None:
    traced = []

    def trace(module: nn.Module, *_: Any) -> onnx.ModelProto:
        traced.append(module)
        return onnx.ModelProto(producer_name=str(len(traced)))

    remembered = remembering(trace, tmp_path)
    different = [
        (network(), "inputs", "outputs"),
        (network(change=1e-6), "inputs", "outputs"),
        (network(Other), "inputs", "outputs"),
        (network(), "other inputs", "outputs"),
        (network(), "inputs", "other outputs"),
    ]
    names = [str(number) for number in range(1, 6)]
    for _ in range(2):
        found = [remembered(module, (), ins, outs) for module, ins, outs in different]
        assert [graph.producer_name for graph in found] == names
        found[0].producer_name = "changed by whoever has it"
    assert len(traced) == 5
