"""What an owner may keep at most, where several ask at the same moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event

from serving.errors import RequestError
from serving.store.records.glossary import GlossaryLimits, NewDictionary
from serving.store.records.job import KeptFile, KeptJob
from serving.store.records.key import KeyLimits
from serving.store.records.memory import MemoryLimits
from serving.store.store import Store

AT_ONCE = 5


def file(number: int) -> KeptFile:
    return KeptFile(
        id=f"f{number}", owner="me", purpose="batch", name="a", size=1, created=0, expires=1e12
    )


def job(number: int) -> KeptJob:
    return KeptJob(id=f"j{number}", owner="me", kind="batch", wishes="", created=0.0, deadline=1e12)


KEEPING: dict[str, Callable[[Store, int], Any]] = {
    "glossaries": lambda store, _: store.glossaries.create(
        "me", "n", [NewDictionary("de", "en", {"a": "b"})], GlossaryLimits(1, 9, 9)
    ),
    "memories": lambda store, _: store.memories.create(
        "me", "n", "de", "en", MemoryLimits(1, 9, 9)
    ),
    "suggestions": lambda store, n: store.suggestions.add("me", ("de", "en"), str(n), "b", 1),
    "files": lambda store, n: store.files.add(file(n), 1),
    "jobs": lambda store, n: store.jobs.add(job(n), 1, 9),
    "keys": lambda store, n: store.keys.create(str(n), KeyLimits(), "here", 1),
}


@pytest.mark.parametrize("kind", KEEPING)
def test_nobody_keeps_more_by_asking_several_times_at_once(store: Store, kind: str) -> None:
    engine = store.database._engine

    @event.listens_for(engine, "after_cursor_execute")
    def slowly(_: Any, __: Any, statement: str, *___: Any) -> None:
        if "count(" in statement:  # all of them have counted before the first one writes
            time.sleep(0.2)

    def kept(number: int) -> bool:
        try:
            KEEPING[kind](store, number)
        except RequestError:
            return False
        return True

    with ThreadPoolExecutor(AT_ONCE) as threads:
        assert sum(threads.map(kept, range(AT_ONCE))) == 1
