"""Indexes of what is stored, those that were used last, in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Making:
    """Is held while an index is made, and goes with the last who wants it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.dropped = False
        """Whether what is being made is of something that is gone."""


class IndexCache(Generic[K, V]):
    """Indexes by key, within a size; safe to use from several threads."""

    def __init__(self, most: int, size: Callable[[V], int]) -> None:
        """All together have `most`, as `size` measures each; the one used last stays whatever its
        size."""
        self._most, self._size = most, size
        self._lock = threading.Lock()
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._making: WeakValueDictionary[K, _Making] = WeakValueDictionary()

    def up_to_date(self, key: K, make: Callable[[V | None], V]) -> V:
        """The index of a key: what `make` makes of the one that is kept, which may be that one
        itself. Of one key one is made at a time; those of others need not wait."""
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
        """Forget the index of what is gone, one that is being made too."""
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
