"""ONNX Runtime behind the `Stepper` protocol, with caches that are written in place.

Shape letters: B sentences, S source positions, P prefix tokens, Q queries, C cache slots, D model,
V vocabulary, N candidates, T cache tensors (keys and values of each decoder layer), R cache rows (a
sentence has one, with a joint model S).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from serving.bundle import Graph, Manifest
from serving.cache import REPACK_EVERY, Repack, round_up
from serving.errors import BundleError
from serving.memory import BlockPool
from serving.search import StepInputs, StepOutputs
from serving.tokenizer import PAD_ID

PREFILL_CHUNK = {"cross": 64, "joint": 8}
"""Tokens given to the step graph at once; with a joint model each costs S states."""
MOST_JOINT_STATES = 256
"""One or two sentences at beam 5: their matrix products are large already, and their states fit the
processor's cache (docs/decisions.md)."""

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_NO_MEMORY: Floats = np.zeros(0, np.float32)


@dataclass
class OnnxState:
    """Arrays of a running batch; ONNX Runtime reads and writes them in place."""

    sources: list[Floats]
    source_mask_BS: Floats
    caches_TRCD: Floats
    """A view of the first of `blocks`."""
    blocks: list[Floats]
    """Flat memory: of the caches, and for their next layout."""
    bindings: dict[tuple[int, bool, bool], _Binding] = field(default_factory=dict)
    """By number of queries and by whether logits and alignment queries are wanted."""


