"""Counts usage by owner and sends it to the store in batches.

A batch is sent every second and at the end. If the process is killed, counts since the last batch
are lost. If the store is unavailable for a while, none are lost; if its answer is lost, none are
counted twice.
"""

from __future__ import annotations

import calendar
import functools
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from serving.errors import QuotaExceededError
from serving.server.access.every_second import EverySecond
from serving.store.records.key import UsageBatch, UsageCount, UsagePlace
from serving.store.usage import StoredUsage

_MOST_OWNERS = 10_000
"""Largest number of owners in memory; of those without unsent counts, the one unused for longest is
dropped."""
_NOTHING = UsageCount()


@dataclass
class _Month:
    """The characters of an owner in one month."""

    name: str
    """Month, such as `2026-11`."""
    stored: int = 0
    """Characters in the store, as last read."""
    unsaved: int = 0
    """Characters counted here that may not be in the store yet."""


class UsageMeter:
    """Counts requests and characters, up to a monthly limit; thread-safe."""

    def __init__(self, usage: StoredUsage, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns seconds since 1970; the day is taken in UTC."""
        self._usage, self._clock = usage, clock
        self._lock, self._saving = threading.Lock(), threading.Lock()
        self._counts: dict[UsagePlace, UsageCount] = {}
        self._months: OrderedDict[str, _Month] = OrderedDict()
        self._batch: UsageBatch | None = None
        """The last batch without confirmation; it is sent again unchanged."""
        self._writer, self._number = uuid.uuid4().hex, 0
        self._today = -1, ""
        """The current day, as days since 1970 and as text."""
        self._sending = EverySecond("usage", self.flush, "usage is kept until the store answers")

    def spend(self, owner: str, task: str, count: UsageCount, limit: int) -> Callable[[], None]:
        """Count usage of an owner; returns a function that undoes it.

        Raises QuotaExceededError if the characters exceed the rest of `limit` this month.
        """
        day = self._day()
        place = owner, day, task
        with self._lock:
            found = self._month(owner, day[:7])
            before = found.stored + found.unsaved
            if before + count.characters > limit:
                raise self._over(before, count.characters, limit)
            found.unsaved += count.characters
            self._counts[place] = self._counts.get(place, _NOTHING).and_also(*count)
        self._sending.begin()
        return functools.partial(self._take_back, place, count)

    def used(self, owner: str) -> int:
        """The characters of an owner this month, as far as this process knows."""
        with self._lock:
            found = self._month(owner, self._day()[:7])
            return found.stored + found.unsaved

    def know(self, owner: str) -> None:
        """Read the characters of an owner from the store, which other servers may have counted;
        raises StoreUnavailableError."""
        with self._lock:
            found, number = self._month(owner, self._day()[:7]), self._number
        if found.unsaved:  # the answer to the next batch has the sum
            return
        stored = self._usage.of_month(owner, found.name)
        with self._lock:
            if number == self._number and not found.unsaved:
                found.stored = stored

    def read(self, owner: str) -> int:
        """The characters of an owner this month, including those of other servers; raises
        StoreUnavailableError."""
        self.flush()
        self.know(owner)
        return self.used(owner)

    def flush(self) -> None:
        """Send all counts to the store; if it raises StoreUnavailableError, they are kept."""
        with self._saving:
            if self._batch is not None:
                self._send(self._batch)
            batch = self._taken()
            if batch is not None:
                self._send(batch)

    def close(self) -> None:
        """Send the remaining counts to the store; raises StoreUnavailableError."""
        self._sending.close()
        self.flush()

    def _send(self, batch: UsageBatch) -> None:
        month = self._day()[:7]
        self._confirm(batch, self._usage.add(batch, month), month)

    def _day(self) -> str:
        """The current day in UTC."""
        number = int(self._clock() // 86_400)
        if number != self._today[0]:
            self._today = number, time.strftime("%Y-%m-%d", time.gmtime(number * 86_400))
        return self._today[1]

    def _over(self, before: int, more: int, limit: int) -> QuotaExceededError:
        error = QuotaExceededError(
            f"at most {limit} characters a month are allowed for this key, got {before} so far "
            f"and {more} more; the count starts again next month"
        )
        error.retry_after_s = _rest_of_month(self._clock())
        return error

    def _take_back(self, place: UsagePlace, count: UsageCount) -> None:
        owner, day, _ = place
        with self._lock:
            found = self._month(owner, self._day()[:7])
            counted = self._counts.get(place, _NOTHING)
            self._counts[place] = counted.and_also(-count.requests, -count.characters)
            if day[:7] == found.name:
                found.unsaved -= count.characters

    def _month(self, owner: str, month: str) -> _Month:
        """The account of an owner; a new one each month. The lock must be held."""
        found = self._months.get(owner)
        if found is None or found.name != month:
            found = self._begun(owner, month)
        self._months.move_to_end(owner)
        return found

    def _begun(self, owner: str, month: str) -> _Month:
        """A new account of an owner for a month, with characters already counted."""
        found = self._months[owner] = _Month(month)
        sent = self._batch.counts if self._batch else {}
        for counts in (self._counts, sent):  # if the clock was set back
            for (whose, day, _), count in counts.items():
                if whose == owner and day[:7] == month:
                    found.unsaved += count.characters
        if len(self._months) > _MOST_OWNERS:
            idle = (name for name, known in self._months.items() if not known.unsaved)
            gone = next((name for name in idle if name != owner), None)
            if gone is not None:
                del self._months[gone]
        return found

    def _taken(self) -> UsageBatch | None:
        """The counts since the last batch, as the next batch."""
        with self._lock:
            counts = {place: count for place, count in self._counts.items() if count != _NOTHING}
            self._counts = {}
            if counts:
                self._number += 1
                self._batch = UsageBatch(self._writer, self._number, counts)
            return self._batch

    def _confirm(self, batch: UsageBatch, stored: Mapping[str, int], month: str) -> None:
        """Record that the store has a batch, and its monthly sums."""
        with self._lock:
            self._batch = None
            for (owner, day, _), count in batch.counts.items():
                found = self._months.get(owner)
                if found is not None and found.name == day[:7]:
                    found.unsaved -= count.characters
            for owner, characters in stored.items():
                found = self._months.get(owner)
                if found is not None and found.name == month:
                    found.stored = characters


def _rest_of_month(now: float) -> float:
    """Seconds until the next month in UTC."""
    date = time.gmtime(now)
    days = calendar.monthrange(date.tm_year, date.tm_mon)[1] - date.tm_mday + 1
    return days * 86_400 - now % 86_400
