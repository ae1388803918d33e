"""The meter: exact over threads, servers, lost answers and clocks that jump."""

from __future__ import annotations

import calendar
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving.errors import QuotaExceededError, StoreUnavailableError
from serving.server.access.usage import UsageMeter
from serving.store.records.key import UsageBatch, UsageCount, UsageQuery
from serving.store.store import Store
from serving.store.usage import StoredUsage
from tests.days import today

EVER = UsageQuery("1970-01-01", "2999-12-31")
NOON = float(calendar.timegm((2026, 11, 30, 12, 0, 0)))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(f"sqlite:///{tmp_path / 'store.db'}", tmp_path)
    yield store
    store.close()


class LosesAnswers(StoredUsage):
    """Every second batch is counted, but whoever sent it is not told; every third is refused."""

    calls = 0

    def add(self, batch: UsageBatch, month: str) -> dict[str, int]:
        """As the store does, or not."""
        self.calls += 1
        if self.calls % 3 == 0:
            raise StoreUnavailableError("away")
        found = super().add(batch, month)
        if self.calls % 2 == 0:
            raise StoreUnavailableError("the answer is lost")
        return found


def spend(meter: UsageMeter, count: int, characters: int, owner: str = "a") -> None:
    for _ in range(count):
        meter.spend(owner, "translate", UsageCount(1, characters), 10**12)


@pytest.mark.slow
def test_a_million_requests_add_up_exactly(opened: Callable[[], Store]) -> None:
    month = today()[:7]
    stores = [opened(), opened()]
    rounds = 250
    meters = [UsageMeter(LosesAnswers(store.database)) for store in stores]

    def work(meter: UsageMeter, owner: str) -> None:
        for number in range(rounds):
            spend(meter, 1000, 3, owner)
            if number % 10 == 0:  # more often than once a second
                with contextlib.suppress(StoreUnavailableError):
                    meter.flush()

    threads = [
        threading.Thread(target=work, args=(meter, owner)) for meter in meters for owner in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for meter in meters:
        for _ in range(4):  # three in a row may fail
            with contextlib.suppress(StoreUnavailableError):
                meter.close()
    wanted = UsageCount(4000 * rounds, 12_000 * rounds)
    assert stores[0].usage.totals(EVER) == {"translate": wanted}
    assert [stores[1].usage.of_month(owner, month) for owner in "ab"] == [6000 * rounds] * 2
    assert [meters[0].read(owner) for owner in "ab"] == [6000 * rounds] * 2


def test_what_fails_does_not_count(store: Store) -> None:
    meter = UsageMeter(store.usage)
    take_back = meter.spend("a", "translate", UsageCount(1, 7), 10)
    meter.flush()  # it was brought to the store before it failed
    take_back()
    assert meter.read("a") == 0
    assert store.usage.totals(EVER) == {"translate": UsageCount(0, 0)}


def test_the_month_has_a_limit_over_servers_and_begins_anew(store: Store) -> None:
    now = NOON
    first, second = (UsageMeter(store.usage, clock=lambda: now) for _ in range(2))
    spend(first, 2, 3)
    first.flush()
    second.know("a")
    second.spend("a", "translate", UsageCount(1, 4), 10)
    with pytest.raises(QuotaExceededError, match=r"at most 10 .* got 10 so far and 1") as caught:
        second.spend("a", "translate", UsageCount(1, 1), 10)
    assert caught.value.retry_after_s == 12 * 3600
    second.flush()
    spend(first, 1, 0)
    first.flush()  # tells of what the other has counted
    assert first.used("a") == 10
    now += 12 * 3600
    assert first.used("a") == 0
    first.spend("a", "translate", UsageCount(1, 10), 10)
    first.close()
    assert [row.day for row in store.usage.rows(EVER, 10)] == ["2026-11-30", "2026-12-01"]
    second.close()


def test_a_clock_that_jumps_loses_nothing(store: Store) -> None:
    now = NOON
    meter = UsageMeter(store.usage, clock=lambda: now)
    for jump in (0, 86_400, -86_400, 40 * 86_400, -400 * 86_400, 360 * 86_400):
        now = NOON + jump
        spend(meter, 1, 5)
    meter.close()
    assert store.usage.totals(EVER) == {"translate": UsageCount(6, 30)}
    now = NOON
    assert meter.read("a") == store.usage.of_month("a", "2026-11") == 10
    assert len(store.usage.rows(EVER, 10)) == 6


def test_usage_waits_for_a_store_that_is_away(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: UsageBatch, __: str) -> dict[str, int]:
        raise StoreUnavailableError("away")

    meter = UsageMeter(store.usage)
    with monkeypatch.context() as gone:
        gone.setattr(store.usage, "add", away)
        for _ in range(5):
            spend(meter, 20, 1)
            with pytest.raises(StoreUnavailableError):
                meter.flush()
        assert meter.used("a") == 100
    spend(meter, 1, 1)
    end = time.monotonic() + 10
    while store.usage.totals(EVER) != {"translate": UsageCount(101, 101)}:  # by its own thread
        assert time.monotonic() < end
        time.sleep(0.05)
    meter.close()
