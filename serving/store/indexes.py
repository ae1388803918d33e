"""Indexes of stored data, of which the most recently used stay in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Making:
    """A lock that is held while an index is built; it disappears with the last thread that wants
    it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.dropped = False
        """Whether the data of the index have been deleted meanwhile."""


class IndexCache(Generic[K, V]):
    """Indexes by key, up to a total size; safe to use from several threads."""

    def __init__(self, most: int, size: Callable[[V], int]) -> None:
        """Create a cache for indexes of at most `most` in total, as `size` measures each. The most
        recently used one stays whatever its size."""
        self._most, self._size = most, size
        self._lock = threading.Lock()
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._making: WeakValueDictionary[K, _Making] = WeakValueDictionary()

    def up_to_date(self, key: K, make: Callable[[V | None], V]) -> V:
        """The index of a key, which `make` builds from the cached one, or returns unchanged. Only
        one index is built at a time for a key; other keys need not wait."""
        with self._lock:
            making = self._making.setdefault(key, _Making())
        with making.lock:
            with self._lock:
                kept = self._kept.get(key)
            index = make(kept)
            with self._lock:
                if not making.dropped:
                    self._keep(key, index)
            return index

    def drop(self, key: K) -> None:
        """Remove the index of deleted data, also while it is being built."""
        with self._lock:
            self._kept.pop(key, None)
            making = self._making.get(key)
            if making is not None:
                making.dropped = True

    def _keep(self, key: K, index: V) -> None:
        self._kept[key] = index
        self._kept.move_to_end(key)
        size = sum(map(self._size, self._kept.values()))
        while size > self._most and len(self._kept) > 1:
            size -= self._size(self._kept.popitem(last=False)[1])
