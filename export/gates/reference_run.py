"""Runs a few tokens or texts through 16-bit graphs in ONNX's own reference implementation, which
computes every value in its type. ONNX Runtime's CPU provider rounds few values, and has no bf16
attention.

Shape letters: B sentences, S source positions, Q tokens, C cache slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from torch import Tensor

from export.arithmetic.half import HALF_TYPES
from export.arithmetic.weight_only import dequantize_blocks
from export.errors import ParityError
from export.passes.dataflow import live_nodes
from export.passes.domains import MICROSOFT
from serving.bundle.encoder_tokenizer import EncodedText
from serving.bundle.manifest import Manifest
from serving.runtime.text_encoder import EncoderInput, pack
from serving.search.ids import PAD_ID
from serving.search.prefix_tree import chain
from training.models import CausalLanguageModel, Network, TranslationModel
from training.models.decoding import EncoderGraph, LanguageStepGraph, StepGraph

TOKENS, SENTENCES = 8, 2
"""NumPy multiplies numbers of 16 bits one by one: of a large model this takes some seconds."""
_WIDEST = 32
"""Ids of a source, for the same reason."""
MAX_DIFFERENCE = {"fp16": 0.01, "bf16": 0.08, "w8a16": 0.01}
"""Largest mean difference of logits from the same arithmetic in PyTorch. The reference rounds the
scores of attention, which neither PyTorch nor a GPU does."""

Values = dict[str, NDArray[Any]]


class MatMulNBits(OpRun):
    """Microsoft's product with weights in blocks, which ONNX's reference lacks."""

    op_domain = MICROSOFT

    def _run(
        self,
        x: NDArray[Any],
        levels: NDArray[np.uint8],
        scales: NDArray[np.float16],
        **_: int,
    ) -> tuple[NDArray[Any]]:
        return (np.matmul(x, dequantize_blocks(levels, scales)),)


@dataclass(frozen=True)
class ReferenceRun:
    """The figures of a comparison in ONNX's reference, which the manifest keeps."""

    tokens: int
    logits_max_difference: float
    logits_mean_difference: float


def run_reference(
    twin: Network,
    folder: Path,
    manifest: Manifest,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
) -> ReferenceRun:
    """Read the first tokens of targets, given sources of ids that end with eos, and compare the
    logits with those of the twin.

    A language model has empty sources. Raises ParityError if they differ by more than the limit.
    """
    values = graph_inputs(manifest, sources[:SENTENCES], targets[:SENTENCES])
    wanted = torch_logits(twin, manifest, values)
    difference = np.abs(wanted - _graph_logits(folder, manifest, values))
    found = ReferenceRun(len(difference), float(difference.max()), float(difference.mean()))
    limit = MAX_DIFFERENCE[manifest.precision]
    if not found.logits_mean_difference <= limit:  # so written, NaN fails it
        raise ParityError(
            "step logits in ONNX's reference differ from the same arithmetic in PyTorch by "
            f"{found.logits_mean_difference:.2g} in the mean (limit {limit:g}); no bundle was "
            "written"
        )
    return found


def _graph_logits(folder: Path, manifest: Manifest, values: Values) -> NDArray[np.float32]:
    """Logits [M,V] of the bundle's graphs, for these inputs of theirs."""
    if manifest.encoder is not None:
        sources = [tensor.name for tensor in manifest.encoder.outputs]
        values = values | evaluate(onnx.load(folder / manifest.encoder.file), sources, values)
    step = manifest.step_graph
    caches = [tensor.name for tensor in step.inputs if tensor.is_cache]
    kept = [tensor.name for tensor in step.outputs if tensor.is_cache or tensor.role == "logits"]
    logits = []
    for call in _calls(manifest, values):
        found = evaluate(onnx.load(folder / step.file), kept, values | call)
        values = values | {name: found[f"{name}_out"] for name in caches}
        logits.append(found["logits"])
    return _by_sentence(logits)


def _calls(manifest: Manifest, values: Values) -> Iterator[Values]:
    """The inputs of each call that reads the tokens. There is one call, or one for each token if a
    state is computed from that of the previous token."""
    size = 1 if manifest.sizes.recurrent else TOKENS
    for start in range(0, TOKENS, size):
        call = {
            tensor.name: values[tensor.name].take(range(start, start + size), place)
            for tensor in manifest.step_graph.inputs
            for place, axis in enumerate(tensor.axes)
            if axis in ("Q", "K", "R")
        }
        for tensor in manifest.step_graph.inputs:
            if tensor.role == "write_index":
                call[tensor.name] = values[tensor.name] + start
            elif tensor.role == "output_index":
                call[tensor.name] = call[tensor.name] - start
        yield call


