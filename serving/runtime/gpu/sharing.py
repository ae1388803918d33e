"""Turns on the GPU, shared by several threads or exclusive."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from serving.runtime.gpu.cuda_driver import device_lost


class Turns:
    """Lets `at_once` threads use the GPU together, each in a stream of its own, or one thread
    alone.

    A thread that captures a CUDA graph must be alone, because another thread's allocation or copy
    would break the capture. A thread that has a turn may take another one, but may not ask to be
    alone.

    Everything that uses the GPU has a turn. So this is also where it shows that the GPU is lost:
    what fails for that raises DeviceLostError.
    """

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self._own = threading.local()
        self._changed = threading.Condition()
        self._running = 0
        """Threads that have a turn; an exclusive one counts as `at_once`."""
        self._waiting = 0
        """Threads that wait for an exclusive turn. No other thread starts before them."""

    @contextmanager
    def take(self) -> Iterator[None]:
        """Hold a shared turn."""
        if getattr(self._own, "has", False):
            yield
            return
        with self._changed:
            self._changed.wait_for(lambda: self._running < self.at_once and not self._waiting)
            self._running += 1
        yield from self._held(1)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold an exclusive turn."""
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
        except Exception as error:  # ONNX Runtime raises classes of its own
            lost = device_lost(error)
            if lost is None:
                raise
            raise lost from error
        finally:
            self._own.has = False
            with self._changed:
                self._running -= count
                self._changed.notify_all()
