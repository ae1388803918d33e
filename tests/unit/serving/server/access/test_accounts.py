"""Keys of the store while it answers, is slow, or is away."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.errors import StoreUnavailableError
from serving.server.access.accounts import Accounts
from serving.server.access.usage import UsageMeter
from serving.store.records.key import NO_LIMITS, StoredKey, digest_of
from serving.store.store import Store


class Clock:
    """A clock that is set."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """A store with one key, and the accounts over it."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(f"sqlite:///{folder / 'store.db'}", folder)
        self.key, secret = self.store.keys.create("ours", NO_LIMITS, "here", most=10)
        self.digest, self.clock = digest_of(secret), Clock()
        self.accounts = Accounts(self.store, UsageMeter(self.store.usage), self.clock)

    def find(self, digest: bytes | None = None) -> StoredKey | None:
        """The key of a digest, by default of the one that there is."""
        return asyncio.run(self.accounts.find(digest or self.digest))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.accounts.close()
    desk.store.close()


def away(*_: Any) -> Any:
    raise StoreUnavailableError("away")


def test_a_key_that_is_disabled_elsewhere_stops_within_a_second(desk: Desk) -> None:
    assert desk.find() == desk.key
    desk.store.keys.change(desk.key.id, lambda k: dataclasses.replace(k, disabled=1.0), "there")
    assert desk.find() == desk.key
    desk.clock.now += 1.01
    found = desk.find()
    assert found is not None
    assert found.disabled == 1.0
    desk.store.keys.delete(desk.key.id, "there")
    desk.clock.now += 1.01
    assert desk.find() is None
    assert not desk.accounts.knows(desk.digest)


def test_what_changes_here_counts_at_once(desk: Desk) -> None:
    desk.find()
    desk.store.keys.delete(desk.key.id, "here")
    desk.accounts.forget(desk.key.id)
    assert desk.find() is None


def test_without_the_store_known_keys_go_on_for_ten_minutes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.find()
    with monkeypatch.context() as gone:
        gone.setattr(desk.store.keys, "find", away)
        for _ in range(4):
            desk.clock.now += 149
            assert desk.find() == desk.key
        with pytest.raises(StoreUnavailableError, match="which knows the keys") as caught:
            desk.find(digest_of("another"))
        assert caught.value.retry_after_s
        desk.clock.now += 5
        with pytest.raises(StoreUnavailableError):
            desk.find()
    assert desk.find() == desk.key
    assert desk.find(digest_of("another")) is None


def test_a_store_that_is_slow_holds_up_no_known_key_for_long(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.find()
    answers, found, calls = threading.Event(), desk.store.keys.find, []

    def slow(digest: bytes) -> StoredKey | None:
        calls.append(digest)
        answers.wait(20)
        return found(digest)

    monkeypatch.setattr(desk.store.keys, "find", slow)
    desk.clock.now += 2

    async def many() -> list[StoredKey | None]:
        return await asyncio.gather(*(desk.accounts.find(desk.digest) for _ in range(50)))

    begin = time.monotonic()
    assert asyncio.run(many()) == [desk.key] * 50
    assert time.monotonic() - begin < 5
    assert len(calls) == 1  # they ask together
    assert desk.find() == desk.key  # and are not asked again for a while
    answers.set()


def test_only_so_many_keys_are_remembered(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.server.access.accounts._MOST_KEYS", 3)
    digests = []
    for number in range(5):
        secret = desk.store.keys.create(str(number), NO_LIMITS, "here", most=10)[1]
        digests.append(digest_of(secret))
        assert desk.find(digests[-1]) is not None
    assert [desk.accounts.knows(digest) for digest in digests] == [False, False, True, True, True]


def test_a_key_that_is_disabled_while_it_is_looked_up_is_good_no_longer(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, go_on, find = threading.Event(), threading.Event(), desk.store.keys.find

    def slowly(digest: bytes) -> StoredKey | None:
        key = find(digest)
        if not read.is_set():
            read.set()
            assert go_on.wait(10)
        return key

    async def ask() -> list[StoredKey | None]:
        before = asyncio.create_task(desk.accounts.find(desk.digest))
        while not read.is_set():
            await asyncio.sleep(0.01)
        desk.store.keys.change(desk.key.id, lambda k: dataclasses.replace(k, disabled=1.0), "here")
        desk.accounts.forget(desk.key.id)
        joined = asyncio.create_task(desk.accounts.find(desk.digest))
        await asyncio.sleep(0.1)
        go_on.set()
        await before
        return [await joined, await desk.accounts.find(desk.digest)]

    monkeypatch.setattr(desk.store.keys, "find", slowly)
    for found in asyncio.run(ask()):
        assert found is not None
        assert found.disabled == 1.0
