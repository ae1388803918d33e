"""What goes in and out of each graph: the modules run on the examples that would be traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import onnx
import pytest
import torch
from torch import nn

from export.graphs import onnx_graph
from serving.bundle.graph import Graph, Role, Tensor
from tests.unit.training.tiny import TINY, TINY_JOINT, randomised
from tests.unit.training.tiny_encoder import tiny_classifier, tiny_embedder
from tests.unit.training.tiny_language import tiny_lm
from training.models import TranslationModel

TRANSLATION = {
    "standard": TINY,
    "macaron": replace(TINY, block="macaron", norm="post"),
    "ssru": replace(TINY, decoder_mixing="ssru"),
    "dynamic convolution": replace(TINY, decoder_mixing="dynamic_conv"),
    "joint": TINY_JOINT,
}
PRODUCTS = {"BS": ("B", "S"), "M": ("B", "Q")}
"""Axes that are several in one; of a language model M is B * R, of an encoder it is one."""


class FakeTrace:
    """Stands in for torch.onnx: runs the module and keeps what it was given and what it gave."""

    def __init__(self) -> None:
        self.inputs: list[tuple[Tensor, torch.Tensor]] = []
        self.outputs: list[tuple[Tensor, torch.Tensor]] = []

    def __call__(
        self,
        module: nn.Module,
        arguments: tuple[Any, ...],
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
    ) -> onnx.ModelProto:
        self.inputs = list(zip(inputs, flat(arguments), strict=True))
        # Alone a graph has more beams than queries: PyTorch computes with one for each.
        run = [
            torch.zeros(*arguments[0].shape) if tensor.role == "score" else argument
            for tensor, argument in zip(inputs, arguments, strict=False)
        ]
        with torch.no_grad():
            found = module(*run, *arguments[len(run) :])
        # Lowering puts the rows of all sentences behind one another.
        self.outputs = [
            (tensor, value.flatten(0, 1) if tensor.role == "logits" else value)
            for tensor, value in zip(outputs, flat(found), strict=True)
        ]
        return onnx.ModelProto()

    def sizes(self) -> dict[str, int]:
        """Of each axis with a name; all tensors must have the same, and those of fixed sizes
        these."""
        sizes: dict[str, int] = {}
        for tensor, value in [*self.inputs, *self.outputs]:
            assert value.dtype == getattr(torch, tensor.dtype), tensor.name
            assert len(value.shape) == len(tensor.axes), tensor.name
            for axis, size in zip(tensor.axes, value.shape, strict=True):
                if isinstance(axis, str):
                    assert sizes.setdefault(axis, size) == size, (tensor.name, axis)
                else:
                    assert axis == size, tensor.name
        return sizes


def flat(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in a nesting, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    else:
        for item in value.values() if isinstance(value, dict) else value:
            yield from flat(item)


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> FakeTrace:
    fake = FakeTrace()
    monkeypatch.setattr(onnx_graph, "trace_graph", fake)
    return fake


def check(trace: FakeTrace, graph: Graph, m_axes: tuple[str, ...] = PRODUCTS["M"]) -> None:
    """The graph names what was traced, in its order, and nothing else would be taken for fixed."""
    assert graph.inputs == tuple(tensor for tensor, _ in trace.inputs)
    assert graph.outputs == tuple(tensor for tensor, _ in trace.outputs)
    names = [tensor.name for tensor in (*graph.inputs, *graph.outputs)]
    assert len(set(names)) == len(names)
    sizes = trace.sizes()
    products = {**PRODUCTS, "M": m_axes}
    for axis, factors in products.items():
        if axis in sizes and factors:
            assert sizes[axis] == torch.tensor([sizes[f] for f in factors]).prod(), axis
    chosen = {axis: size for axis, size in sizes.items() if not products.get(axis) and axis != "N"}
    assert min(chosen.values()) > 1
    assert len(set(chosen.values())) == len(chosen), chosen
    # A cache comes out under its own name, as large as it went in.
    caches = [tensor for tensor in graph.inputs if tensor.is_cache]
    out = {tensor.name: tensor for tensor in graph.outputs}
    for cache in caches:
        assert out[f"{cache.name}_out"].axes == cache.axes


@pytest.mark.parametrize("name", TRANSLATION)
def test_the_encoder_gives_what_the_step_asks_for(name: str, trace: FakeTrace) -> None:
    model = randomised(TRANSLATION[name])
    _, encoder = onnx_graph.export_encoder(model)
    check(trace, encoder)
    _, step = onnx_graph.export_step(model)
    assert (encoder.file, step.file) == ("encoder.onnx", "step.onnx")
    asked = [tensor for tensor in step.inputs if tensor.role == "source"]
    assert list(encoder.outputs) == asked


def test_keys_and_values_of_the_source_have_names_of_their_own(trace: FakeTrace) -> None:
    model = randomised(TINY)
    onnx_graph.export_encoder(model)
    given = {tensor.name: value for tensor, value in trace.inputs}
    found = {tensor.name: value for tensor, value in trace.outputs}
    with torch.no_grad():
        source = model.encode(given["source_ids"], None)
        pairs = model.project_source(source)
    assert len(found) == 2 * len(pairs) == 2 * TINY.num_decoder_layers
    for layer, pair in enumerate(pairs):
        torch.testing.assert_close(found[f"source_key_{layer}"], pair.keys)
        torch.testing.assert_close(found[f"source_value_{layer}"], pair.values)
        assert not pair.keys.equal(pair.values)


STEPS: list[Callable[[TranslationModel], tuple[onnx.ModelProto, Graph]]] = [
    onnx_graph.export_step,
    onnx_graph.export_shortlist_step,
]


@pytest.mark.parametrize("export", STEPS)
@pytest.mark.parametrize("name", TRANSLATION)
def test_steps_of_translation_are_as_they_say(
    name: str,
    export: Callable[[TranslationModel], tuple[onnx.ModelProto, Graph]],
    trace: FakeTrace,
) -> None:
    model = randomised(TRANSLATION[name])
    _, step = export(model)
    check(trace, step)
    roles = [tensor.role for tensor in step.outputs]
    assert roles[:3] == ["candidate_score", "candidate_token", "candidate_parent"]
    assert ("logits" in roles) == (export is onnx_graph.export_step)
    assert ("column" in {tensor.role for tensor in step.inputs}) == ("logits" not in roles)
    assert roles.count("alignment") + roles.count("alignment_query") == 1
    sizes = trace.sizes()
    assert sizes["N"] == 2 * sizes["Q"]


def test_a_step_gives_the_logits_of_its_own_module(trace: FakeTrace) -> None:
    """Of all vocabulary, which a layout of outputs in another order would not be."""
    _, step = onnx_graph.export_step(randomised(TINY))
    values = {tensor.role: value for tensor, value in trace.outputs}
    assert values["logits"].shape[1] == TINY.vocab_size
    label = values["logits"].log_softmax(-1)[:, 0].reshape(values["label_score"].shape)
    torch.testing.assert_close(values["label_score"], label)  # labels are zeros
    assert step.outputs[3].role == "label_score"


def test_a_recurrent_layer_asks_for_ancestors(trace: FakeTrace) -> None:
    def asked(config: Any) -> set[Role]:
        _, step = onnx_graph.export_step(randomised(config))
        return {tensor.role for tensor in step.inputs} & {"ancestor", "slot_position"}

    assert asked(TINY) == set()
    assert "ancestor" in asked(TRANSLATION["ssru"])


@pytest.mark.parametrize("attention", ["full", "cascade"])
def test_the_step_of_a_language_model_is_as_it_says(attention: str, trace: FakeTrace) -> None:
    _, step = onnx_graph.export_language_step(tiny_lm(attention=attention))
    check(trace, step, ("B", "R"))
    assert {"top_score", "top_token", "label_score", "logits"} < {t.role for t in step.outputs}
    assert "source" not in {tensor.role for tensor in step.inputs}


@pytest.mark.parametrize("role", ["vector", "class_score"])
def test_an_encoder_gives_its_numbers_in_the_role_that_is_asked_for(
    role: Role, trace: FakeTrace
) -> None:
    model = tiny_embedder("mean") if role == "vector" else tiny_classifier(3)
    _, graph = onnx_graph.export_text_graph(model, role)
    check(trace, graph, ())
    ((output, value),) = trace.outputs
    assert (output.role, value.shape[1]) == (role, model.width)
