"""Protection against clients that are too slow or send too much (heads that never end, answers that
are never read), and answers in HTTP/1.1 to those that ask for another protocol."""

from __future__ import annotations

import asyncio

import httptools
import uvicorn.protocols.http.auto
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 64 * 1024
"""Largest size of a request's line and headers in bytes; uvicorn and httptools themselves have no
limit."""


class TimedConnection(HttpToolsProtocol):
    """A connection of uvicorn that is closed if a request's head takes too long or is too large, or
    if the written data are not read; uvicorn itself would wait forever. Decoding for the client is
    then cancelled, as when a client leaves.

    A request that asks for another protocol, as Java's client does for HTTP/2, is answered as if it
    did not: httptools would take its body for data of that protocol, and uvicorn drop them.
    """

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
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            message = "Invalid HTTP request received."
            self.logger.warning(message)
            self.send_400_response(message)
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
        """Handle the completion of a request's head, unless it is to be parsed again."""
        if not self.parser.should_upgrade():
            self._head_bytes = None
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Handle the end of a request, unless its head is to be parsed again."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

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

    def _parse(self, data: bytes) -> None:
        """Parse data. The parser stops behind a head that asks for an upgrade, and cannot be told
        to go on with the body: a new one is given the head again, without the wish.

        Raises HttpParserError for what is not HTTP/1.1, and for a tunnel.
        """
        rest = memoryview(data)
        while rest:
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
            method = self.parser.get_method()
            if method == b"CONNECT":
                raise httptools.HttpParserError("there are no tunnels")
            version = self.parser.get_http_version().encode()
            lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
            lines += [b"%b: %b" % pair for pair in self.headers if pair[0] != b"upgrade"]
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
            self.parser.feed_data(b"\r\n".join([*lines, b"", b""]))

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
