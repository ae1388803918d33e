"""A bundle's shortlists behind the `Stepper` protocol.

Shape letters: B sentences, P prefix tokens, L pieces of the longest list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from serving.arrays import Ints
from serving.bundle.manifest import Manifest
from serving.bundle.shortlist import load_shortlist
from serving.errors import BundleError
from serving.runtime.cache_tensors import CacheSizes
from serving.runtime.session import Device
from serving.runtime.translation_stepper import Encoder, OnnxState, OnnxStepper
from serving.search.prefix_tree import Repack, fill_padded, places
from serving.search.stepper import (
    BeamArrays,
    BoundSteps,
    PrefillOutputs,
    StepInputs,
    StepOutputs,
)

_UNIT = 16
"""Lists are filled up to a multiple of this, for full vectors."""


@dataclass
class ShortlistState:
    """A running batch, with the pieces that each sentence may become."""

    batch: OnnxState
    column_BL: Ints
    """The pieces of each sentence in order, with -1 after the last; an input of the step graph."""


class ShortlistStepper(CacheSizes):
    """Decodes sentences that have no prefix and need no whole distribution.

    An `OnnxStepper` of the bundle's other step graph does the work; this class adds the lists.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        threads: int,
        *,
        encoder: Encoder | None = None,
        device: Device | None = None,
        profile_prefix: Path | None = None,
    ) -> None:
        """Load the graphs and the lexicon of a bundle, as `OnnxStepper` does. Raises BundleError
        also if the bundle has no shortlists, or damaged ones."""
        files = manifest.shortlist
        if files is None:
            raise BundleError(f"{folder}: the bundle has no shortlist; export it with --shortlist")
        super().__init__(manifest)
        self._stepper = OnnxStepper(
            folder,
            manifest,
            threads,
            step=files.step,
            encoder=encoder,
            device=device,
            profile_prefix=profile_prefix,
        )
        self.one_query_first, self.reach = self._stepper.one_query_first, self._stepper.reach
        self._shortlist = load_shortlist(
            folder / files.lexicon,
            manifest.sizes.vocab_size,
            manifest.decoding_ids.eos,
            manifest.source_pieces,
        )

    def encode(self, sources: Sequence[Sequence[int]]) -> ShortlistState:
        """Run the encoder, and look up the target pieces that the sources may become."""
        lists = [self._shortlist.of(source) for source in sources]
        column_BL = np.full((len(lists), _room(max(map(len, lists)))), -1, dtype=np.int64)
        for row, pieces in enumerate(lists):
            column_BL[row, : len(pieces)] = pieces
        state = ShortlistState(self._stepper.encode(sources), column_BL)
        _bind(state)
        return state

    def prefill(
        self,
        state: ShortlistState,
        token_ids_BP: Ints,
        labels_BP: Ints,
        *,
        want_attention: bool = False,
    ) -> PrefillOutputs:
        """Raises ValueError: a sentence with a shortlist has no prefix, because a label may lie
        outside the list."""
        raise ValueError("a sentence with a prefix is decoded without shortlist")

    def step(
        self,
        state: ShortlistState,
        inputs: StepInputs,
        *,
        want_logits: bool,
        attention_rows: Sequence[int] = (),
    ) -> StepOutputs:
        """Run one step of all beams; the candidates are pieces of each sentence's list."""
        return self._stepper.step(
            state.batch, inputs, want_logits=want_logits, attention_rows=attention_rows
        )

    def bind(self, state: ShortlistState, beams: BeamArrays) -> BoundSteps | None:
        """Steps by native code on the CPU; see `Stepper`."""
        return self._stepper.bind(state.batch, beams)

    def repack(self, state: ShortlistState, repack: Repack) -> None:
        """Keep the given rows and slots, in the given order."""
        self._stepper.repack(state.batch, repack)
        if len(repack.rows) < len(state.column_BL):
            kept_BL = state.column_BL[repack.rows]
            longest = int((kept_BL >= 0).sum(axis=1).max(initial=0))
            state.column_BL = np.ascontiguousarray(kept_BL[:, : _room(longest)])
            _bind(state)

    def extend(self, state: ShortlistState, other: ShortlistState, rows: Ints) -> None:
        """Put the other's sentences into these idle rows, and the rest at the end."""
        self._stepper.extend(state.batch, other.batch, rows)
        first, second = state.column_BL, other.column_BL
        taken = places(rows, len(first), len(second))
        total = len(first) + len(second) - len(rows)
        state.column_BL = fill_padded(first, second, taken, total, -1)
        if state.column_BL is not first:
            _bind(state)

    def trim(self, state: ShortlistState, source_length: int) -> None:
        """Cut the padding of sources; the lists stay."""
        self._stepper.trim(state.batch, source_length)

    def free(self, state: ShortlistState) -> None:
        """Give the caches' memory back."""
        self._stepper.free(state.batch)


def _bind(state: ShortlistState) -> None:
    """Have the next steps read the state's lists, which lie elsewhere than before."""
    state.batch.further = {"column": [state.column_BL]}
    state.batch.bindings.clear()


def _room(pieces: int) -> int:
    """Number of columns for lists of this many pieces."""
    return -(-pieces // _UNIT) * _UNIT
