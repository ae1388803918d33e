"""Updates prepared ahead: the same ones, from any place on, and never too many of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from typing import Any, cast

import pytest

from training.errors import BatchError, CorpusError
from training.loop.updates import Ahead, Place, Update, iterate_updates
from training.tasks.task import Task


class Numbers:
    """Epochs of batches that tell where they are from."""

    def __init__(
        self, sizes: tuple[int, ...] = (7, 7, 7, 7), changes: tuple[int, ...] = (), parts: int = 1
    ) -> None:
        self.number_of_parts = parts
        self.sizes, self.changes = sizes, changes
        self.asked: list[int] = []

    def epoch(self, epoch: int, begun: int = 0, part: int = 0) -> list[str]:
        self.asked.append(epoch)
        stage = sum(step <= begun for step in self.changes)
        size = self.sizes[epoch % len(self.sizes)]
        return [f"{epoch}{'abc'[stage]}{i + part * size}" for i in range(size)]

    def parts(self, begun: int) -> int:
        return self.number_of_parts

    def change_after(self, begun: int) -> int | None:
        return min((step for step in self.changes if step > begun), default=None)


def updates(
    data: Numbers, place: Place | None = None, step: int = 0, size: int = 3
) -> Generator[Update]:
    return iterate_updates(cast(Task, data), place or Place(), step, size, lambda batches: batches)


def take(count: int, data: Numbers, **options: Any) -> list[Update]:
    with Ahead(updates(data, **options)) as ahead:
        return [ahead.next() for _ in range(count)]


def test_every_batch_of_each_epoch_comes_once_in_its_order() -> None:
    found = take(9, Numbers((7, 4, 1)))
    assert [batch for update in found for batch in update.batches][:12] == [
        *(f"0a{i}" for i in range(7)), *(f"1a{i}" for i in range(4)), "2a0",
    ]  # fmt: skip
    assert [len(update.batches) for update in found] == [3, 3, 1, 3, 1, 1, 3, 3, 1]
    assert found[2].after == Place(0, 7)
    assert found[4].after == Place(1, 4, begun=3)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("changes", [(), (2, 5), (3,)])
@pytest.mark.parametrize("count", range(1, 9))
def test_a_run_goes_on_where_an_update_has_left_it(
    count: int, changes: tuple[int, ...], parts: int
) -> None:
    whole = take(12, Numbers(changes=changes, parts=parts))
    place = whole[count - 1].after
    rest = take(12 - count, Numbers(changes=changes, parts=parts), place=place, step=count)
    assert [update.batches for update in rest] == [update.batches for update in whole[count:]]


def test_the_parts_of_an_epoch_come_one_after_the_other() -> None:
    found = take(7, Numbers((4,), parts=2))
    assert [update.batches[0] for update in found] == [
        "0a0", "0a3", "0a4", "0a7", "1a0", "1a3", "1a4",
    ]  # fmt: skip
    assert found[2].after == Place(0, 3, part=1)
    # A change leaves out the parts that are left.
    found = take(5, Numbers((4,), parts=2, changes=(2, 3)))
    assert [update.batches[0] for update in found] == ["0a0", "0a3", "1b0", "2c0", "2c3"]


def test_an_epoch_ends_where_the_text_changes() -> None:
    found = take(8, Numbers(changes=(2, 5)))
    first = [update.batches[0] for update in found]
    assert first == ["0a0", "0a3", "1b0", "1b3", "1b6", "2c0", "2c3", "2c6"]
    assert found[3].after == Place(1, 6, begun=2)


def test_a_change_before_the_place_at_which_a_run_goes_on_begins_an_epoch_at_once() -> None:
    """The step was given when the run had passed it already."""
    (update,) = take(1, Numbers(changes=(2,)), place=Place(0, 6), step=9)
    assert update.batches == ["1b0", "1b1", "1b2"]


def test_only_so_many_updates_are_prepared_ahead() -> None:
    prepared = []

    def prepare(batches: list[Any]) -> None:
        prepared.append(batches)

    data = Numbers((100,))
    with Ahead(iterate_updates(cast(Task, data), Place(), 0, 1, prepare), depth=4) as ahead:
        for taken in range(1, 20):
            ahead.next()
            time.sleep(0.01)
            # One more waits for room, and one may be in the making.
            assert taken <= len(prepared) <= taken + 6


def test_the_next_epoch_is_laid_out_before_this_one_ends_but_no_other() -> None:
    data = Numbers((40,))
    with Ahead(updates(data, size=1), depth=1) as ahead:
        for _ in range(10):
            ahead.next()
        assert data.asked == [0]
        for _ in range(20):
            ahead.next()
        deadline = time.monotonic() + 60  # it is asked for in a thread of its own
        while data.asked == [0] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert data.asked == [0, 1]


def test_an_error_of_the_text_is_reported_as_it_is() -> None:
    class Broken(Numbers):
        def epoch(self, epoch: int, begun: int = 0, part: int = 0) -> list[str]:
            if epoch:
                raise CorpusError("no training pair is left")
            return super().epoch(epoch)

    with Ahead(updates(Broken((2,)), size=1)) as ahead:
        assert ahead.next().batches == ["0a0"]
        assert ahead.next().batches == ["0a1"]  # what came before it is trained on
        with pytest.raises(CorpusError, match="no training pair is left"):
            ahead.next()


def test_any_other_error_is_reported_in_one_line() -> None:
    def fail(batches: list[Any]) -> None:
        raise MemoryError("cannot\nallocate")

    with (
        Ahead(iterate_updates(cast(Task, Numbers()), Place(), 0, 1, fail)) as ahead,
        pytest.raises(BatchError) as caught,
    ):
        ahead.next()
    assert str(caught.value).startswith(
        "the next batches could not be prepared: MemoryError: cannot allocate; "
    )


def test_no_thread_is_left_behind() -> None:
    before = threading.active_count()
    with Ahead(updates(Numbers())) as ahead:
        ahead.next()
        assert threading.active_count() > before
    assert threading.active_count() == before
