"""Clients that are too slow or too large: heads that never end, answers that are never read."""

from __future__ import annotations

import asyncio

import uvicorn.protocols.http.auto
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 64 * 1024
"""A request's line and headers; uvicorn and httptools themselves have no bound."""


class TimedConnection(HttpToolsProtocol):
    """Uvicorn's connection, closed where a request's head takes too long or too much, or where what
    was written is not read: uvicorn itself would wait for ever. What was being decoded is then
    cancelled, as where a client leaves."""

    timeout_s = 30.0
    _head: asyncio.TimerHandle | None = None
    _write: asyncio.TimerHandle | None = None
    _head_bytes: int | None = None
    """What has come of a head that is not complete; None outside of heads."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected: it has so long to send the head of its first request."""
        super().connection_made(transport)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        """Something has come, of a head or of a body: the head may be complete with it."""
        super().data_received(data)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response(f"A request's head may have {MOST_HEAD_BYTES} bytes.")
        self._watch_head()

    def on_message_begin(self) -> None:
        """A request begins with the data at hand."""
        super().on_message_begin()
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """The head of a request is complete."""
        self._head_bytes = None
        super().on_headers_complete()

    def handle_websocket_upgrade(self) -> None:
        """The connection is another protocol's from now on, and no longer timed."""
        self._forget()
        super().handle_websocket_upgrade()

    def pause_writing(self) -> None:
        """The client does not read what is written: it has so long to make room."""
        super().pause_writing()
        self._write = self.loop.call_later(self.timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has made room in time."""
        super().resume_writing()
        if self._write:
            self._write.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended, so that no timer must act on it any more."""
        self._forget()
        super().connection_lost(exc)

    def _watch_head(self) -> None:
        """Let the time run while no request is being served and data has come, or none ever."""
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
    """Make uvicorn use timed connections; to be called before it starts.

    BentoML leaves the choice to uvicorn, which looks for it in this place.
    """
    TimedConnection.timeout_s = timeout_s
    uvicorn.protocols.http.auto.AutoHTTPProtocol = TimedConnection
