"""Protection against clients that are too slow or send too much: heads that never end, answers that
are never read."""

from __future__ import annotations

import asyncio

import uvicorn.protocols.http.auto
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 64 * 1024
"""Largest size of a request's line and headers in bytes; uvicorn and httptools themselves have no
limit."""


class TimedConnection(HttpToolsProtocol):
    """A connection of uvicorn that is closed if a request's head takes too long or is too large, or
    if the written data are not read; uvicorn itself would wait forever. Decoding for the client is
    then cancelled, as when a client leaves."""

    timeout_s = 30.0
    _head: asyncio.TimerHandle | None = None
    _write: asyncio.TimerHandle | None = None
    _head_bytes: int | None = None
    """Number of bytes of an incomplete head that have arrived; None outside of heads."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit for the head of the first request."""
        super().connection_made(transport)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        """Handle data of a head or of a body, which may complete the head."""
        super().data_received(data)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response(f"A request's head may have {MOST_HEAD_BYTES} bytes.")
        self._watch_head()

    def on_message_begin(self) -> None:
        """Handle the beginning of a request in the present data."""
        super().on_message_begin()
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """Handle the completion of a request's head."""
        self._head_bytes = None
        super().on_headers_complete()

    def handle_websocket_upgrade(self) -> None:
        """Stop timing the connection, which belongs to another protocol from now on."""
        self._forget()
        super().handle_websocket_upgrade()

    def pause_writing(self) -> None:
        """Start the time limit for the client to read written data."""
        super().pause_writing()
        self._write = self.loop.call_later(self.timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        """End that time limit, because the client has read data in time."""
        super().resume_writing()
        if self._write:
            self._write.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers, because the connection has ended."""
        self._forget()
        super().connection_lost(exc)

    def _watch_head(self) -> None:
        """Start the time limit while no request is being served and data have arrived, or none have
        ever arrived."""
        waiting = self.cycle is None or self.cycle.response_complete
        if waiting and self._head is None:
            self._head = self.loop.call_later(self.timeout_s, self.transport.abort)
        elif not waiting and self._head is not None:
            self._head.cancel()
            self._head = None

    def _forget(self) -> None:
        for timer in (self._head, self._write):
            if timer is not None:
                timer.cancel()
        self._head = None


def time_connections(timeout_s: float) -> None:
    """Make uvicorn use timed connections; must be called before it starts.

    BentoML leaves the choice to uvicorn, which looks for it in this place.
    """
    TimedConnection.timeout_s = timeout_s
    uvicorn.protocols.http.auto.AutoHTTPProtocol = TimedConnection