class OnnxStepper:
    """A bundle's encoder and step graph on the CPU."""

    def __init__(self, folder: Path, manifest: Manifest, threads: int) -> None:
        """Load the graphs with `threads` intra-op threads.

        Raises BundleError where ONNX Runtime refuses a graph, or this machine's int8 products are
        not exact.
        """
        assert manifest.encoder is not None
        self._sizes, self._step_graph, self._kind = (
            manifest.sizes,
            manifest.step,
            manifest.decoder_kind,
        )
        self._num_caches = sum(t.role == "self" for t in manifest.step.inputs)
        if manifest.probe_file is not None:
            _probe_int8(_load(folder, manifest.probe_file, 1), folder)
        self._memory = BlockPool()
        self._encoder = _load(folder, manifest.encoder.file, threads)
        self._encoder_names = _names(manifest.encoder)
        self._step = _load(folder, manifest.step.file, threads)

    @property
    def repack_every(self) -> int:
        """Steps of a sentence between repacks."""
        return REPACK_EVERY[self._kind]

    @property
    def most_states(self) -> int | None:
        """A joint model has a state for each of them; others take a batch of any size."""
        return MOST_JOINT_STATES if self._kind == "joint" else None

    def cache_bytes(self, rows: int, source_length: int, slots: int) -> int:
        """Bytes of caches of that size, with the spare copy that a repack writes to."""
        height = round_up(source_length) if self._kind == "joint" else 1
        size = np.dtype(np.float32).itemsize * self._sizes.model_dim
        return 2 * self._num_caches * rows * height * slots * size

    def encode(self, sources: Sequence[Sequence[int]]) -> OnnxState:
        """Run the encoder on sources padded on the right to a multiple of 8."""
        length = round_up(max(map(len, sources)))
        ids_BS = np.full((len(sources), length), PAD_ID, dtype=np.int64)
        mask_BS = np.full(ids_BS.shape, -np.inf, dtype=np.float32)
        for row, source in enumerate(sources):
            ids_BS[row, : len(source)] = source
            mask_BS[row, : len(source)] = 0.0
        names = self._encoder_names
        tensors = self._encoder.run(
            names["source"], {names["token"][0]: ids_BS, names["source_mask"][0]: mask_BS}
        )
        rows = ids_BS.size if self._kind == "joint" else len(sources)
        empty = np.zeros((self._num_caches, rows, 0, self._sizes.model_dim), np.float32)
        return OnnxState(tensors, mask_BS, empty, [_NO_MEMORY, _NO_MEMORY])

    def prefill(self, state: OnnxState, token_ids_BP: Ints, labels_BP: Ints) -> Floats:
        """Fill the caches with given tokens, in chunks; returns the labels' log-probabilities."""
        rows, length = token_ids_BP.shape
        padded = round_up(length)
        self._resize(state, padded)
        scores = np.zeros((rows, padded), dtype=np.float32)
        chunk = PREFILL_CHUNK[self._kind]
        for start in range(0, padded, chunk):
            size = min(chunk, padded - start)
            binding = self._binding(state, size, want_logits=False, want_attention=False)
            real = slice(start, min(start + size, length))
            count = real.stop - real.start
            for name, values in (("token", token_ids_BP), ("label", labels_BP)):
                binding.inputs[name].fill(PAD_ID)
                binding.inputs[name][:, :count] = values[:, real]
            positions = np.arange(start, start + size)
            binding.inputs["position"][:] = positions
            binding.inputs["write_index"][:] = start
            causal = np.arange(padded) <= positions[:, None]
            binding.inputs["visible"][:, 0] = np.where(causal, np.float32(0), np.float32(-np.inf))
            binding.inputs["score"][:] = 0.0
            self._step.run_with_iobinding(binding.io)
            scores[:, start : start + size] = binding.outputs["label_score"]
        return scores[:, :length]

    def step(
        self, state: OnnxState, inputs: StepInputs, *, want_logits: bool, want_attention: bool
    ) -> StepOutputs:
        """One step of all beams."""
        queries = inputs.token_ids_BK.shape[1]
        self._resize(state, inputs.visible_BKC.shape[2])
        binding = self._binding(
            state, queries, want_logits=want_logits, want_attention=want_attention
        )
        arrays = binding.inputs
        arrays["token"][:] = inputs.token_ids_BK
        arrays["position"][:] = inputs.positions_BK
        arrays["write_index"][:] = inputs.write_index_B
        arrays["visible"][:, 0] = inputs.visible_BKC
        arrays["score"][:] = inputs.scores_BK
        self._step.run_with_iobinding(binding.io)
        outputs = binding.outputs
        logits = None
        if want_logits:
            logits = outputs["logits"].reshape(*inputs.token_ids_BK.shape, -1)
        return StepOutputs(
            outputs["candidate_score"],
            outputs["candidate_token"],
            outputs["candidate_parent"],
            logits,
            self._attention(outputs, state) if want_attention else None,
        )

    def repack(self, state: OnnxState, repack: Repack) -> None:
        """Keep the given rows and slots, in the given order."""
        if repack.in_place:
            self._move(state, repack)
            return
        self._relayout(state, repack)
        if len(repack.rows) < len(state.source_mask_BS):
            state.sources = [tensor[repack.rows] for tensor in state.sources]
            state.source_mask_BS = state.source_mask_BS[repack.rows]

    def free(self, state: OnnxState) -> None:
        """Forget bindings, which hold pointers into the state, and give its memory back."""
        state.bindings.clear()
        state.caches_TRCD = state.caches_TRCD[:, :, :0]
        for block in state.blocks:
            self._give(block)
        state.blocks = [_NO_MEMORY, _NO_MEMORY]

    def _resize(self, state: OnnxState, capacity: int) -> None:
        """Grow or shrink the caches to `capacity` slots; new slots are zero."""
        tensors, rows, old, dim = state.caches_TRCD.shape
        if old == capacity:
            return
        caches = self._next_layout(state, (tensors, rows, capacity, dim))
        kept = min(old, capacity)
        caches[:, :, :kept] = state.caches_TRCD[:, :, :kept]
        caches[:, :, kept:] = 0.0
        self._adopt(state, caches)

    def _move(self, state: OnnxState, repack: Repack) -> None:
        """Move slots to the front; most are there already, for a step adds to the end."""
        tensors, cache_rows, capacity, dim = state.caches_TRCD.shape
        height = cache_rows // len(state.source_mask_BS)  # rows a sentence
        rows, old, new = repack.moves()
        first_N1 = (rows * height)[:, None] + np.arange(height)
        source = (first_N1 * capacity + old[:, None]).ravel()
        target = (first_N1 * capacity + new[:, None]).ravel()
        for cache in state.caches_TRCD.reshape(tensors, -1, dim):
            cache[target] = cache[source]

    def _relayout(self, state: OnnxState, repack: Repack) -> None:
        """Gather rows and slots into the spare memory and swap."""
        tensors, cache_rows, old_capacity, dim = state.caches_TRCD.shape
        height = cache_rows // len(state.source_mask_BS)  # rows a sentence
        rows_R = (repack.rows[:, None] * height + np.arange(height)).ravel()
        slots_RC = np.repeat(repack.slots_BC, height, axis=0)
        shape = (tensors, *slots_RC.shape, dim)
        caches = self._next_layout(state, shape)
        flat = (rows_R[:, None] * old_capacity + slots_RC).ravel()
        for old, new in zip(state.caches_TRCD, caches, strict=True):
            np.take(old.reshape(-1, dim), flat, axis=0, out=new.reshape(-1, dim), mode="clip")
        self._adopt(state, caches)

    def _next_layout(self, state: OnnxState, shape: tuple[int, ...]) -> Floats:
        """Caches of that shape in the second block, whatever they hold."""
        size = math.prod(shape)
        if state.blocks[1].size < size:
            self._give(state.blocks[1])
            state.blocks[1] = self._memory.take(size)
        return state.blocks[1][:size].reshape(shape)

    def _adopt(self, state: OnnxState, caches_TRCD: Floats) -> None:
        """Make the second block the caches."""
        state.blocks.reverse()
        state.caches_TRCD = caches_TRCD
        state.bindings.clear()

    def _give(self, block: Floats) -> None:
        if block.size:
            self._memory.give(block)

    def _binding(
        self, state: OnnxState, queries: int, *, want_logits: bool, want_attention: bool
    ) -> _Binding:
        key = (queries, want_logits, want_attention)
        if key not in state.bindings:
            state.bindings[key] = self._bind(state, *key)
        return state.bindings[key]

    def _bind(
        self, state: OnnxState, queries: int, want_logits: bool, want_attention: bool
    ) -> _Binding:
        io = self._step.io_binding()
        rows, length = state.source_mask_BS.shape
        sizes = {"B": rows, "Q": queries, "C": state.caches_TRCD.shape[2], "N": 2 * queries}
        sizes |= {"S": length, "M": rows * queries, "BS": rows * length}
        given: dict[str, Iterator[Floats]] = {
            "source": iter(state.sources),
            "source_mask": iter([state.source_mask_BS]),
            "self": iter(state.caches_TRCD),
        }
        inputs: dict[str, NDArray[Any]] = {}
        for tensor in self._step_graph.inputs:
            if tensor.role in given:
                array: NDArray[Any] = next(given[tensor.role])
            else:
                array = inputs[tensor.role] = _allocate(tensor.axes, tensor.dtype, sizes)
            io.bind_input(tensor.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        given = {"self": iter(state.caches_TRCD)}
        optional = {"logits": want_logits}
        optional |= {"alignment": want_attention, "alignment_query": want_attention}
        outputs: dict[str, NDArray[Any]] = {}
        for tensor in self._step_graph.outputs:
            if not optional.get(tensor.role, True):
                continue
            if tensor.role in given:
                array = next(given[tensor.role])
            else:
                array = outputs[tensor.role] = _allocate(tensor.axes, tensor.dtype, sizes)
            io.bind_output(tensor.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        return _Binding(io, inputs, outputs, (state.caches_TRCD, *state.sources))

    def _attention(self, outputs: dict[str, NDArray[Any]], state: OnnxState) -> Floats:
        """Weights of the source positions, [B,Q,S].

        A joint model gives them itself: Reduction's, mean over features. Else they are those of the
        last source attention, mean over heads.
        """
        if "alignment" in outputs:
            alignment: Floats = outputs["alignment"]
            return alignment
        query_BQD, heads = outputs["alignment_query"], self._sizes.num_heads

        def split(x: Floats) -> Floats:
            return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)

        query, key = split(query_BQD), split(state.sources[-2])
        scores = query @ key.transpose(0, 1, 3, 2) * np.float32(query.shape[-1] ** -0.5)
        scores += state.source_mask_BS[:, None, None]
        scores -= scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores)
        weights /= weights.sum(axis=-1, keepdims=True)
        result: Floats = weights.mean(axis=1)
        return result


