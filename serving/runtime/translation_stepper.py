"""ONNX Runtime behind the `Stepper` protocol: a bundle's encoder and its step graph. Sources of
very different length do not pad each other, and caches are written in place.

Shape letters: B sentences, R some of them, S source positions, P prefix tokens, K beams, Q queries,
C cache slots, D model, V vocabulary, N candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.arrays import Floats, Ints
from serving.bundle.graph import Graph
from serving.bundle.manifest import Manifest
from serving.errors import BundleError
from serving.runtime.cache_tensors import Bindings, CacheSizes, StepMemory, round_up
from serving.runtime.cpu_graphs import CpuBinding
from serving.runtime.device import open_device
from serving.runtime.native_steps import native_steps
from serving.runtime.ort import (
    check_int8,
    has_kernels,
    trying_out,
    write_positions,
    write_visible,
)
from serving.runtime.session import Binding, CacheMemory, Device, SourceMemory
from serving.search.ids import PAD_ID
from serving.search.prefix_tree import Repack, chain
from serving.search.stepper import (
    BeamArrays,
    BoundSteps,
    PrefillOutputs,
    StepInputs,
    StepOutputs,
)

PREFILL_CHUNK = {"cross": 64, "joint": 8}
"""Number of tokens given to the step graph at once; with a joint model each costs S states."""

_WIDTH_KEPT = {"cross": 2.0, "joint": 1.25}
"""Width of a batch, as a multiple of its longest source, beyond which it gets a new,
narrower layout. A joint model does nearly all of a step for each source position, others only their
source attention."""

_CANDIDATES = frozenset(("candidate_score", "candidate_token", "candidate_parent"))
_CALL_TOKENS = 16
"""Padding of up to this many tokens takes less time than another call does."""


class Encoder:
    """The encoder graph in a session of its own, which several steppers may share."""

    def __init__(
        self, folder: Path, manifest: Manifest, threads: int, device: Device | None = None
    ) -> None:
        """Load the graph with `threads` intra-op threads, on the bundle's own device unless one is
        given. Raises BundleError if the bundle has no encoder or is for another device, or if ONNX
        Runtime refuses it."""
        if manifest.encoder is None:
            raise BundleError(f"{folder}: a bundle for {manifest.task!r} has no encoder")
        self._device = device or open_device(folder, manifest)
        int8 = manifest.precision == "int8"
        self._session = self._device.load(folder, manifest.encoder, threads, int8=int8)

    def run(self, sources: Sequence[Sequence[int]]) -> SourceMemory:
        """The step graph's source tensors [B,S,D] and the mask [B,S], 0 at ids and -inf after
        them; S is a multiple of 8. A row's numbers do not depend on the others."""
        lengths = [round_up(len(source)) for source in sources]
        groups = like_lengths(lengths)
        found = [
            self._run([sources[row] for row in rows], max(lengths[row] for row in rows))
            for rows in groups
        ]
        merged: SourceMemory = found[0] if len(found) == 1 else self._device.merge(found, groups)
        return merged

    def _run(self, sources: Sequence[Sequence[int]], length: int) -> SourceMemory:
        """Run the encoder on sources that are padded to a length."""
        ids_BS = np.full((len(sources), length), PAD_ID, dtype=np.int64)
        mask_BS = np.full(ids_BS.shape, -np.inf, dtype=np.float32)
        for row, source in enumerate(sources):
            ids_BS[row, : len(source)] = source
            mask_BS[row, : len(source)] = 0.0
        encoded: SourceMemory = self._session.encode(ids_BS, mask_BS)
        return encoded


@dataclass
class OnnxState:
    """Tensors of a running batch; ONNX Runtime reads and writes the caches in place."""

    sources: SourceMemory
    caches: CacheMemory
    further: dict[str, list[Ints]] = field(default_factory=dict)
    """More inputs of the step graph that stay the same from step to step, by role."""
    bindings: Bindings = field(default_factory=Bindings)
    """Bindings by the numbers of queries and beams, and by whether logits and alignment queries are
    wanted."""


