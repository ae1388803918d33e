"""Usage in the store: sums by day, and batches that are counted once."""

from __future__ import annotations

from serving.store.records.key import UsageBatch, UsageCount, UsageQuery, UsageRow
from serving.store.store import Store

NOVEMBER = UsageQuery("2026-11-01", "2026-11-30")


def batch(number: int, *places: tuple[str, str, str], writer: str = "w") -> UsageBatch:
    return UsageBatch(writer, number, dict.fromkeys(places, UsageCount(1, 10)))


def test_batches_add_up_and_each_counts_once(store: Store) -> None:
    first = batch(1, ("a", "2026-11-27", "translate"), ("a", "2026-10-31", "translate"))
    for _ in range(3):  # whose answer was lost twice
        assert store.usage.add(first, "2026-11") == {"a": 10}
    place = ("a", "2026-11-28", "generate")
    assert store.usage.add(batch(2, place), "2026-11") == {"a": 20}
    assert store.usage.add(batch(1, place, writer="other"), "2026-11") == {"a": 30}
    assert store.usage.of_month("a", "2026-10") == 10
    assert store.usage.of_month("nobody", "2026-11") == 0
    assert store.usage.totals(NOVEMBER) == {
        "translate": UsageCount(1, 10),
        "generate": UsageCount(2, 20),
    }


def test_rows_come_in_order_and_in_pages(store: Store) -> None:
    places = [
        (owner, f"2026-11-{day}", task)
        for day in ("01", "02")
        for owner in ("", "a", "b")
        for task in ("generate", "translate")
    ]
    store.usage.add(batch(1, *reversed(places)), "2026-11")
    wanted = [UsageRow(day, owner, task, UsageCount(1, 10)) for owner, day, task in places]
    assert store.usage.rows(NOVEMBER, 100) == wanted
    found: list[UsageRow] = []
    after = ("", "", "")
    while page := store.usage.rows(NOVEMBER, 5, after):
        found += page
        after = page[-1].day, page[-1].owner, page[-1].task
    assert found == wanted
    only = store.usage.rows(UsageQuery("2026-11-02", "2026-11-02", "a"), 100)
    assert only == [row for row in wanted if (row.day, row.owner) == ("2026-11-02", "a")]
