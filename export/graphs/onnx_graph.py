"""The graphs of each kind of model: inputs, outputs, and an example of each to trace.

Shape letters: B sentences, S source positions, K beams, Q queries (K of them, or one), C cache
slots, W ancestors, D model, V vocabulary, N candidates, M = B * Q rows; of a language model, R
queries with outputs and M = B * R; of an encoder M tokens of packed texts; L pieces of the longest
shortlist.
"""

from __future__ import annotations

from typing import Any

import onnx
import torch

from export.graphs.tracing import trace_graph
from serving.bundle.graph import Graph, Role, Tensor
from training.models import CausalLanguageModel, DecodingNetwork, TextModel, TranslationModel
from training.models.decoding import (
    EncoderGraph,
    LanguageStepGraph,
    ShortlistStepGraph,
    StepGraph,
)
from training.models.networks.bert import TextGraph
from training.models.operators.traced import OPSET

# Example sizes: torch.export specialises on 0 and 1, and treats equal sizes as one.
_B, _Q, _C, _S, _R, _L, _T, _K, _M = 3, 5, 16, 8, 4, 32, 6, 7, 11
_EXAMPLE = {"B": _B, "BS": _B * _S, "Q": _Q, "C": _C}


def _tensor(name: str, dtype: Any, axes: tuple[str | int, ...], role: Role) -> Tensor:
    return Tensor(name=name, dtype=dtype, axes=axes, role=role)


_STEP_INPUTS = (
    _tensor("token_ids", "int64", ("B", "Q"), "token"),
    _tensor("positions", "int64", ("B", "Q"), "position"),
    _tensor("write_index", "int64", ("B",), "write_index"),
    _tensor("visible", "float32", ("B", 1, "Q", "C"), "visible"),
    _tensor("scores", "float32", ("B", "K"), "score"),
)
"""The first inputs of every step of a translation model."""
_CANDIDATES = (
    _tensor("candidate_scores", "float32", ("B", "N"), "candidate_score"),
    _tensor("candidate_tokens", "int32", ("B", "N"), "candidate_token"),
    _tensor("candidate_parents", "int32", ("B", "N"), "candidate_parent"),
)


def export_encoder(model: TranslationModel) -> tuple[onnx.ModelProto, Graph]:
    """The encoder graph, fp32, and its description."""
    inputs = (
        _tensor("source_ids", "int64", ("B", "S"), "token"),
        _tensor("source_mask", "float32", ("B", "S"), "source_mask"),
    )
    outputs = tuple(
        _tensor(name, "float32", ("B", "S", model.config.attention_width), "source")
        for name in _source_names(model)
    )
    arguments = (torch.zeros(_B, _S, dtype=torch.int64), torch.zeros(_B, _S))
    proto = trace_graph(EncoderGraph(model), arguments, inputs, outputs)
    return proto, Graph(file="encoder.onnx", opset=OPSET, inputs=inputs, outputs=outputs)


def export_step(model: TranslationModel) -> tuple[onnx.ModelProto, Graph]:
    """The step graph, fp32, and its description."""
    inputs = (
        *_STEP_INPUTS,
        _tensor("label_ids", "int64", ("B", "Q"), "label"),
        *_memory_inputs(model),
    )
    outputs = (
        *_CANDIDATES,
        _tensor("label_scores", "float32", ("B", "Q"), "label_score"),
        _tensor("logits", "float32", ("M", model.config.vocab_size), "logits"),
        *_memory_outputs(model),
    )
    labels = torch.zeros(_B, _Q, dtype=torch.int64)
    arguments = (*_step_arguments(), labels, *_memory_arguments(model))
    proto = trace_graph(StepGraph(model), arguments, inputs, outputs)
    return proto, Graph(file="step.onnx", opset=OPSET, inputs=inputs, outputs=outputs)


def export_shortlist_step(model: TranslationModel) -> tuple[onnx.ModelProto, Graph]:
    """The step graph that chooses from shortlists, fp32, and its description."""
    inputs = (
        *_STEP_INPUTS,
        _tensor("columns", "int64", ("B", "L"), "column"),
        *_memory_inputs(model),
    )
    outputs = (*_CANDIDATES, *_memory_outputs(model))
    columns = torch.zeros(_B, _L, dtype=torch.int64)
    arguments = (*_step_arguments(), columns, *_memory_arguments(model))
    proto = trace_graph(ShortlistStepGraph(model), arguments, inputs, outputs)
    return proto, Graph(file="step_shortlist.onnx", opset=OPSET, inputs=inputs, outputs=outputs)


def export_language_step(model: CausalLanguageModel) -> tuple[onnx.ModelProto, Graph]:
    """The step graph of a language model, fp32, and its description."""
    vocab_size = model.config.vocab_size
    inputs = (
        _tensor("token_ids", "int64", ("B", "Q"), "token"),
        _tensor("positions", "int64", ("B", "Q"), "position"),
        _tensor("slot_positions", "int64", ("B", "C"), "slot_position"),
        _tensor("write_index", "int64", ("B",), "write_index"),
        _tensor("visible", "float32", ("B", 1, "Q", "C"), "visible"),
        _tensor("output_index", "int64", ("B", "R"), "output_index"),
        _tensor("top_ranks", "int64", ("T",), "top_rank"),
        _tensor("label_ids", "int64", ("B", "R"), "label"),
        *_cache_inputs(model),
        *_asked_inputs(model),
    )
    outputs = (
        _tensor("top_scores", "float32", ("B", "R", "T"), "top_score"),
        _tensor("top_tokens", "int32", ("B", "R", "T"), "top_token"),
        _tensor("label_scores", "float32", ("B", "R"), "label_score"),
        _tensor("logits", "float32", ("M", vocab_size), "logits"),
        *_cache_outputs(model),
    )
    arguments = (
        torch.zeros(_B, _Q, dtype=torch.int64),
        torch.zeros(_B, _Q, dtype=torch.int64),
        torch.zeros(_B, _C, dtype=torch.int64),
        torch.zeros(_B, dtype=torch.int64),
        torch.zeros(_B, 1, _Q, _C),
        torch.zeros(_B, _R, dtype=torch.int64),
        torch.arange(_T),
        torch.zeros(_B, _R, dtype=torch.int64),
        _cache_arguments(model),
        *_asked_arguments(model),
    )
    proto = trace_graph(LanguageStepGraph(model), arguments, inputs, outputs)
    return proto, Graph(file="step.onnx", opset=OPSET, inputs=inputs, outputs=outputs)


