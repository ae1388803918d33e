"""Waiting for submitted requests while watching the clock and the client."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from starlette.types import Receive

from serving.errors import CancelledError, DeadlineExceededError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Pending(Protocol[T_co]):
    """A ticket of a scheduler."""

    async def wait(self) -> T_co: ...

    def cancel(self) -> None: ...


async def completed(tickets: Sequence[Pending[T]], receive: Receive, timeout_s: float) -> list[T]:
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


async def _results(tickets: Sequence[Pending[T]]) -> list[T]:
    return await asyncio.gather(*(ticket.wait() for ticket in tickets))


async def _departure(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
