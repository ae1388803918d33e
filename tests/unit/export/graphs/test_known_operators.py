"""Operators that torch.onnx does not know are replaced in a traced program, not traced again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from export.graphs.tracing import trace_graph
from serving.bundle.graph import Tensor as Described

INPUT = Described(name="x", dtype="float32", axes=("B", "S", 6), role="source")
OUTPUT = Described(name="y", dtype="float32", axes=("B",), role="logits")

Function = Callable[[Tensor], Tensor]

REPLACED: dict[str, Function] = {
    "flatten of two that vary": lambda x: x.flatten(0, 1) * 2,
    "flatten to one axis": lambda x: x.flatten() + 1,
    "flatten of what was expanded": lambda x: x[:, None].expand(-1, 3, -1, -1).flatten(0, 1),
    "unflatten": lambda x: x.unflatten(-1, (2, 3)).sum(-1),
    "reshape after a transpose": lambda x: x.transpose(0, 1).reshape(x.size(0), -1, 3),
    "reshape to what it is": lambda x: x.reshape(x.shape) + 1,
    "chunk": lambda x: torch.cat([part * n for n, part in enumerate(x.chunk(4, -1))], -1),
    "cast": lambda x: (x.to(torch.int64) * 2).to(torch.float32),
    "cast to what it is": lambda x: x.to(torch.float32) + 1,
    "logic": lambda x: ((x > 0) & (x < 1) | (x < -1)).float(),
    "a number less it": lambda x: 1 - x,
    "a constant": lambda x: x * torch.tensor(3.0),
    "copies": lambda x: nn.functional.dropout(x.detach().contiguous(), 0.5, training=False) * 2,
    "types that are promoted": lambda x: torch.arange(x.size(1))[:, None] * x + (x > 0) * 2,
    "numbers that promote": lambda x: (torch.arange(6) * 0.5 + x.to(torch.int64)) / 3,
    "a number less some of it": lambda x: torch.rsub(x, 1, alpha=2),
    "a square": lambda x: x.square() + 1,
    "a copy at the end": lambda x: nn.functional.dropout(x * 2, 0.5, training=False),
    "a cast at the end": lambda x: (x * 2).to(torch.float32),
    "a shape at the end": lambda x: (x * 2).reshape(x.shape),
    "sizes in sums": lambda x: x.sum(1) / (x.size(1) + x.size(0)),
}
LEFT: dict[str, Function] = {
    "a function that torch.onnx has not": lambda x: torch.special.xlog1py(x, x)
}


class Wrapped(nn.Module):
    """A module of a function."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def traced(function: Function) -> onnx.ModelProto:
    return trace_graph(Wrapped(function), (torch.zeros(3, 5, 6),), (INPUT,), (OUTPUT,))


def check(graph: onnx.ModelProto, function: Function) -> None:
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    for shape in ((3, 5, 6), (1, 1, 6), (4, 4, 6), (2, 9, 6)):
        x = np.random.default_rng(7).normal(size=shape).astype(np.float32)
        [found] = session.run(None, {"x": x})
        with torch.no_grad():
            expected = function(torch.from_numpy(x)).numpy()
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", REPLACED)
def test_they_are_replaced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ExportedProgram, "run_decompositions")
    check(traced(REPLACED[name]), REPLACED[name])


@pytest.mark.parametrize("name", LEFT)
def test_others_are_traced_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    again = []
    decompose = ExportedProgram.run_decompositions

    def counted(program: ExportedProgram, *others: object) -> ExportedProgram:
        again.append(program)
        return decompose(program, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(ExportedProgram, "run_decompositions", counted)
    check(traced(LEFT[name]), LEFT[name])
    assert len(again) == 1