def _by_sentence(logits: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Join the logits [B * Q,V] of consecutive calls into those of one call."""
    width = logits[0].shape[-1]
    parts = [part.reshape(-1, TOKENS // len(logits), width) for part in logits]
    joined: NDArray[np.float32] = np.concatenate(parts, axis=1).reshape(-1, width)
    return joined


def evaluate(model: onnx.ModelProto, outputs: list[str], values: Values) -> Values:
    """Compute only the named outputs of a graph and the nodes that they need: the choice of
    candidates gathers from more places than the reference's NumPy can. The model is changed."""
    graph = model.graph
    nodes = live_nodes(list(graph.node), set(outputs))
    needed = {name for node in nodes for name in node.input}
    for part, kept in (
        (graph.node, nodes),
        (graph.input, [value for value in graph.input if value.name in needed]),
        (graph.output, [value for value in graph.output if value.name in outputs]),
    ):
        entries = list(kept)
        del part[:]
        part.extend(entries)
    feeds = {value.name: values[value.name] for value in graph.input}
    with np.errstate(all="ignore"):  # overflows show in the result
        found = ReferenceEvaluator(model, new_ops=[MatMulNBits]).run(outputs, feeds)
    return dict(zip(outputs, found, strict=True))


def beginnings(texts: Sequence[EncoderInput]) -> list[EncodedText]:
    """The beginnings of texts, as long as they are read here."""
    return [EncodedText(tuple(t.ids[:_WIDEST]), tuple(t.segments[:_WIDEST])) for t in texts]


def read_in_reference(
    folder: Path, manifest: Manifest, texts: Sequence[EncoderInput]
) -> NDArray[np.float32]:
    """Outputs [B,W] of an encoder's graph for texts."""
    graph = manifest.encoder
    assert graph is not None
    packed = pack(texts)._asdict()
    values = {tensor.name: packed[tensor.role] for tensor in graph.inputs}
    output = graph.outputs[0].name
    return evaluate(onnx.load(folder / graph.file), [output], values)[output]


def graph_inputs(
    manifest: Manifest, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Values:
    """Values of all inputs of both graphs, by name, without those that the encoder computes."""
    rows, width = len(targets), min(_WIDEST, max(map(len, sources), default=0))
    slots = np.arange(TOKENS)
    causal = np.where(slots <= slots[:, None], 0.0, -np.inf).astype(np.float32)
    by_role: dict[str, NDArray[Any]] = {
        "token": _padded([[manifest.decoding_ids.bos, *target] for target in targets], TOKENS),
        "label": _padded(targets, TOKENS),
        "position": np.tile(slots, (rows, 1)),
        "slot_position": np.tile(slots, (rows, 1)),
        "ancestor": np.tile(chain(0, TOKENS, manifest.lookback), (rows, 1, 1)),
        "output_index": np.tile(slots, (rows, 1)),
        "write_index": np.zeros(rows, np.int64),
        "visible": np.tile(causal, (rows, 1, 1, 1)),
        "score": np.zeros((rows, TOKENS), np.float32),
        "top_rank": np.arange(1),
    }
    ids_BS = _padded(sources, width)
    lengths_B1 = np.array([[min(len(source), width)] for source in sources])
    mask_BS = np.where(np.arange(width) < lengths_B1, 0.0, -np.inf).astype(np.float32)
    values: Values = {}
    if manifest.encoder is not None:
        names = {tensor.role: tensor.name for tensor in manifest.encoder.inputs}
        values = {names["token"]: ids_BS, names["source_mask"]: mask_BS}
    sizes = {"B": rows, "BS": rows * width, "C": TOKENS}
    for tensor in manifest.step_graph.inputs:
        if tensor.is_cache:
            shape = [sizes[axis] if isinstance(axis, str) else axis for axis in tensor.axes]
            half = HALF_TYPES[manifest.precision]
            element = half.onnx if tensor.dtype == half.manifest else onnx.TensorProto.FLOAT
            values[tensor.name] = np.zeros(shape, helper.tensor_dtype_to_np_dtype(element))
        elif tensor.role in by_role:
            values[tensor.name] = by_role[tensor.role]
    return values


def _padded(rows: Sequence[Sequence[int]], width: int) -> NDArray[np.int64]:
    """Rows of ids, cut or padded to the same width."""
    ids = np.full((len(rows), width), PAD_ID, dtype=np.int64)
    for row, given in enumerate(rows):
        ids[row, : min(len(given), width)] = given[:width]
    return ids


@torch.no_grad()
def torch_logits(twin: Network, manifest: Manifest, values: Values) -> NDArray[np.float32]:
    """Logits [M,V] of the modules that are exported, for the inputs of the graphs."""
    step = manifest.step_graph
    caches = [
        torch.from_numpy(values[t.name].astype(np.float32)) for t in step.inputs if t.is_cache
    ]
    sources: list[Tensor] = []
    if isinstance(twin, TranslationModel):
        assert manifest.encoder is not None
        read = [torch.from_numpy(values[t.name]) for t in manifest.encoder.inputs]
        sources = EncoderGraph(twin)(*read)
    # A language model always gets the positions of slots, a translation model if it asks.
    asks = {"ancestor"} if isinstance(twin, CausalLanguageModel) else {"ancestor", "slot_position"}
    inputs = [t for t in step.inputs if not t.is_cache and t.role != "source"]
    logits = []
    for call in _calls(manifest, values):
        plain = [torch.from_numpy((values | call)[t.name]) for t in inputs if t.role not in asks]
        asked = {
            t.name: torch.from_numpy((values | call)[t.name]) for t in inputs if t.role in asks
        }
        if isinstance(twin, CausalLanguageModel):
            *_, found, caches = LanguageStepGraph(twin)(*plain, caches, asked)
        else:
            assert isinstance(twin, TranslationModel)
            *_, found, _, caches = StepGraph(twin)(*plain, caches, sources, asked)
        logits.append(found.flatten(0, 1).numpy())
    return _by_sentence(logits)
