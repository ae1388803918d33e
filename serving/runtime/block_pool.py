"""Memory for caches that outlives a batch.

The operating system hands out fresh memory page by page at the first touch, which can cost more
than everything a step then does with it (docs/decisions.md).
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

_KEPT = 4
"""Blocks kept while unused: the two buffers of two batches."""
_GROWTH = 1.5
"""A new block is larger than asked for, so that a growing cache does not need one at each step."""


class BlockPool:
    """Flat blocks of float32; what a block holds when taken is left from its last use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: list[NDArray[np.float32]] = []  # by size

    def take(self, size: int) -> NDArray[np.float32]:
        """A block of at least `size` numbers, which are finite if those given back were."""
        with self._lock:
            for place, block in enumerate(self._blocks):
                if block.size >= size:
                    return self._blocks.pop(place)
            # What is needed has outgrown what is kept: the new block takes the largest one's place.
            del self._blocks[-1:]
        return np.zeros(int(size * _GROWTH), dtype=np.float32)

    def give(self, block: NDArray[np.float32]) -> None:
        """Give a block back, of which nobody may hold a part any more."""
        with self._lock:
            self._blocks.append(block)
            self._blocks.sort(key=lambda kept: kept.size)
            del self._blocks[: max(0, len(self._blocks) - _KEPT)]
