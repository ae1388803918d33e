"""A language model's step graph, for prompts, sampling, beam search and scoring alike.

Shape letters: B rows, P prompt tokens, Q queries, C cache slots, R queries with outputs,
N candidates, T likeliest tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from serving.arrays import Floats, Int32s, Ints
from serving.bundle.manifest import Manifest
from serving.errors import BundleError
from serving.runtime.cache_tensors import Bindings, CacheSizes, StepMemory, round_up
from serving.runtime.cpu_graphs import CpuBinding
from serving.runtime.device import open_device
from serving.runtime.kernels import native_library
from serving.runtime.native_steps import native_steps
from serving.runtime.ort import check_int8, trying_out, write_positions, write_visible
from serving.runtime.session import Binding, CacheMemory, Device
from serving.search.ids import PAD_ID
from serving.search.prefix_tree import ALIGNMENT, Repack, chain, round_capacity
from serving.search.sampling.drawing import TOP
from serving.search.sampling.prompts import CHUNK, LanguageOutputs, Prompted, PromptScores, chunks
from serving.search.stepper import (
    BeamArrays,
    BoundSteps,
    PrefillOutputs,
    StepInputs,
    StepOutputs,
)

SCORED_LOGITS = 1 << 21
"""Largest number of logits of tokens that are scored at once on a CPU: 8 MiB."""

T = TypeVar("T")


@dataclass
class LanguageState:
    """Tensors of a running batch; ONNX Runtime reads and writes the caches in place."""

    rows: int
    caches: CacheMemory
    bindings: Bindings = field(default_factory=Bindings)
    """Bindings by the number of queries, of queries with outputs, and of likeliest tokens."""


Reading = Generator[None, None, tuple[Prompted, PromptScores | None]]
"""Prompts that are being read: each `next` runs one chunk, and the end returns the result."""


class LanguageStepper(CacheSizes):
    """A language model bundle's step graph."""

    def __init__(
        self, folder: Path, manifest: Manifest, threads: int, device: Device | None = None
    ) -> None:
        """Load the graph with `threads` intra-op threads, on a device that was opened for the
        bundle or on its own.

        Raises BundleError if it comes from an earlier version or is for another device, if ONNX
        Runtime refuses it, if it does not run on the CPU as the manifest describes it, or if this
        machine's int8 products are not exact.
        """
        roles = {tensor.role for tensor in manifest.step_graph.inputs}
        if "top_rank" not in roles:
            raise BundleError(
                f"{folder}: its step graph was exported by an earlier version; export the "
                "checkpoint again with `python -m macaron export bundle`"
            )
        super().__init__(manifest)
        self._vocab_size, self._recurrent = manifest.sizes.vocab_size, manifest.sizes.recurrent
        self._kept = 1 + len(manifest.ends)
        """Number of candidates per beam: as many as may end at once, and one that continues."""
        device = device or open_device(folder, manifest)
        self._memory = StepMemory(self._caches, device.memory)
        check_int8(folder, manifest)
        int8 = manifest.precision == "int8"
        self._session = device.load(folder, manifest.step_graph, threads, int8=int8)
        self.checks_guesses = manifest.sizes.follows and native_library() is not None
        if device.use.name == "cpu":
            with trying_out(folder):
                eos = manifest.decoding_ids.eos
                self.free(self.score([[eos]], [[eos]])[0].state)
        self.one_query_first = False  # each query gives as many candidates as beams need

    def start(self, prompts: Sequence[Sequence[int]]) -> Prompted:
        """Read prompts in one go; see `read`."""
        return _finish(self._read(prompts, None))[0]

    def score(
        self, prompts: Sequence[Sequence[int]], labels: Sequence[Sequence[int]]
    ) -> tuple[Prompted, PromptScores]:
        """Read prompts in one go, and score a label after each of their tokens; see `read`."""
        return _finish(self._read(prompts, labels))

    def read(
        self, prompts: Sequence[Sequence[int]], labels: Sequence[Sequence[int]] | None = None
    ) -> Reading:
        """Put prompts into new caches, a chunk at each `next`; all must take the same number of
        chunks (`chunks`).

        Returns the prompts that have been read, and if labels are given, the log-probability of
        each label after its token. With light attention the caches keep no more than the widest
        layer can reach.
        """
        prompted, scores = yield from self._read(prompts, labels)
        return prompted, scores if labels is not None else None

    def next(self, state: LanguageState, inputs: StepInputs, top: int) -> LanguageOutputs:
        """The distributions after the tokens of rows with one query each, and their `top` likeliest
        tokens (or all)."""
        return _next_outputs(self._run(state, inputs, top))

    def bind_next(
        self, state: LanguageState, rows: BeamArrays, top: int
    ) -> tuple[BoundSteps, LanguageOutputs] | None:
        """Steps by native code on the CPU that do what `next` does; see `SamplingStepper`."""
        state.bindings.resize(state.caches, rows.visible_BKC.shape[2])
        binding = self._binding(state, 1, 1, top)
        if not isinstance(binding, CpuBinding):
            return None

        def current() -> bool:
            return binding in state.bindings.of(state.caches.layout).values()

        steps = native_steps(rows, binding, current)
        return None if steps is None else (steps, _next_outputs(binding.outputs))

    def follow(self, state: LanguageState, inputs: StepInputs, top: int) -> LanguageOutputs:
        """The distributions after each of several tokens of one row, equal to the bit to those that
        `next` gives for one token after another: products do not depend on the other rows, and
        neither does attention by the native kernels (`checks_guesses`)."""
        outputs = self._run(state, inputs, top)
        return LanguageOutputs(outputs["top_score"][0], outputs["top_token"][0], outputs["logits"])

    def step(
        self,
        state: LanguageState,
        inputs: StepInputs,
        *,
        want_logits: bool,
        attention_rows: Sequence[int] = (),
    ) -> StepOutputs:
        """Run one step of beam search. The outputs have no attention, because there is no
        source."""
        del attention_rows
        count = self._kept * inputs.token_ids_BQ.shape[1]
        outputs = self._run(state, inputs, count)
        shape = (*inputs.token_ids_BQ.shape, -1)
        return StepOutputs(
            *_best_candidates(outputs["top_score"], outputs["top_token"], inputs.scores_BK, count),
            outputs["logits"].reshape(shape) if want_logits else None,
        )

    def encode(self, sources: Sequence[Sequence[int]]) -> LanguageState:
        """Empty caches for beam search; a language model has no source."""
        return self._empty(len(sources))

    def prefill(
        self,
        state: LanguageState,
        token_ids_BP: Ints,
        labels_BP: Ints,
        *,
        want_attention: bool = False,
    ) -> PrefillOutputs:
        """Fill the empty caches of a beam search with tokens and score their labels."""
        del want_attention
        prompts, labels = token_ids_BP.tolist(), labels_BP.tolist()
        _, scores = _finish(self._fill(state, prompts, labels, keep=None))
        return PrefillOutputs(scores.labels_BP)

    def bind(self, state: LanguageState, beams: BeamArrays) -> None:
        """Returns None: beams of a language model are chosen in NumPy."""

    def repack(self, state: LanguageState, repack: Repack) -> None:
        """Keep the given rows and slots, in the given order."""
        state.bindings.repack(state.caches, repack)
        state.rows = len(repack.rows)

    def extend(self, state: LanguageState, other: LanguageState, rows: Ints) -> None:
        """Put the other's rows into these idle ones, and the rest at the end. The other is left
        empty."""
        other.bindings.clear()
        state.caches.extend(other.caches, rows)
        state.rows += other.rows - len(rows)

    def trim(self, state: LanguageState, source_length: int) -> None:
        """Does nothing: a language model has no source."""

    def free(self, state: LanguageState) -> None:
        """Forget bindings, which hold pointers into the caches, and give their memory back."""
        state.bindings.clear()
        state.caches.free()

    def _empty(self, rows: int) -> LanguageState:
        return LanguageState(rows, self._memory.caches(rows))

    def _read(
        self, prompts: Sequence[Sequence[int]], labels: Sequence[Sequence[int]] | None
    ) -> Generator[None, None, tuple[Prompted, PromptScores]]:
        """Read prompts as `read` does. Without labels the scores have no meaning."""
        state = self._empty(len(prompts))
        try:
            first, scores = yield from self._fill(state, prompts, labels, keep=self.reach)
        except BaseException:  # also if the caller has left
            self.free(state)
            raise
        used_B = np.array([len(prompt) - first for prompt in prompts], dtype=np.int64)
        return Prompted(state, state.caches.capacity, used_B, first), scores

    def _fill(
        self,
        state: LanguageState,
        prompts: Sequence[Sequence[int]],
        labels: Sequence[Sequence[int]] | None,
        keep: int | None,
    ) -> Generator[None, None, tuple[int, PromptScores]]:
        """Run prompts through the graph; returns the position in the first slot, and scores.

        Before a chunk all but the last `keep` slots are dropped.
        """
        rows, longest = len(prompts), max(map(len, prompts))
        if len({chunks(prompt) for prompt in prompts}) > 1 and keep is not None:
            raise ValueError("prompts of one batch must take the same number of chunks")
        padded, first = round_up(longest), 0
        chunk = 1 if self._recurrent else CHUNK
        if labels is not None and self._target == "cpu":
            chunk = min(chunk, _scored_together(rows * self._vocab_size))
        parts: list[dict[str, NDArray[Any]]] = []
        for start in range(0, longest, chunk):
            size = min(chunk, padded - start)
            if keep is not None and start % CHUNK == 0 and start - first > keep:
                self._drop(state, start - first, keep)
                first = start - keep
            given = [ids[start : start + size] for ids in prompts]
            wanted = None if labels is None else [ids[start : start + size] for ids in labels]
            scores = self._read_chunk(state, given, wanted, start, start - first, size)
            if labels is not None:
                parts.append(scores)
            if (start + size) % CHUNK == 0 or start + size >= longest:
                yield
        joined = {
            name: np.concatenate([part[name] for part in parts], axis=1)[:, :longest]
            if parts
            else np.zeros((rows, longest, *shape), dtype)
            for name, shape, dtype in (
                ("label_score", (), np.float32),
                ("top_score", (0,), np.float32),
                ("top_token", (0,), np.int32),
            )
        }
        return first, PromptScores(*joined.values())

    def _read_chunk(
        self,
        state: LanguageState,
        prompts: Sequence[Sequence[int]],
        labels: Sequence[Sequence[int]] | None,
        start: int,
        used: int,
        size: int,
    ) -> dict[str, NDArray[Any]]:
        """Put a part of the prompts, which begins at position `start`, into the slots from `used`
        on. Returns the scores of its labels, or none if there are no labels."""
        state.bindings.resize(state.caches, round_capacity(used + size))
        outputs, top = (1, 1) if labels is None else (size, TOP)
        binding = self._binding(state, size, outputs, top)
        arrays = binding.inputs
        for name, values in (("token", prompts), ("label", labels or ())):
            arrays[name].fill(PAD_ID)
            for row, ids in enumerate(values):
                arrays[name][row, : len(ids)] = ids
        capacity, queries = state.caches.capacity, np.arange(size)
        arrays["position"][:] = start + queries
        arrays["slot_position"][:] = start - used + np.arange(capacity)
        arrays["write_index"][:] = used
        causal = np.arange(capacity) <= used + queries[:, None]
        write_visible(binding, np.where(causal, np.float32(0), np.float32(-np.inf)))
        if self.lookback:
            arrays["ancestor"][:] = chain(used, size, self.lookback)
        binding.run()
        wanted = () if labels is None else ("label_score", "top_score", "top_token")
        return {name: binding.outputs[name].copy() for name in wanted}

    def _drop(self, state: LanguageState, used: int, keep: int) -> None:
        """Keep the last `keep` of `used` slots of every row."""
        slots = np.broadcast_to(np.arange(used - keep, used), (state.rows, keep))
        used_B = np.full(state.rows, keep)
        state.bindings.repack(
            state.caches, Repack(np.arange(state.rows), slots, used_B, in_place=False)
        )

    def _run(self, state: LanguageState, inputs: StepInputs, top: int) -> Mapping[str, Any]:
        queries = inputs.token_ids_BQ.shape[1]
        state.bindings.resize(state.caches, inputs.visible_BQC.shape[2])
        binding = self._binding(state, queries, queries, top)
        arrays = binding.inputs
        arrays["token"][:] = inputs.token_ids_BQ
        arrays["position"][:] = inputs.positions_BQ
        write_positions(binding, inputs.slot_positions_BC)
        arrays["write_index"][:] = inputs.write_index_B
        write_visible(binding, inputs.visible_BQC)
        if inputs.ancestors_BQW is not None:
            arrays["ancestor"][:] = inputs.ancestors_BQW
        binding.run()
        return binding.outputs

    def _binding(self, state: LanguageState, queries: int, outputs: int, top: int) -> Binding:
        key = queries, outputs, min(top, self._vocab_size)
        made = state.bindings.of(state.caches.layout)
        if key not in made:
            sizes = {"B": state.rows, "Q": queries, "C": state.caches.capacity}
            sizes |= {"R": outputs, "M": state.rows * outputs, "T": key[2]}
            made[key] = self._session.bind(sizes, state.caches)
            made[key].inputs["output_index"][:] = np.arange(outputs)
        return made[key]


