"""What is opened in a thread is closed, however its task ends."""

from __future__ import annotations

import asyncio
import threading

import pytest

from serving.server.work.threads import opened_in_thread


class Slow:
    """A file that takes until `may_open` to open."""

    def __init__(self) -> None:
        self.opening, self.may_open = threading.Event(), threading.Event()
        self.closed = 0

    def open(self) -> Slow:
        self.opening.set()
        assert self.may_open.wait(20)
        return self

    def close(self) -> None:
        self.closed += 1


def test_what_is_opened_stays_open() -> None:
    slow = Slow()
    slow.may_open.set()
    assert asyncio.run(opened_in_thread(slow.open)) is slow
    assert not slow.closed


@pytest.mark.parametrize("times", [1, 2])
def test_what_nobody_waits_for_any_more_is_closed(times: int) -> None:
    slow = Slow()

    async def cancelled() -> None:
        task = asyncio.create_task(opened_in_thread(slow.open))
        await asyncio.to_thread(slow.opening.wait, 20)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.01)
        slow.may_open.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert slow.closed == 1


def test_an_error_is_passed_on() -> None:
    def fail() -> Slow:
        raise OSError("no such disk")

    with pytest.raises(OSError, match="no such disk"):
        asyncio.run(opened_in_thread(fail))
