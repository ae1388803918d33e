"""The keys in the store, available to requests at once, whether or not the store answers."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from serving.errors import ServingError, StoreUnavailableError
from serving.server.access.usage import UsageMeter
from serving.store.records.key import StoredKey
from serving.store.store import Store

_FRESH_S = 1.0
"""Seconds for which the store's answer about a key is trusted. A key that is disabled on another
server stops working after that."""
_WITHOUT_STORE_S = 600.0
"""Seconds for which a valid key still works after the store's last answer."""
_WAIT_S = 5.0
"""Seconds to wait for the store if nothing is known about a key."""
_WAIT_KNOWN_S = 0.5
"""Seconds to wait for the store if an older answer can be used."""
_MOST_KEYS = 10_000
_MOST_QUESTIONS = 1000
_THREADS = 2

logger = logging.getLogger(__name__)


@dataclass
class _Found:
    """The store's answer about a digest."""

    key: StoredKey
    seen: float
    """Time of the answer."""
    until: float
    """Time until which the store need not be asked again."""


@dataclass(frozen=True)
class _Answer:
    key: StoredKey | None = None
    answered: bool = True


class Accounts:
    """Remembers the keys that were requested last, and their usage this month."""

    def __init__(
        self, store: Store, meter: UsageMeter, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` returns seconds that never go back."""
        self._store, self._meter, self._clock = store, meter, clock
        self._lock = threading.Lock()
        self._found: OrderedDict[bytes, _Found] = OrderedDict()
        self._questions: dict[bytes, Future[_Answer]] = {}
        self._changes = 0
        """Number of changes of keys by this server: answers from before a change are not used."""
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="keys")

    def knows(self, digest: bytes) -> bool:
        """Whether the key of a digest has been found before."""
        return digest in self._found

    async def find(self, digest: bytes) -> StoredKey | None:
        """The key with this digest, disabled or not; None if there is none.

        Raises StoreUnavailableError if the store does not answer, and its last answer is too old.
        """
        found, now = self._found.get(digest), self._clock()
        if found is not None and now < found.until:
            return found.key
        answer = await self._asked(digest, _WAIT_KNOWN_S if found else _WAIT_S)
        if answer.answered:
            return answer.key
        if found is None or now - found.seen > _WITHOUT_STORE_S:
            raise StoreUnavailableError(
                "the store, which knows the keys, does not answer; try again later"
            )
        found.until = now + _FRESH_S
        return found.key

    def forget(self, id: str) -> None:
        """Ask the store again for the key with this id, because it has changed."""
        with self._lock:
            self._changes += 1
            self._questions.clear()
            for digest in [d for d, found in self._found.items() if found.key.id == id]:
                del self._found[digest]

    def close(self) -> None:
        """End the threads; no key is found any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _asked(self, digest: bytes, wait_s: float) -> _Answer:
        """The store's answer within `wait_s` seconds. Requests with the same key share one
        question."""
        question = self._questions.get(digest)
        if question is None:
            if len(self._questions) >= _MOST_QUESTIONS:
                return _Answer(answered=False)
            question = self._questions[digest] = self._threads.submit(self._look, digest)
            question.add_done_callback(lambda ended: self._answered(digest, ended))
        await asyncio.wait({asyncio.wrap_future(question)}, timeout=wait_s)
        ended = question.done() and not question.cancelled()
        return question.result() if ended else _Answer(answered=False)

    def _answered(self, digest: bytes, question: Future[_Answer]) -> None:
        with self._lock:
            if self._questions.get(digest) is question:
                del self._questions[digest]

    def _look(self, digest: bytes) -> _Answer:
        """Ask the store, on another thread. Raises no errors."""
        now, before, changes = self._clock(), self._found.get(digest), self._changes
        try:
            key = self._store.keys.find(digest)
            if key is not None and (before is None or now > before.until + _FRESH_S):
                self._meter.know(key.id)
        except ServingError as error:
            logger.debug("a key could not be looked up: %s", error)
            return _Answer(answered=False)
        with self._lock:
            self._found.pop(digest, None)
            if key is not None and changes == self._changes:
                self._found[digest] = _Found(key, now, now + _FRESH_S)
            if len(self._found) > _MOST_KEYS:
                self._found.popitem(last=False)
        return _Answer(key)
