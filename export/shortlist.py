"""The shortlist of a bundle: the lexicon of its training text, and graphs that choose from it.

Shape letters: V vocabulary, D model, U columns of the output matrix that some sentence has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from export.errors import ExportError
from export.first_step import tell_beams_from_queries
from export.lowering import lower, scale_name
from export.onnx_graph import export_shortlist_step
from export.quantize import StaticRange, quantize_columns, weight_key
from serving.bundle import Graph, ShortlistFiles, Tensor
from serving.shortlist import Shortlist
from serving.tokenizer import EOS_ID, Tokenizer
from training.config import TranslationRecipe
from training.data import read_corpus
from training.lexicon import IdPair, learn_lexicon
from training.models import Model
from training.models.attention import OPSET

FILE = "shortlist.npz"
COMMON = 128
"""Pieces that any source may become: the most frequent ones of the target text."""
BEST = 32
"""Translations of one source piece, at most."""
LEAST_PROBABILITY = 1e-3
"""Of a translation that is kept."""


def read_shortlist(recipe: TranslationRecipe, tokenizer: Tokenizer) -> Shortlist:
    """The shortlist of a recipe's training text; raises CorpusError where it cannot be read."""
    pairs, _, _ = read_corpus(recipe)
    sides = (tokenizer.encode_batch([pair[side] for pair in pairs]) for side in (0, 1))
    return build_shortlist(list(zip(*sides, strict=True)), tokenizer.vocab_size)


def build_shortlist(pairs: list[IdPair], vocab_size: int) -> Shortlist:
    """From encoded sentence pairs, whose sides share a vocabulary.

    A piece may always stay as it is: names and numbers do.
    """
    counts_V = np.bincount([piece for _, target in pairs for piece in target], minlength=vocab_size)
    order = np.argsort(-counts_V, kind="stable")[:COMMON]
    common = np.unique([EOS_ID, *order[counts_V[order] > 0].tolist()])
    lexicon = learn_lexicon(pairs)
    first_P = np.searchsorted(lexicon.source_P, lexicon.source_P)
    rank_P = np.arange(len(lexicon.source_P)) - first_P
    kept_P = (rank_P < BEST) & (lexicon.probability_P >= LEAST_PROBABILITY)
    unchanged_V = np.arange(vocab_size)
    source = np.concatenate([lexicon.source_P[kept_P], unchanged_V])
    target = np.concatenate([lexicon.target_P[kept_P], unchanged_V])
    by_source = np.lexsort((target, source))
    start_V1 = np.searchsorted(source[by_source], np.arange(vocab_size + 1))
    return Shortlist(common, start_V1, target[by_source])


def write_shortlist(
    model: Model,
    shortlist: Shortlist,
    folder: Path,
    *,
    int8: bool,
    ranges: Mapping[bytes, StaticRange] | None,
) -> tuple[ShortlistFiles, list[onnx.ModelProto]]:
    """Write the lexicon; returns the graphs (columns, step), which are to be saved yet.

    Raises ExportError for a model whose output layer has a bias.
    """
    if model.output_bias is not None:
        raise ExportError("--shortlist does not support a model with output_bias")
    shortlist.save(folder / FILE)
    weight_VD = model.output_weight.detach().numpy()
    columns, columns_graph = _columns_graph(weight_VD, int8=int8)
    step, step_graph = export_shortlist_step(model)
    key = weight_key(quantize_columns(weight_VD.T)[0])
    step = lower(step, int8=int8, ranges=ranges, matrices={"output_weight": key})
    step_graph = tell_beams_from_queries(step_graph, step)
    if int8:
        step_graph = _with_scale(step_graph)
    files = ShortlistFiles(file=FILE, columns=columns_graph, step=step_graph)
    return files, [columns, step]


def _columns_graph(weight_VD: NDArray[np.float32], *, int8: bool) -> tuple[onnx.ModelProto, Graph]:
    """Ids to columns of the output matrix, in the step graph's own form."""
    dim = weight_VD.shape[1]
    dtype: Literal["int8", "float32"] = "int8" if int8 else "float32"
    quantized_DV, scale_V = quantize_columns(weight_VD.T)
    table_VD = np.ascontiguousarray(quantized_DV.T) if int8 else weight_VD
    constants = [numpy_helper.from_array(table_VD, "table")]
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["output_weight"], perm=[1, 0]),
    ]
    inputs = (Tensor(name="ids", dtype="int64", axes=("U",), role="column"),)
    outputs = [Tensor(name="output_weight", dtype=dtype, axes=(dim, "U"), role="output_weight")]
    if int8:
        constants.append(numpy_helper.from_array(scale_V, "scale"))
        nodes.append(helper.make_node("Gather", ["scale", "ids"], [scale_name("output_weight")]))
        outputs.append(_scale_tensor())
    described = [
        helper.make_tensor_value_info(t.name, _ELEMENTS[t.dtype], t.axes)
        for t in (*inputs, *outputs)
    ]
    graph = helper.make_graph(nodes, "columns", described[:1], described[1:], constants)
    proto = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=10,
        producer_name="macaron",
    )
    return proto, Graph(file="columns.onnx", opset=OPSET, inputs=inputs, outputs=tuple(outputs))


_ELEMENTS = {
    "int64": onnx.TensorProto.INT64,
    "int8": onnx.TensorProto.INT8,
    "float32": onnx.TensorProto.FLOAT,
}


def _scale_tensor() -> Tensor:
    name = scale_name("output_weight")
    return Tensor(name=name, dtype="float32", axes=("U",), role="output_scale")


def _with_scale(graph: Graph) -> Graph:
    """The step graph's description after `lower` has made its matrix int8."""
    inputs: list[Tensor] = []
    for tensor in graph.inputs:
        if tensor.role == "output_weight":
            inputs += [tensor.model_copy(update={"dtype": "int8"}), _scale_tensor()]
        else:
            inputs.append(tensor)
    return graph.model_copy(update={"inputs": tuple(inputs)})
