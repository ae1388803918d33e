"""A cache of translations: a repeated request is not decoded again."""

from __future__ import annotations

import pickle
import sys
import threading
from collections import OrderedDict

from serving.translation.results import Translation

_OVERHEAD = 400
"""Approximate bytes of an entry, without the ids of its key and its answer."""
_ID_BYTES = 36
"""Bytes of a token id in a key; a character takes no more."""


class AnswerCache:
    """The most recently used translations, within a number of bytes.

    The cache belongs to one scheduler, so it ends with its model. Answers are stored as pickles,
    because then their size is known.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._bytes = max_bytes, 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[object, ...], bytes] = OrderedDict()

    @property
    def num_bytes(self) -> int:
        """Approximate bytes of the stored answers."""
        return self._bytes

    def get(self, key: tuple[object, ...]) -> Translation | None:
        """The stored translation, or None."""
        with self._lock:
            answer = self._entries.get(key)
            if answer is None:
                return None
            self._entries.move_to_end(key)
        found = pickle.loads(answer)
        assert isinstance(found, Translation)
        return found

    def put(self, key: tuple[object, ...], translation: Translation) -> None:
        """Store a translation. The least recently used ones make room."""
        answer = pickle.dumps(translation, pickle.HIGHEST_PROTOCOL)
        size = _size(key, answer)
        with self._lock:
            self._remove(key)
            if size > self._max_bytes:  # it would displace all others, and then itself
                return
            self._entries[key] = answer
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._remove(next(iter(self._entries)))

    def _remove(self, key: tuple[object, ...]) -> None:
        answer = self._entries.pop(key, None)
        if answer is not None:
            self._bytes -= _size(key, answer)


def _size(key: tuple[object, ...], answer: bytes) -> int:
    ids = sum(len(part) for part in key if isinstance(part, (tuple, str)))
    return sys.getsizeof(answer) + ids * _ID_BYTES + _OVERHEAD
