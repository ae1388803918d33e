"""Limits a minute over several servers of a store, and while the store is away."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pydantic import SecretStr

from serving.errors import RateLimitedError, StoreUnavailableError
from serving.server.access.gate import RateLimit
from serving.server.access.rates import SharedRates
from serving.server.http.settings import Settings
from serving.store.rates import StoredRates
from serving.store.store import Store
from tests.unit.serving.echo import served, wait_until

KEY = "first-key-1234"
GOOD = {"q": "Hallo", "source": "de", "target": "en"}


class Learnt(dict[str, float]):
    """What a server learns, by client."""

    def __call__(self, client: str, missing: float, _: int) -> bool:
        """Note it, and go on until nothing is missing."""
        self[client] = missing
        return missing > 0


@contextlib.contextmanager
def sharing(stored: StoredRates, unit: str = "requests") -> Iterator[tuple[SharedRates, Learnt]]:
    learnt = Learnt()
    shared = SharedRates(unit, stored, learnt)
    yield shared, learnt
    shared.close()


def test_a_server_learns_what_another_one_has_taken(opened: Callable[[], Store]) -> None:
    with (
        sharing(opened().rates) as (first, _),
        sharing(opened().rates) as (second, learnt),
        sharing(opened().rates, "characters") as (other, of_characters),
    ):
        first.note("a", 40, 60)
        first.note("a", 10, 60)
        first.note("a", -5, 60)
        first.note("b", 7, 60)
        first.share()
        assert first.noted("a") == 0
        second.note("a", 1, 60)
        second.share()
        assert learnt == {"a": pytest.approx(46, abs=2)}
        other.note("a", 1, 60)
        other.share()
        assert of_characters == {"a": 1}


def test_a_limit_holds_over_servers_within_a_second_or_two(opened: Callable[[], Store]) -> None:
    first, second = (
        RateLimit("requests", None, 60, clock=lambda: 0.0, stored=opened().rates) for _ in range(2)
    )
    for _ in range(60):
        first.charge("a", 1)

    def refused(rate: RateLimit) -> bool:
        try:
            rate.charge("a", 1)
        except RateLimitedError:
            return True
        time.sleep(0.1)
        return False

    assert not refused(second)
    wait_until(lambda: refused(second), 5)  # before its own bucket is empty
    assert refused(first)
    second.charge("b", 60)  # others have buckets of their own
    first.close()
    second.close()


def test_a_server_goes_on_learning_until_the_bucket_is_full(opened: Callable[[], Store]) -> None:
    with sharing(opened().rates) as (first, learnt), sharing(opened().rates) as (second, _):
        first.note("a", 1, 600)
        first.share()
        second.note("a", 20, 600)
        second.share()
        first.share()
        assert learnt["a"] > 1
        wait_until(lambda: learnt["a"] == 0, 10)  # by its own thread, after two seconds
        learnt.clear()
        second.note("a", 20, 600)
        second.share()
        first.share()
        assert learnt == {}


class Away(StoredRates):
    """A store that does not answer until it is back; it counts how often it was asked."""

    asked, back = 0, False

    def take(self, taken: Mapping[bytes, float]) -> dict[bytes, float]:
        """As the store does, once it is back."""
        self.asked += 1
        if not self.back:
            raise StoreUnavailableError("away")
        return super().take(taken)


def test_while_the_store_is_away_each_server_counts_for_itself(store: Store) -> None:
    stored = Away(store.database)
    rate = RateLimit("requests", None, 60, clock=lambda: 0.0, stored=stored)
    rate.charge("a", 60)
    wait_until(lambda: stored.asked > 0, 10)
    with pytest.raises(RateLimitedError):
        rate.charge("a", 1)
    rate.charge("b", 59)
    stored.back = True
    rate.charge("b", 1)
    wait_until(lambda: stored.asked > 1, 10)
    rate.close()
    # What the store has not been told of still counts here.
    for client in ("a", "b"):
        with pytest.raises(RateLimitedError):
            rate.charge(client, 1)


def test_what_was_taken_while_the_store_was_away_is_not_told_later(store: Store) -> None:
    stored = Away(store.database)
    with sharing(stored) as (shared, learnt):
        shared.note("a", 50, 60)
        with pytest.raises(StoreUnavailableError):
            shared.share()
        stored.back = True
        shared.note("a", 1, 60)
        shared.share()
        assert learnt == {"a": 1}


def test_two_servers_refuse_a_key_that_is_over_its_limits(url: str, tmp_path: Path) -> None:
    settings = Settings(
        store=SecretStr(url),
        files=str(tmp_path / "files"),
        api_keys=SecretStr(KEY),
        max_requests_per_minute=30,
        max_chars_per_minute=100,
    )
    with served(settings=settings) as (first, _), served(settings=settings) as (second, _):
        for client in (first, second):
            client.headers.update({"X-API-Key": KEY})
        assert first.post("/translate", json={**GOOD, "q": "x" * 150}).status_code == 200

        def refusal() -> str:
            answer = second.post("/translate", json=GOOD)
            assert answer.status_code in (200, 429)
            return "" if answer.is_success else answer.json()["error"]

        wait_until(lambda: "100 characters in a minute" in refusal(), 10)
        for _ in range(30):
            first.get("/models")
        wait_until(lambda: "30 requests in a minute" in refusal(), 10)
