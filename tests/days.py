"""The day of the calendar, for tests of what is counted by days and months."""

from __future__ import annotations

import time

_DAY_S = 86_400


def today(seconds: float = 120.0) -> str:
    """Return the day in UTC, such as 2026-11-30, once it lasts for `seconds` more.

    A server counts usage by days. A test that begins just before midnight would ask for the usage
    of a day that has ended, so it waits for the next one.
    """
    left = _DAY_S - time.time() % _DAY_S
    if left < seconds:
        time.sleep(left + 0.1)
    return time.strftime("%Y-%m-%d", time.gmtime())
