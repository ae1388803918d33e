"""A bundle's encoder: sources of unlike length do not pad each other.

Shape letters: B sentences, S source positions, D model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from serving.bundle.manifest import Manifest
from serving.errors import BundleError
from serving.runtime.device import open_device
from serving.runtime.session import Device, SourceMemory
from serving.search.ids import PAD_ID
from serving.search.prefix_tree import round_up

_CALL_TOKENS = 16
"""Padding up to so many tokens takes less time than another call does."""


class Encoder:
    """The encoder graph in a session of its own, which several steppers may share."""

    def __init__(
        self, folder: Path, manifest: Manifest, threads: int, device: Device | None = None
    ) -> None:
        """Load the graph with `threads` intra-op threads, on the bundle's own device unless one is
        given; raises BundleError where the bundle has none or is for another device, or ONNX
        Runtime refuses it."""
        if manifest.encoder is None:
            raise BundleError(f"{folder}: a bundle for {manifest.task!r} has no encoder")
        self._device = device or open_device(folder, manifest)
        int8 = manifest.precision == "int8"
        self._session = self._device.load(folder, manifest.encoder, threads, int8=int8)

    def run(self, sources: Sequence[Sequence[int]]) -> SourceMemory:
        """The step graph's source tensors [B,S,D] and the mask [B,S], 0 at ids and -inf behind
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


def like_lengths(lengths: Sequence[int]) -> list[list[int]]:
    """Which sources are encoded together, as lists of their numbers, the longest sources first.

    Sources of another length go into another call where padding would cost more than the call.
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
