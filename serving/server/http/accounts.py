"""The keys of the store, as requests need them: at once, and whether the store answers or not."""

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
from serving.server.http.usage import UsageMeter
from serving.store.records.key import StoredKey
from serving.store.store import Store

_FRESH_S = 1.0
"""So long what was found is taken for true: a key that is disabled elsewhere works no longer."""
_WITHOUT_STORE_S = 600.0
"""So long a key goes on that was good when the store last answered."""
_WAIT_S = 5.0
"""For the store, where nothing is known of a key."""
_WAIT_KNOWN_S = 0.5
"""For the store, where something is known that may do."""
_MOST_KEYS = 10_000
_MOST_QUESTIONS = 1000
_THREADS = 2

logger = logging.getLogger(__name__)


@dataclass
class _Found:
    """What the store has said of a digest."""

    key: StoredKey
    seen: float
    """When."""
    until: float
    """Until when it need not be asked again."""


@dataclass(frozen=True)
class _Answer:
    key: StoredKey | None = None
    answered: bool = True


class Accounts:
    """Remembers the keys that were asked for last, and their use this month."""

    def __init__(
        self, store: Store, meter: UsageMeter, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` gives seconds that only go forward."""
        self._store, self._meter, self._clock = store, meter, clock
        self._lock = threading.Lock()
        self._found: OrderedDict[bytes, _Found] = OrderedDict()
        self._questions: dict[bytes, Future[_Answer]] = {}
        self._changes = 0
        """How often a key has changed here: what was asked before says nothing of it."""
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="keys")

    def knows(self, digest: bytes) -> bool:
        """Whether the key of a digest was found before."""
        return digest in self._found

    async def find(self, digest: bytes) -> StoredKey | None:
        """The key of a digest, disabled or not; None where there is none.

        Raises StoreUnavailableError where the store does not answer, and has not for so long that
        what it said before counts no longer.
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
        """Ask the store anew for the key of an id, which has changed."""
        with self._lock:
            self._changes += 1
            self._questions.clear()
            for digest in [d for d, found in self._found.items() if found.key.id == id]:
                del self._found[digest]

    def close(self) -> None:
        """End the threads; no key is found any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _asked(self, digest: bytes, wait_s: float) -> _Answer:
        """What the store says within some seconds. Requests with the same key ask together."""
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
        """Ask the store, on another thread; no error leaves it."""
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