def export_text_graph(model: TextModel, role: Role) -> tuple[onnx.ModelProto, Graph]:
    """The fp32 graph of an encoder that reads packed texts, and its description. `role` is the role
    of its outputs, one for each text."""
    inputs = (
        _tensor("token_ids", "int64", (1, "M"), "token"),
        _tensor("positions", "int64", (1, "M"), "position"),
        _tensor("segment_ids", "int64", (1, "M"), "segment"),
        _tensor("slots", "int64", ("B", "S"), "slot"),
        _tensor("mask", "float32", ("B", "S"), "source_mask"),
        _tensor("rows", "int64", ("M",), "packed_row"),
    )
    outputs = (_tensor("read", "float32", ("B", model.width), role),)
    arguments = (
        torch.zeros(1, _M, dtype=torch.int64),
        torch.zeros(1, _M, dtype=torch.int64),
        torch.zeros(1, _M, dtype=torch.int64),
        torch.zeros(_B, _S, dtype=torch.int64),
        torch.zeros(_B, _S),
        torch.zeros(_M, dtype=torch.int64),
    )
    proto = trace_graph(TextGraph(model), arguments, inputs, outputs)
    return proto, Graph(file="encoder.onnx", opset=OPSET, inputs=inputs, outputs=outputs)


def _step_arguments() -> tuple[torch.Tensor, ...]:
    """Tensors in the shapes of `_STEP_INPUTS`, for the trace; their values have no influence on
    it."""
    return (
        torch.zeros(_B, _Q, dtype=torch.int64),
        torch.zeros(_B, _Q, dtype=torch.int64),
        torch.zeros(_B, dtype=torch.int64),
        torch.zeros(_B, 1, _Q, _C),
        torch.zeros(_B, _K),
    )


def _memory_inputs(model: TranslationModel) -> tuple[Tensor, ...]:
    """The inputs of a translation model's step beside its tokens."""
    dim = model.config.attention_width
    return (
        _tensor("source_mask", "float32", ("B", "S"), "source_mask"),
        *_cache_inputs(model),
        *(_tensor(name, "float32", ("B", "S", dim), "source") for name in _source_names(model)),
        *_asked_inputs(model),
    )


def _memory_arguments(model: TranslationModel) -> tuple[Any, ...]:
    """Tensors in the shapes of `_memory_inputs`, for the trace; their values have no influence
    on it."""
    dim = model.config.attention_width
    return (
        torch.zeros(_B, _S),
        _cache_arguments(model),
        [torch.zeros(_B, _S, dim) for _ in _source_names(model)],
        *_asked_arguments(model),
    )


def _memory_outputs(model: TranslationModel) -> tuple[Tensor, ...]:
    """The alignment and the appended caches."""
    role = model.alignment_role
    axis = "S" if role == "alignment" else model.config.attention_width
    return (_tensor(role, "float32", ("B", "Q", axis), role), *_cache_outputs(model))


def _cache_inputs(model: DecodingNetwork) -> tuple[Tensor, ...]:
    return tuple(_tensor(each.name, "float32", each.axes, each.role) for each in model.caches)


def _cache_outputs(model: DecodingNetwork) -> tuple[Tensor, ...]:
    return tuple(
        _tensor(f"{each.name}_out", "float32", each.axes, each.role) for each in model.caches
    )


def _cache_arguments(model: DecodingNetwork) -> list[torch.Tensor]:
    return [torch.zeros(each.shape(_EXAMPLE)) for each in model.caches]


def _asked_inputs(model: DecodingNetwork) -> tuple[Tensor, ...]:
    """The inputs that only some layers ask for; graphs of other models do not have them."""
    needs, found = model.step_needs, []
    if needs.ancestors:
        found.append(_tensor("ancestors", "int64", ("B", "Q", needs.ancestors), "ancestor"))
    if needs.slot_positions and isinstance(model, TranslationModel):
        found.append(_tensor("slot_positions", "int64", ("B", "C"), "slot_position"))
    return tuple(found)


def _asked_arguments(model: DecodingNetwork) -> tuple[dict[str, torch.Tensor], ...]:
    """Tensors in the shapes of `_asked_inputs` by name, or no argument if there are none."""
    found = {}
    for each in _asked_inputs(model):
        shape = [axis if isinstance(axis, int) else _EXAMPLE[axis] for axis in each.axes]
        found[each.name] = torch.zeros(shape, dtype=torch.int64)
    return (found,) if found else ()


def _source_names(model: TranslationModel) -> list[str]:
    if model.num_sources == 1:
        return ["source_states"]
    layers = range(model.num_sources // 2)
    return [f"source_{kind}_{layer}" for layer in layers for kind in ("key", "value")]