def _scored_together(logits: int) -> int:
    """Number of tokens of a prompt that are scored at once, if each has `logits` logits: a chunk or
    a part of it."""
    size = CHUNK
    while size > ALIGNMENT and size * logits > SCORED_LOGITS:
        size //= 2
    return size


def _next_outputs(outputs: Mapping[str, Any]) -> LanguageOutputs:
    """The outputs of a step with one query per row."""
    return LanguageOutputs(
        outputs["top_score"][:, 0], outputs["top_token"][:, 0], outputs["logits"]
    )


def _best_candidates(
    top_scores_BKT: Floats, top_tokens_BKT: Int32s, scores_BK: Floats, count: int
) -> tuple[Floats, Int32s, Int32s]:
    """The best `count` (or all) continuations (score, token, parent), each [B,N], best first.

    The result is exact, because T is `count` or all. If a row has a score that is not a number, all
    scores of that row become so.
    """
    rows, _, top = top_scores_BKT.shape
    total_BX = (scores_BK[:, :, None] + top_scores_BKT).reshape(rows, -1)
    best_BN = np.argsort(-total_BX, axis=1, kind="stable")[:, :count]
    best_scores_BN = np.take_along_axis(total_BX, best_BN, axis=1)
    best_scores_BN[np.isnan(total_BX).any(axis=1)] = np.nan  # sorted to the end
    tokens_BN = np.take_along_axis(top_tokens_BKT.reshape(rows, -1), best_BN, axis=1)
    return best_scores_BN, tokens_BN, (best_BN // top).astype(np.int32)


def _finish(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end; returns the generator's return value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
