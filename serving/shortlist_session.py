"""A bundle's shortlists behind the `Stepper` protocol.

Shape letters: B sentences, D model, N candidates, P prefix tokens, U columns of the output matrix
that some sentence has, L those of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession

from serving.bundle import Manifest
from serving.cache import Repack
from serving.ort import Floats, load_graph
from serving.session import Ints, OnnxState, OnnxStepper
from serving.shortlist import load_shortlist
from serving.stepper import PrefillOutputs, StepInputs, StepOutputs

_COLUMN_UNIT = 16
"""Columns are padded to a multiple, for full vectors and the same bits in any batch."""


@dataclass(frozen=True)
class _Head:
    """The output layer of a running batch."""

    matrix: list[NDArray[Any]]
    """The matrix [D,U] and, with int8, its scales [U]."""
    column_BL: Ints
    mask_BL: Floats
    piece_BL: NDArray[np.int32]
    laid_out_for: int
    """Sentences whose columns the matrix has, some of which may have left."""

    def keep(self, rows: Ints) -> _Head | None:
        """That of these sentences alone; None where it should be laid out anew, smaller."""
        if 2 * len(rows) < self.laid_out_for:
            return None
        kept = (self.column_BL[rows], self.mask_BL[rows], self.piece_BL[rows])
        return _Head(self.matrix, *kept, self.laid_out_for)


@dataclass
class ShortlistState(OnnxState):
    """A running batch, with the pieces of each sentence."""

    lists: list[Ints] = field(default_factory=list)
    head: _Head | None = None


class ShortlistStepper(OnnxStepper):
    """Decodes sentences that have no prefix and need no whole distribution."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        threads: int,
        *,
        encoder: InferenceSession | None = None,
        profile_prefix: Path | None = None,
    ) -> None:
        """Load the graphs of a bundle that has shortlists, as `OnnxStepper` does."""
        files = manifest.shortlist
        assert files is not None
        super().__init__(
            folder,
            manifest,
            threads,
            step=files.step,
            encoder=encoder,
            profile_prefix=profile_prefix,
        )
        self._shortlist = load_shortlist(folder / files.file, manifest.sizes.vocab_size)
        self._columns = load_graph(folder, files.columns.file, 1, int8=False)

    def encode(self, sources: Sequence[Sequence[int]]) -> ShortlistState:
        """Run the encoder and look up what the sources may become."""
        state = super().encode(sources)
        lists = [self._shortlist.of(source) for source in sources]
        return ShortlistState(state.sources, state.source_mask_BS, state.caches, lists=lists)

    def prefill(
        self, state: Any, token_ids_BP: Ints, labels_BP: Ints, *, want_attention: bool = False
    ) -> PrefillOutputs:
        """There is none, as a label may lie outside the list; raises ValueError."""
        raise ValueError("a sentence with a prefix is decoded without shortlist")

    def step(
        self,
        state: OnnxState,
        inputs: StepInputs,
        *,
        want_logits: bool,
        attention_rows: Sequence[int] = (),
    ) -> StepOutputs:
        """One step of all beams; logits cannot be asked for."""
        assert isinstance(state, ShortlistState)
        assert not want_logits
        if state.head is None:
            state.bindings.clear()
            state.head = self._make_head(state.lists)
        outputs = self._run(state, inputs, want_logits=False, want_attention=bool(attention_rows))
        place_BN, piece_BL = outputs["candidate_place"], state.head.piece_BL
        parents_BN, columns_BN = np.divmod(place_BN, np.int32(piece_BL.shape[1]))
        rows_B1 = np.arange(len(piece_BL))[:, None]
        return StepOutputs(
            outputs["candidate_score"],
            piece_BL[rows_B1, columns_BN],
            parents_BN,
            attention_RQS=self._rows_attention(outputs, state, attention_rows),
        )

    def repack(self, state: OnnxState, repack: Repack) -> None:
        """Keep the given rows and slots, in the given order."""
        assert isinstance(state, ShortlistState)
        super().repack(state, repack)
        if len(repack.rows) < len(state.lists):
            state.lists = [state.lists[row] for row in repack.rows]
            state.bindings.clear()
            state.head = state.head.keep(repack.rows) if state.head is not None else None

    def extend(self, state: OnnxState, other: OnnxState, rows: Ints) -> None:
        """Put the other's sentences into these idle rows, the rest behind all."""
        assert isinstance(state, ShortlistState)
        assert isinstance(other, ShortlistState)
        super().extend(state, other, rows)
        for row, pieces in zip(rows.tolist(), other.lists, strict=False):
            state.lists[row] = pieces
        state.lists += other.lists[len(rows) :]
        state.head = None

    def _given(self, state: OnnxState) -> dict[str, list[NDArray[Any]]]:
        assert isinstance(state, ShortlistState)
        assert state.head is not None
        head = state.head
        names = ("output_weight", "output_scale")[: len(head.matrix)]
        matrix = {name: [array] for name, array in zip(names, head.matrix, strict=True)}
        return {**matrix, "column": [head.column_BL], "column_mask": [head.mask_BL]}

    def _make_head(self, lists: Sequence[Ints]) -> _Head:
        union = np.unique(np.concatenate(lists))
        padding = -len(union) % _COLUMN_UNIT
        ids_U = np.concatenate([union, np.full(padding, union[-1])])
        length = -(-max(map(len, lists)) // _COLUMN_UNIT) * _COLUMN_UNIT
        column_BL = np.zeros((len(lists), length), dtype=np.int64)
        piece_BL = np.zeros(column_BL.shape, dtype=np.int32)
        mask_BL = np.full(column_BL.shape, -np.inf, dtype=np.float32)
        for row, pieces in enumerate(lists):
            column_BL[row, : len(pieces)] = np.searchsorted(union, pieces)
            piece_BL[row, : len(pieces)] = pieces
            mask_BL[row, : len(pieces)] = 0.0
        matrix = self._columns.run(None, {"ids": ids_U})
        return _Head(matrix, column_BL, mask_BL, piece_BL, len(lists))