class OnnxStepper(CacheSizes):
    """A bundle's encoder and step graph."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        threads: int,
        *,
        step: Graph | None = None,
        encoder: Encoder | None = None,
        device: Device | None = None,
        profile_prefix: Path | None = None,
    ) -> None:
        """Load the graphs with `threads` intra-op threads.

        `step` is the bundle's step graph unless given, `encoder` one that is loaded already,
        `device` one that was opened for the bundle; `profile_prefix` is that of `load_graph`, for
        the step graph. Raises BundleError if the graphs are for another device, ONNX Runtime
        refuses one, they do not run on the CPU as the manifest describes them, or this machine's
        int8 products are not exact.
        """
        super().__init__(manifest)
        self._sizes, self._step_graph = manifest.sizes, step or manifest.step_graph
        # Native code reads these through their addresses.
        missing = _CANDIDATES - {tensor.role for tensor in self._step_graph.outputs}
        if missing:
            raise BundleError(
                f"{folder}: the manifest names no output of the step graph with the role "
                f"{min(missing)!r}; copy the bundle again, or export it again"
            )
        # Earlier bundles do not distinguish beams and queries, and ONNX Runtime's attention gives
        # one query different bits than several.
        scores = [tensor.axes for tensor in self._step_graph.inputs if tensor.role == "score"]
        self.one_query_first = any("K" in axes for axes in scores) and has_kernels()
        device = device or open_device(folder, manifest)
        self._memory = StepMemory(self._caches, device.memory)
        self._recurrent = manifest.sizes.recurrent
        roles = {tensor.role for tensor in self._step_graph.inputs}
        self._asks_positions = "slot_position" in roles
        check_int8(folder, manifest)
        int8 = manifest.precision == "int8"
        self.encoder = encoder or Encoder(folder, manifest, threads, device)
        self._step = device.load(
            folder, self._step_graph, threads, int8=int8, profile_prefix=profile_prefix
        )
        if step is None and device.use.name == "cpu" and profile_prefix is None:
            with trying_out(folder):
                self._try_out(manifest.decoding_ids.eos)

    def _try_out(self, eos: int) -> None:
        """Run both graphs on one id."""
        state = self.encode([[eos]])
        id_11 = np.full((1, 1), eos, dtype=np.int64)
        self.prefill(state, id_11, id_11, want_attention=True)
        self.free(state)

    def encode(self, sources: Sequence[Sequence[int]]) -> OnnxState:
        """Run the encoder on sources, padded on the right to a multiple of 8."""
        encoded = self.encoder.run(sources)
        return OnnxState(encoded, self._memory.caches(*encoded.mask_BS.shape))

    def prefill(
        self,
        state: OnnxState,
        token_ids_BP: Ints,
        labels_BP: Ints,
        *,
        want_attention: bool = False,
    ) -> PrefillOutputs:
        """Fill the caches with given tokens, in chunks."""
        rows, length = token_ids_BP.shape
        padded = round_up(length)
        scores = np.zeros((rows, padded), dtype=np.float32)
        attention: list[Floats] = []
        chunk = 1 if self._recurrent else PREFILL_CHUNK[self._kind]
        for start in range(0, length, chunk):
            size = min(chunk, padded - start)
            binding = self._binding(
                state, padded, size, size, want_logits=False, want_attention=want_attention
            )
            real = slice(start, min(start + size, length))
            count = real.stop - real.start
            for name, values in (("token", token_ids_BP), ("label", labels_BP)):
                binding.inputs[name].fill(PAD_ID)
                binding.inputs[name][:, :count] = values[:, real]
            positions = np.arange(start, start + size)
            binding.inputs["position"][:] = positions
            binding.inputs["write_index"][:] = start
            causal = np.arange(padded) <= positions[:, None]
            write_visible(binding, np.where(causal, np.float32(0), np.float32(-np.inf)))
            if self.lookback:
                binding.inputs["ancestor"][:] = chain(start, size, self.lookback)
            if self._asks_positions:
                binding.inputs["slot_position"][:] = np.arange(state.caches.capacity)
            binding.inputs["score"][:] = 0.0
            binding.run()
            scores[:, start : start + size] = binding.outputs["label_score"]
            if want_attention:
                attention.append(self._attention(binding.outputs, state, range(rows)))
        attention_BPS = np.concatenate(attention, axis=1)[:, :length] if want_attention else None
        return PrefillOutputs(scores[:, :length], attention_BPS)

    def step(
        self,
        state: OnnxState,
        inputs: StepInputs,
        *,
        want_logits: bool,
        attention_rows: Sequence[int] = (),
    ) -> StepOutputs:
        """Run one step of all beams."""
        queries, beams = inputs.token_ids_BQ.shape[1], inputs.scores_BK.shape[1]
        slots = inputs.visible_BQC.shape[2]
        binding = self._binding(
            state,
            slots,
            queries,
            beams,
            want_logits=want_logits,
            want_attention=bool(attention_rows),
        )
        arrays = binding.inputs
        arrays["token"][:] = inputs.token_ids_BQ
        arrays["position"][:] = inputs.positions_BQ
        arrays["write_index"][:] = inputs.write_index_B
        write_visible(binding, inputs.visible_BQC)
        if inputs.ancestors_BQW is not None:
            arrays["ancestor"][:] = inputs.ancestors_BQW
        if self._asks_positions:
            write_positions(binding, inputs.slot_positions_BC)
        arrays["score"][:] = inputs.scores_BK
        binding.run()
        outputs = binding.outputs
        return StepOutputs(
            outputs["candidate_score"],
            outputs["candidate_token"],
            outputs["candidate_parent"],
            outputs["logits"].reshape(*inputs.token_ids_BQ.shape, -1) if want_logits else None,
            self._attention(outputs, state, attention_rows) if attention_rows else None,
        )

    def bind(self, state: OnnxState, beams: BeamArrays) -> BoundSteps | None:
        """Steps by native code on the CPU; see `Stepper`."""
        count, slots = beams.tokens_BK.shape[1], beams.visible_BKC.shape[2]
        binding = self._binding(state, slots, count, count, want_logits=False, want_attention=False)
        if not isinstance(binding, CpuBinding):
            return None

        def current() -> bool:
            made = state.bindings.of((state.caches.layout, state.sources.layout))
            return binding in made.values()

        return native_steps(beams, binding, current)

    def repack(self, state: OnnxState, repack: Repack) -> None:
        """Keep the given rows and slots, in the given order."""
        state.bindings.repack(state.caches, repack)
        if len(repack.rows) < len(state.sources.mask_BS):
            state.sources.keep(repack.rows)

    def extend(self, state: OnnxState, other: OnnxState, rows: Ints) -> None:
        """Put the other's sentences into these idle rows, and the rest at the end. The other is
        left empty. Shorter sources are padded."""
        other.bindings.clear()
        state.sources.extend(other.sources, rows)
        state.caches.extend(other.caches, rows)

    def trim(self, state: OnnxState, source_length: int) -> None:
        """Cut padding when there is much of it. Otherwise a long source would slow down all that
        join after it. Sources of idle rows may lose ids."""
        width, needed = state.sources.mask_BS.shape[1], round_up(source_length)
        if width <= _WIDTH_KEPT[self._kind] * needed:
            return
        state.sources.trim(needed)
        if self._kind == "joint":
            state.caches.lower(needed)

    def free(self, state: OnnxState) -> None:
        """Forget bindings, which hold pointers into the caches, and give their memory back."""
        state.bindings.clear()
        state.caches.free()
        state.sources.free()

    def _binding(
        self,
        state: OnnxState,
        slots: int,
        queries: int,
        beams: int,
        *,
        want_logits: bool,
        want_attention: bool,
    ) -> Binding:
        """The binding for a call of the step graph, with this many slots in the caches."""
        state.bindings.resize(state.caches, slots)
        key = (queries, beams, want_logits, want_attention)
        made = state.bindings.of((state.caches.layout, state.sources.layout))
        if key not in made:
            rows, length = state.sources.mask_BS.shape
            sizes = {"B": rows, "Q": queries, "C": state.caches.capacity, "K": beams}
            sizes |= {"N": 2 * beams, "S": length, "M": rows * queries, "BS": rows * length}
            unwanted = set() if want_logits else {"logits"}
            unwanted |= set() if want_attention else {"alignment", "alignment_query"}
            given: dict[str, Sequence[NDArray[Any]]] = {
                "source_mask": [state.sources.mask_BS],
                **state.further,
            }
            made[key] = self._step.bind(sizes, state.caches, state.sources, given, unwanted)
        return made[key]

    def _attention(
        self, outputs: Mapping[str, Any], state: OnnxState, rows: Sequence[int]
    ) -> Floats:
        """Attention weights of the source positions of some sentences, [R,Q,S].

        A joint model computes them itself, in Reduction, as a mean over features. Otherwise they
        are those of one layer's source attention, as a mean over heads.
        """
        if "alignment" in outputs:
            alignment_RQS: Floats = outputs["alignment"][list(rows)]
            return alignment_RQS
        heads, layer = self._sizes.num_heads, self._sizes.alignment_layer
        queries_RQD = outputs["alignment_query"][list(rows)].astype(np.float32, copy=False)
        keys_RSD = state.sources.read(-2 if layer is None else 2 * layer, rows)
        query, key = (x.reshape(len(rows), x.shape[1], heads, -1) for x in (queries_RQD, keys_RSD))
        # Neither a BLAS product, whose order of sums depends on both lengths, nor a sum over the
        # padded length: a sentence's bits would depend on its batch mates.
        scores_RHQS = np.einsum("bqhd,bshd->bhqs", query, key)
        scores_RHQS *= np.float32(query.shape[-1] ** -0.5)
        scores_RHQS += state.sources.mask_BS[list(rows), None, None]
        scores_RHQS -= scores_RHQS.max(axis=-1, keepdims=True)
        weights_RHQS = np.exp(scores_RHQS)
        weights_RHQS /= np.cumsum(weights_RHQS, axis=-1)[..., -1:]
        result: Floats = weights_RHQS.mean(axis=1)
        return result


def like_lengths(lengths: Sequence[int]) -> list[list[int]]:
    """Divide sources into groups that are encoded together: lists of the sources' numbers, the
    longest sources first.

    Sources of another length go into another call if padding them would cost more than the call.
    """
    by_length: dict[int, list[int]] = {}
    for number, length in enumerate(lengths):
        by_length.setdefault(length, []).append(number)
    groups: list[list[int]] = []
    longest = padding = 0
    for length, numbers in sorted(by_length.items(), reverse=True):
        padding += len(numbers) * (longest - length)
        if groups and padding <= _CALL_TOKENS:
            groups[-1] = sorted(groups[-1] + numbers)
        else:
            groups.append(numbers)
            longest, padding = length, 0
    return groups
