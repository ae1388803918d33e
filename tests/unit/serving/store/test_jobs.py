"""Jobs: claimed once, gone on with, given up, cancelled, removed; on SQLite and on PostgreSQL."""

from __future__ import annotations

import dataclasses
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from serving.errors import QuotaExceededError
from serving.store import database, jobs
from serving.store.records.job import KeptJob
from serving.store.store import Store

LEASE_S = 60.0
MOST = 100
SERVERS = multiprocessing.get_context("forkserver")
"""Makes processes that have imported this module already."""
SERVERS.set_forkserver_preload([__name__])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the time."""

    def set_time(seconds: float) -> None:
        monkeypatch.setattr(jobs, "now", lambda: seconds)

    set_time(1000.0)
    return set_time


def add(store: Store, number: int, owner: str = "me", most: int = MOST) -> None:
    job = KeptJob(
        id=f"job-{number}",
        owner=owner,
        kind="batch",
        wishes="{}",
        created=float(number),
        deadline=9e9,
    )
    store.jobs.add(job, most, MOST)


def claimed(store: Store) -> KeptJob:
    job = store.jobs.claim("batch", LEASE_S)
    assert job is not None
    return job


def found(store: Store, number: int) -> KeptJob:
    job = store.jobs.get("me", f"job-{number}")
    assert job is not None
    return job


def _claim_all(url: str, start: Any, told: Any) -> None:
    """What a server process does; the first that is ready waits for the others."""
    store = Store(url, Path("/nowhere"))
    start.wait(60)
    mine = []
    while (job := store.jobs.claim("batch", LEASE_S)) is not None:
        mine.append(job.id)
    told.put(mine)
    store.close()


def test_of_three_processes_one_claims_each_job(url: str, store: Store) -> None:
    for number in range(60):
        add(store, number)
    start, told = SERVERS.Barrier(3), SERVERS.Queue()
    processes = [
        SERVERS.Process(target=_claim_all, args=(url, start, told), daemon=True) for _ in range(3)
    ]
    for process in processes:
        process.start()
    claims = [told.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(20)
    everyone = [id for mine in claims for id in mine]
    assert sorted(everyone) == sorted(f"job-{number}" for number in range(60))


def test_owners_take_turns_and_so_do_the_jobs_of_one(
    store: Store, clock: Callable[[float], None]
) -> None:
    for number in (1, 2, 3):
        add(store, number, "many")
    add(store, 4, "one")
    order = []
    for moment in range(8):
        clock(1000.0 + moment)
        job = claimed(store)
        order.append(job.id[-1])
        if moment == 3:  # a new job of an owner who has just had a turn comes after the others
            assert store.jobs.finish(job, "done", "{}", keep_s=10)
            add(store, 5, "one")
        else:
            assert store.jobs.give_back(job, 0, 0, 10)
    assert "".join(order) == "14243515"
    assert store.jobs.is_waiting("batch", LEASE_S)


def test_a_lease_of_a_clock_that_was_wrong_is_nobodys(
    store: Store, clock: Callable[[float], None]
) -> None:
    add(store, 1)
    clock(90_000.0)
    claimed(store)  # by a server that dies then
    clock(1000.0)
    assert claimed(store).attempts == 2
    clock(1100.0)
    assert not store.jobs.is_waiting("webhook", LEASE_S)


def test_of_many_jobs_the_list_and_the_claim_are_fast_and_there_are_not_more(
    store: Store, clock: Callable[[float], None]
) -> None:
    count = 20_000
    add(store, count, most=1)
    job = claimed(store)
    assert store.jobs.finish(job, "done", "{}", keep_s=10)
    ended = dataclasses.replace(job, state="done", claim="", ended=1000.0, expires=1010.0)
    rows = [
        dataclasses.asdict(ended) | {"id": f"job-{n}", "created": float(n), "lease": 0.0}
        for n in range(count)
    ]
    with store.database.writing() as connection:
        connection.execute(sqlalchemy.insert(database.METADATA.tables["jobs"]), rows)
    begin = time.monotonic()
    for after in (None, "job-19000", "job-10000", "job-30"):
        assert len(store.jobs.page("me", "batch", after, 20)) == 20
    store.jobs.add(dataclasses.replace(job, id="new", state="waiting", claim=""), 1, count + 2)
    assert claimed(store).id == "new"
    assert time.monotonic() - begin < 1
    with pytest.raises(QuotaExceededError, match="at most 20002 jobs of a key are kept"):
        store.jobs.add(dataclasses.replace(job, id="more"), 2, count + 2)
    clock(2000.0)
    assert len(store.jobs.remove_expired()) == count + 1


def test_the_oldest_is_claimed_first_and_a_beat_keeps_it(
    store: Store, clock: Callable[[float], None]
) -> None:
    for number in (2, 1):
        add(store, number)
    job = claimed(store)
    assert (job.id, job.state, job.attempts, job.started) == ("job-1", "running", 1, 1000.0)
    clock(1050.0)
    assert store.jobs.beat(job, LEASE_S, done=3, failed=1, total=10) is not None
    clock(1070.0)
    assert claimed(store).id == "job-2"
    assert store.jobs.claim("batch", LEASE_S) is None
    kept = found(store, 1)
    assert (kept.done, kept.failed, kept.total) == (3, 1, 10)


def test_another_goes_on_with_a_job_whose_runner_is_gone_and_the_first_may_not(
    store: Store, clock: Callable[[float], None]
) -> None:
    add(store, 1)
    first = claimed(store)
    clock(1061.0)  # or a clock that jumps: the first has not ended
    second = claimed(store)
    assert second.attempts == 2
    assert store.jobs.beat(first, LEASE_S, 1, 0, 1) is None
    assert not store.jobs.finish(first, "done", "{}", 10)
    assert not store.jobs.give_back(first, 1, 0, 1)
    assert store.jobs.finish(second, "done", '{"a": 1}', 10)
    kept = found(store, 1)
    assert (kept.state, kept.result, kept.expires) == ("done", '{"a": 1}', 1071.0)


def test_a_job_that_ends_its_servers_is_given_up_but_not_one_that_comes_further(
    store: Store, clock: Callable[[float], None]
) -> None:
    add(store, 1)
    for number in range(5):
        clock(1000.0 + 100 * number)
        store.jobs.beat(claimed(store), LEASE_S, done=number + 1, failed=0, total=10)
    for number in range(2):
        clock(2000.0 + 100 * number)
        assert not claimed(store).given_up
    for moment in (3000.0, 3001.0):  # to be ended, and again after it was given back
        clock(moment)
        last = claimed(store)
        assert last.given_up
        if moment == 3000.0:
            store.jobs.give_back(last, 5, 0, 10)
    clock(4000.0)
    assert store.jobs.claim("batch", LEASE_S) is None
    assert (found(store, 1).state, found(store, 1).done) == ("failed", 5)


def test_what_is_given_back_is_claimed_again_and_counts_no_attempt(store: Store) -> None:
    add(store, 1)
    for _ in range(5):
        job = claimed(store)
        assert job.attempts == 1
        assert store.jobs.give_back(job, 0, 0, 10)


def test_what_is_given_back_is_as_far_as_its_server_came(store: Store) -> None:
    add(store, 1)
    assert store.jobs.give_back(claimed(store), 3, 1, 10)
    kept = found(store, 1)
    assert (kept.state, kept.done, kept.failed, kept.total) == ("waiting", 3, 1, 10)
    assert claimed(store).attempts == 1


def test_a_job_is_cancelled_at_once_where_nobody_has_begun_it(
    store: Store, clock: Callable[[float], None]
) -> None:
    for number in (1, 2):
        add(store, number)
    running = claimed(store)
    waiting = store.jobs.cancel("me", "job-2", keep_s=10)
    assert waiting is not None
    assert (waiting.state, waiting.ended, waiting.expires) == ("cancelled", 1000.0, 1010.0)
    told = store.jobs.cancel("me", "job-1", keep_s=10)
    assert told is not None
    assert (told.state, told.cancelling) == ("running", 1000.0)
    seen = store.jobs.beat(running, LEASE_S, 0, 0, 1)
    assert seen is not None
    assert seen.cancelling == 1000.0
    assert store.jobs.finish(running, "cancelled", "", 10)
    clock(1001.0)
    assert store.jobs.cancel("me", "job-1", keep_s=10) == found(store, 1)
    assert found(store, 1).cancelling == 1000.0


def test_nothing_of_one_owner_is_anothers_and_each_has_a_limit(store: Store) -> None:
    name = "'); DROP TABLE jobs; --"
    add(store, 1, name, most=1)
    with pytest.raises(QuotaExceededError, match="at most 1 jobs"):
        add(store, 2, name, most=1)
    add(store, 3, "you", most=1)
    assert store.jobs.get("you", "job-1") is None
    assert store.jobs.cancel("you", "job-1", 10) is None
    assert [job.id for job in store.jobs.page("you", "batch", None, 10)] == ["job-3"]
    assert store.jobs.page("you", "batch", "job-1", 10) == []
    job = store.jobs.get(name, "job-1")
    assert job is not None
    assert job.cancelling is None


def test_pages_follow_one_another_also_where_times_are_equal(store: Store) -> None:
    for number in (1, 2, 3, 4):
        store.jobs.add(
            KeptJob(
                id=f"job-{number}", owner="me", kind="batch", wishes="", created=5.0, deadline=9.0
            ),
            MOST,
            MOST,
        )
    pages, after = [], None
    while page := store.jobs.page("me", "batch", after, 3):
        pages.append([job.id for job in page])
        after = page[-1].id
    assert pages == [["job-4", "job-3", "job-2"], ["job-1"]]


def test_what_has_expired_is_gone(store: Store, clock: Callable[[float], None]) -> None:
    for number in (1, 2, 3):
        add(store, number)
    assert store.jobs.finish(claimed(store), "done", "{}", keep_s=10)
    assert store.jobs.finish(claimed(store), "failed", "", keep_s=100)
    clock(1050.0)
    assert store.jobs.remove_expired() == ["job-1"]
    assert [job.id for job in store.jobs.page("me", "batch", None, 10)] == ["job-3", "job-2"]
