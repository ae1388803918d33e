"""Buckets in the store: they add up over servers, fill up, and are forgotten once they are full."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from sqlalchemy import text

from serving.store.records.key import digest_of
from serving.store.store import Store

A, B = digest_of("a"), digest_of("b")


def number_kept(store: Store) -> int:
    with store.database.reading() as connection:
        return int(connection.execute(text("SELECT count(*) FROM rates")).scalar_one())


def set_clock(store: Store, seconds: float) -> None:
    """Have everything that was written lie further back, as if the clock had been set ahead."""
    with store.database.writing() as connection:
        connection.execute(text("UPDATE rates SET at = at - :seconds"), {"seconds": seconds})


def test_what_servers_take_adds_up_and_fills_up(opened: Callable[[], Store]) -> None:
    first, second = opened().rates, opened().rates
    assert first.take({A: 30.0, B: 1.0}) == {A: 30.0, B: 1.0}
    assert second.take({A: 20.0})[A] == pytest.approx(50, abs=2)
    assert second.take({A: -45.0})[A] == pytest.approx(5, abs=2)
    time.sleep(0.5)
    found = first.missing([A, digest_of("c")])
    assert found == {A: pytest.approx(4, abs=2)}
    assert found[A] < 4.6


def test_a_full_bucket_holds_no_more_than_a_minute(store: Store) -> None:
    store.rates.take({A: 5.0})
    set_clock(store, 3600)
    assert store.rates.take({A: 30.0}) == {A: 30.0}


def test_a_bucket_is_forgotten_once_it_is_full(store: Store) -> None:
    store.rates.take({A: 5.0, B: 60.0})
    set_clock(store, 10)
    store.rates.take({digest_of("c"): 1.0})
    assert number_kept(store) == 2
    assert store.rates.take({B: 0.0})[B] == pytest.approx(50, abs=2)


def test_a_clock_that_is_set_back_keeps_nobody_out_for_longer(store: Store) -> None:
    store.rates.take({A: 30.0})
    set_clock(store, -3600)
    assert store.rates.take({A: 0.0}) == {A: 30.0}
    time.sleep(0.2)
    assert store.rates.take({A: 0.0})[A] < 29.9


def test_servers_that_tell_of_many_clients_at_once_do_not_wait_for_each_other(
    opened: Callable[[], Store],
) -> None:
    clients = [digest_of(str(number)) for number in range(1200)]
    errors = []

    def tell(store: Store, order: int) -> None:
        try:
            for _ in range(2):
                store.rates.take(dict.fromkeys(clients[::order], 600.0))
                # Those of another kind fill up at once, and are forgotten by whoever comes next.
                store.rates.take({digest_of(f"{order} {n}"): 1e-6 for n in range(200)})
        except Exception as error:
            errors.append(error)

    stores = [opened() for _ in range(3)]
    threads = [
        threading.Thread(target=tell, args=(store, order))
        for store, order in zip(stores, (1, -1, 1), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    found = stores[0].rates.take(dict.fromkeys(clients, 0.0))
    assert all(3600 - 60 < missing <= 3600 for missing in found.values())
    assert len(found) == len(clients)
