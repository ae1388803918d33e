"""Whose turn it is to use the GPU: several threads at once, or one alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Lets so many threads use the GPU at once, each in a stream of its own, or one alone, as it
    must be who captures a CUDA graph: what others allocate or copy then would break it.

    A thread whose turn it is may take another at once; it may not ask to be alone.
    """

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self._own = threading.local()
        self._changed = threading.Condition()
        self._running = 0
        """Threads whose turn it is; one alone counts as all that there may be."""
        self._waiting = 0
        """Threads that wait to be alone, before which nobody else begins."""

    @contextmanager
    def take(self) -> Iterator[None]:
        """A turn beside others."""
        if getattr(self._own, "has", False):
            yield
            return
        with self._changed:
            self._changed.wait_for(lambda: self._running < self.at_once and not self._waiting)
            self._running += 1
        yield from self._held(1)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A turn while nobody else has one."""
        assert not getattr(self._own, "has", False), "a thread would wait for itself"
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: not self._running)
                self._running = self.at_once
            finally:
                self._waiting -= 1
        yield from self._held(self.at_once)

    def _held(self, count: int) -> Iterator[None]:
        self._own.has = True
        try:
            yield
        finally:
            self._own.has = False
            with self._changed:
                self._running -= count
                self._changed.notify_all()
