"""Counting what each client asks for, so that none asks for more than it may in a minute."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from serving.errors import RateLimitedError
from serving.server.settings import variable

MOST_CLIENTS = 10_000
"""Clients remembered; the one not seen for longest is forgotten, and begins anew."""


class RateLimit:
    """A bucket for each client, which holds as much as a minute allows and fills up steadily.

    A request is let in while the bucket is not empty, and then takes all that it costs: one that
    costs more than a whole bucket leaves a debt, so that it is served late rather than never.
    """

    def __init__(
        self,
        unit: str,
        setting: str,
        per_minute: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`unit` is what is counted, in the plural; `setting` is the field of the settings that
        holds the limit; `per_minute` of 0 is no limit."""
        self._unit, self._setting, self._per_minute = unit, setting, per_minute
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What each held, and when; the client seen last is at the end."""

    def charge(self, client: str, cost: int) -> None:
        """Take `cost` from a client's bucket; raises RateLimitedError, with the time to wait, where
        it is empty."""
        if not self._per_minute:
            return
        now, pace = self._clock(), self._per_minute / 60
        held, when = self._buckets.pop(client, (float(self._per_minute), now))
        held = min(held + (now - when) * pace, float(self._per_minute))
        empty = held < min(1, cost)
        self._buckets[client] = held - (0 if empty else cost), now
        if len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        if empty:
            error = RateLimitedError(
                f"a client may ask for at most {self._per_minute} {self._unit} in a minute "
                f"({variable(self._setting)}); try again later"
            )
            error.retry_after_s = (1 - held) / pace
            raise error
