"""Memory for caches that outlives a batch.

The operating system hands out fresh memory page by page at the first touch, which can cost more
than everything a step then does with it (docs/decisions.md).
"""

from __future__ import annotations

import threading

import numpy as np

from serving.arrays import Floats

_KEPT = 4
"""Blocks kept while unused: the two buffers of two batches."""
_GROWTH = 1.5
"""A new block is larger than asked for, so that a growing cache does not need one at each step."""


class BlockPool:
    """Blocks of memory for float32 that go from one batch to the next; threads may share a pool.

    A block is a flat array. What it holds when it is taken is left from its last use.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: list[Floats] = []
        """What nobody holds, the smallest first."""

    def take(self, size: int) -> Floats:
        """A block of at least `size` numbers, which are finite if those given back were."""
        with self._lock:
            for place, block in enumerate(self._blocks):
                if block.size >= size:
                    return self._blocks.pop(place)
            # What is needed has outgrown what is kept: the new block takes the largest one's place.
            del self._blocks[-1:]
        return np.zeros(int(size * _GROWTH), dtype=np.float32)

    def give(self, block: Floats) -> None:
        """Give a block back. No part of it may be in use: whoever takes it next writes to it."""
        with self._lock:
            self._blocks.append(block)
            self._blocks.sort(key=lambda kept: kept.size)
            del self._blocks[: max(0, len(self._blocks) - _KEPT)]
