"""A bundle's shortlists behind the `Stepper` protocol.

Shape letters: B sentences, P prefix tokens, L pieces of the longest list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.arrays import Ints
from serving.bundle.manifest import Manifest
from serving.bundle.shortlist import load_shortlist
from serving.runtime.encoder import Encoder
from serving.runtime.translation_stepper import OnnxState, OnnxStepper
from serving.search.prefix_tree import Repack, fill_padded, places
from serving.search.stepper import PrefillOutputs

_UNIT = 16
"""Lists are filled up to a multiple, for full vectors."""


@dataclass
class ShortlistState(OnnxState):
    """A running batch, with the pieces of each sentence."""

    column_BL: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """Pieces, with -1 behind the last."""


class ShortlistStepper(OnnxStepper):
    """Decodes sentences that have no prefix and need no whole distribution."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        threads: int,
        *,
        encoder: Encoder | None = None,
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
        self._shortlist = load_shortlist(folder / files.lexicon, manifest.sizes.vocab_size)

    def encode(self, sources: Sequence[Sequence[int]]) -> ShortlistState:
        """Run the encoder and look up what the sources may become."""
        state = super().encode(sources)
        lists = [self._shortlist.of(source) for source in sources]
        column_BL = np.full((len(lists), _room(max(map(len, lists)))), -1, dtype=np.int64)
        for row, pieces in enumerate(lists):
            column_BL[row, : len(pieces)] = pieces
        return ShortlistState(
            state.sources, state.source_mask_BS, state.caches, column_BL=column_BL
        )

    def prefill(
        self, state: Any, token_ids_BP: Ints, labels_BP: Ints, *, want_attention: bool = False
    ) -> PrefillOutputs:
        """There is none, as a label may lie outside the list; raises ValueError."""
        raise ValueError("a sentence with a prefix is decoded without shortlist")

    def repack(self, state: OnnxState, repack: Repack) -> None:
        """Keep the given rows and slots, in the given order."""
        assert isinstance(state, ShortlistState)
        super().repack(state, repack)
        if len(repack.rows) < len(state.column_BL):
            kept_BL = state.column_BL[repack.rows]
            longest = int((kept_BL >= 0).sum(axis=1).max(initial=0))
            state.column_BL = np.ascontiguousarray(kept_BL[:, : _room(longest)])

    def extend(self, state: OnnxState, other: OnnxState, rows: Ints) -> None:
        """Put the other's sentences into these idle rows, the rest behind all."""
        assert isinstance(state, ShortlistState)
        assert isinstance(other, ShortlistState)
        super().extend(state, other, rows)
        first, second = state.column_BL, other.column_BL
        taken = places(rows, len(first), len(second))
        total = len(first) + len(second) - len(rows)
        state.column_BL = fill_padded(first, second, taken, total, -1)
        if state.column_BL is not first:
            state.bindings.clear()

    def _given(self, state: OnnxState) -> dict[str, list[NDArray[Any]]]:
        assert isinstance(state, ShortlistState)
        return {"column": [state.column_BL]}


def _room(pieces: int) -> int:
    """Columns for so many pieces."""
    return -(-pieces // _UNIT) * _UNIT
