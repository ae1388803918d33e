"""What sentences take of a model's caches, as its manifest tells."""

from __future__ import annotations

import numpy as np

from serving.bundle.manifest import Manifest
from serving.search.prefix_tree import REPACK_EVERY, round_up

MOST_JOINT_STATES = 256
"""One or two sentences at beam 5: their matrix products are large already, and their states fit the
processor's cache (docs/decisions.md)."""


class CacheSizes:
    """What a bundle's model takes of memory and gains by a larger batch, from its manifest alone: a
    process that only fills batches needs no session."""

    def __init__(self, manifest: Manifest) -> None:
        self._kind, self._dim = manifest.decoder_kind, manifest.sizes.model_dim
        self._num_caches = sum(tensor.role == "self" for tensor in manifest.step.inputs)

    @property
    def repack_every(self) -> int:
        """Steps after which a sentence drops its dead cache slots."""
        return REPACK_EVERY[self._kind]

    @property
    def most_states(self) -> int | None:
        """Rows x beams x source positions beyond which a batch of a joint model is no faster; None
        for others, whose batches may have any size."""
        return MOST_JOINT_STATES if self._kind == "joint" else None

    def cache_bytes(self, rows: int, source_length: int, slots: int) -> int:
        """Bytes that caches of that size take, the spare copy that a repack writes included."""
        height = round_up(source_length) if self._kind == "joint" else 1
        size = np.dtype(np.float32).itemsize * self._dim
        return 2 * self._num_caches * rows * height * slots * size
