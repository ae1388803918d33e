"""Waiting for submitted requests while watching the clock and the client."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.types import Receive

from serving.errors import CancelledError, DeadlineExceededError
from serving.scheduler import Completed, Ticket


async def completed(
    tickets: Sequence[Ticket], receive: Receive, timeout_s: float
) -> list[Completed]:
    """The results, in order.

    Raises the first error among them, DeadlineExceededError after `timeout_s`, and CancelledError
    when the client goes away; whatever ends it, nothing of the request is decoded further. The
    body must have been read.
    """
    results = asyncio.create_task(_results(tickets))
    departure = asyncio.create_task(_departure(receive))
    try:
        waited: list[asyncio.Task[Any]] = [results, departure]
        await asyncio.wait(waited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if results.done():
            return results.result()
        if departure.done():
            raise CancelledError("the client left before its answer was ready")
        raise DeadlineExceededError(f"not finished within {timeout_s:g} seconds")
    finally:
        departure.cancel()
        results.cancel()
        for ticket in tickets:
            ticket.cancel()  # changes nothing where it has ended


async def _results(tickets: Sequence[Ticket]) -> list[Completed]:
    return await asyncio.gather(*map(_result, tickets))


async def _result(ticket: Ticket) -> Completed:
    async for event in ticket.events():
        return event
    raise AssertionError("a ticket's events end with its result")


async def _departure(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
