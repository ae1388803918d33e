"""Rate limits per minute that the servers of a store share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from serving.server.access.every_second import EverySecond
from serving.store.rates import StoredRates
from serving.store.records.key import digest_of


class _Taken(NamedTuple):
    """The amount that a client has taken since the store was last told."""

    amount: int
    per_minute: int
    """The limit of this client."""


class SharedRates:
    """Tells the store once a second how much clients have taken here, and learns how much they have
    taken from the same buckets on other servers, until these are full. No request waits for that.

    Requests to several servers within a second or two may therefore take more than the limit. That
    is a debt, which must be filled up before the next request, as in a bucket of one server. While
    the store is unavailable, each server counts for itself. Thread-safe.
    """

    def __init__(
        self, unit: str, stored: StoredRates, learn: Callable[[str, float, int], bool]
    ) -> None:
        """`unit` is the plural noun for what is counted. `learn` gets a client, the amount missing
        from its bucket without what was `noted` since, and the limit by which that was computed; it
        returns whether to ask for the bucket again."""
        self._unit, self._stored, self._learn = unit, stored, learn
        self._lock = threading.Lock()
        self._taken: dict[str, _Taken] = {}
        self._sending = EverySecond(
            f"rates of {unit}", self.share, f"{unit} a minute are counted by each server for itself"
        )

    def note(self, client: str, amount: int, per_minute: int) -> None:
        """Remember an amount that a client has taken, or got back if negative, for the store."""
        with self._lock:
            before = self._taken.get(client)
            self._taken[client] = _Taken(amount + (before.amount if before else 0), per_minute)
        self._sending.begin()

    def noted(self, client: str) -> int:
        """The amount that a client has taken and the store does not know yet."""
        with self._lock:
            taken = self._taken.get(client)
            return taken.amount if taken else 0

    def share(self) -> None:
        """Tell the store and learn from it now. Raises StoreUnavailableError; the amounts are then
        dropped, because buckets will have filled up by the time the store is back."""
        with self._lock:
            taken, self._taken = self._taken, {}
        if not taken:
            return
        names = {client: digest_of(f"{self._unit} {client}") for client in taken}
        seconds = {
            names[client]: each.amount * 60 / each.per_minute for client, each in taken.items()
        }
        told = {name: taken_s for name, taken_s in seconds.items() if taken_s}
        missing_s = self._stored.take(told) if told else {}
        if len(told) < len(seconds):
            missing_s |= self._stored.missing(seconds.keys() - told.keys())
        for client, each in taken.items():
            missing = max(0.0, missing_s.get(names[client], 0.0)) * each.per_minute / 60
            if self._learn(client, missing, each.per_minute):
                with self._lock:
                    self._taken.setdefault(client, _Taken(0, each.per_minute))

    def close(self) -> None:
        """End the thread. Nothing is told automatically any more."""
        self._sending.close()