@dataclass(frozen=True)
class _Binding:
    """Bound buffers by role, and what must stay alive while they are bound."""

    io: onnxruntime.IOBinding
    inputs: dict[str, NDArray[Any]]
    outputs: dict[str, NDArray[Any]]
    held: tuple[Floats, ...]


def _allocate(axes: Sequence[str | int], dtype: str, sizes: dict[str, int]) -> NDArray[Any]:
    shape = [axis if isinstance(axis, int) else sizes[axis] for axis in axes]
    return np.zeros(shape, dtype=dtype)


def _names(graph: Graph) -> dict[str, list[str]]:
    """Tensor names by role."""
    names: dict[str, list[str]] = {}
    for tensor in (*graph.inputs, *graph.outputs):
        names.setdefault(tensor.role, []).append(tensor.name)
    return names


def _load(folder: Path, file: str, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(
            folder / file,
            options,
            providers=["CPUExecutionProvider"],
            # Its kernel is several times slower on a CPU than Add and LayerNormalization.
            disabled_optimizers=["SkipLayerNormFusion"],
        )
    except Exception as error:  # ONNX Runtime raises classes of its own, one for each status
        raise BundleError(
            f"{folder / file}: ONNX Runtime {onnxruntime.__version__} cannot load the graph: "
            f"{str(error).splitlines()[0]}"
        ) from error


def _probe_int8(session: onnxruntime.InferenceSession, folder: Path) -> None:
    """Compare an int8 product of extreme values with its exact result, stored in the graph.

    x86 processors without VNNI saturate sums of two u8 x s8 products at 16 bits.
    """
    found, wanted = session.run(None, {})
    if not np.array_equal(found, wanted):
        raise BundleError(
            f"{folder}: this processor's int8 products are not exact (it has no VNNI), so the int8 "
            "bundle would translate worse; export and serve an fp32 bundle on this machine"
        )
