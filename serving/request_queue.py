"""Where requests wait: filled by the server's threads, emptied by the one that decodes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from serving.errors import NotReadyError, OverloadedError
from serving.ticket import Ticket

AnyTicket = TypeVar("AnyTicket", bound=Ticket)  # type: ignore[type-arg]


class RequestQueue(Generic[AnyTicket]):
    """A bounded queue of tickets, oldest first; ended and overdue ones leave it."""

    def __init__(self, max_size: int, unit: str) -> None:
        """`unit` is what messages call a ticket, in the plural."""
        self._max_size, self._unit = max_size, unit
        self._waiting: deque[AnyTicket] = deque()
        self._changed = threading.Condition()
        self._closing = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, tickets: Sequence[AnyTicket]) -> None:
        """Add tickets, all or none; raises OverloadedError, or NotReadyError once closed."""
        with self._changed:
            if self._closing:
                raise NotReadyError("the server is shutting down; try again later")
            self._drop_ended()
            if len(self._waiting) + len(tickets) > self._max_size:
                raise OverloadedError(
                    f"the queue holds at most {self._max_size} {self._unit} and has "
                    f"{len(self._waiting)}; try again later"
                )
            self._waiting.extend(tickets)
            self._changed.notify()

    def put_back(self, ticket: AnyTicket) -> None:
        """Add a ticket that has been decoded before, ahead of all others, whatever the bound."""
        with self._changed:
            self._waiting.appendleft(ticket)

    def take(self, choose: Callable[[AnyTicket], bool]) -> list[AnyTicket]:
        """Remove the tickets that are chosen, asked oldest first."""
        if not self._waiting:
            return []
        with self._changed:
            self._drop_ended()
            taken = [ticket for ticket in self._waiting if choose(ticket)]
            chosen = set(taken)
            self._waiting = deque(ticket for ticket in self._waiting if ticket not in chosen)
            return taken

    def drop_ended(self) -> None:
        """Let tickets that have ended or are overdue leave, which fails the overdue."""
        if self._waiting:
            with self._changed:
                self._drop_ended()

    def wait(self) -> bool:
        """Wait until there is a ticket; False once the queue is closed and empty."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            return bool(self._waiting)

    def close(self) -> None:
        """Accept nothing more."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def _drop_ended(self) -> None:
        self._waiting = deque(ticket for ticket in self._waiting if not ticket.expire())
