"""Memories that requests name."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from starlette.concurrency import run_in_threadpool

from serving.server.work.stored.memories import stored_memory


def test_memories_that_are_made_ready_leave_threads_for_all_else() -> None:
    go_on, using = threading.Event(), []

    def use(*_: object) -> str:
        using.append(threading.get_ident())
        assert go_on.wait(10)
        return "memory"

    store: Any = SimpleNamespace(memories=SimpleNamespace(use=use))
    catalogue: Any = SimpleNamespace(codes=lambda *_: ("en", "de"))
    job: Any = SimpleNamespace(source="en", target="de", model=None)

    async def ask() -> list[Any]:
        asked = [
            asyncio.ensure_future(stored_memory(store, catalogue, job, "id", None, "me"))
            for _ in range(60)
        ]
        await asyncio.wait_for(run_in_threadpool(int), 5)
        assert len(using) <= 4
        go_on.set()
        return await asyncio.gather(*asked)

    assert asyncio.run(ask()) == ["memory"] * 60
    assert len(using) == 60
