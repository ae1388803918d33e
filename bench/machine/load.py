"""Load on an HTTP server: as many requests as it answers, or Poisson arrivals at a given rate.

With Poisson arrivals a request is sent when it is due, even if earlier ones are not answered yet,
and its latency counts from then: a slow server does not slow the arrivals down.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpResponseParser

_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Load:
    """The result of one run of requests on a server."""

    latencies_ms: list[float]
    """Latencies of the answered requests, each from the moment when the request was due."""
    failed: int
    seconds: float
    generator_cpu: float
    """Processor time of this process over the duration."""

    @property
    def rate(self) -> float:
        return len(self.latencies_ms) / self.seconds

    def percentile(self, percent: float) -> float:
        """A percentile of the latencies by nearest rank; a failed request counts as infinitely
        slow."""
        ordered = sorted(self.latencies_ms) + [float("inf")] * self.failed
        place = -(-len(ordered) * percent // 100) - 1  # nearest rank
        return ordered[max(0, int(place))]

    def goodput(self, target_ms: float) -> float:
        """Requests per second that were answered within the target."""
        return sum(latency <= target_ms for latency in self.latencies_ms) / self.seconds


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Times of a Poisson process, in seconds from its beginning."""
    generator, times, now = random.Random(seed), list[float](), 0.0
    while (now := now + generator.expovariate(rate)) < seconds:
        times.append(now)
    return times


def poisson_load(
    url: str, bodies: Sequence[dict[str, Any]], rate: float, seconds: float, seed: int
) -> Load:
    """Send `bodies` in turn at `rate` requests per second and wait for every answer."""
    return asyncio.run(_poisson(url, bodies, arrivals(rate, seconds, seed)))


def full_load(url: str, bodies: Sequence[dict[str, Any]], clients: int, seconds: float) -> Load:
    """Run `clients` that each send the next request as soon as their last is answered."""
    return asyncio.run(_full(url, bodies, clients, seconds))


class _Sender:
    """Posts JSON over connections that stay open, and records the results.

    It takes little processor time: the server that is measured shares the cores with it.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._head = (
            f"POST {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()
        self._idle: list[_Connection] = []
        self.latencies_ms: list[float] = []
        self.failed = 0

    async def send(self, body: bytes, due: float) -> None:
        """Send one request that was due at a time of the monotonic clock."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                status = await self._status(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
        except (OSError, HttpParserError, TimeoutError):
            status = 0
        if status == HTTPStatus.OK:
            self.latencies_ms.append((time.monotonic() - due) * 1000)
        else:
            self.failed += 1

    async def _status(self, request: bytes) -> int:
        """The status of the whole answer to a request."""
        connection = self._idle.pop() if self._idle else await self._opened()
        try:
            status = await connection.ask(request)
        except BaseException:
            connection.close()
            raise
        if connection.usable:
            self._idle.append(connection)
        else:
            connection.close()
        return status

    async def _opened(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, self._host, self._port)
        return connection

    def close(self) -> None:
        """Close the connections, none of which may be in use."""
        for connection in self._idle:
            connection.close()


class _Connection(asyncio.Protocol):
    """A connection to the server, for one request at a time."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[int] | None = None
        self.usable = True
        """Whether another request may be sent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def ask(self, request: bytes) -> asyncio.Future[int]:
        """Send a request; returns the status of its answer once the whole answer has come."""
        self._answer = asyncio.get_running_loop().create_future()
        self._parser = HttpResponseParser(self)
        self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._end(error)

    def on_message_complete(self) -> None:
        self.usable = self.usable and self._parser.should_keep_alive()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(self._parser.get_status_code())

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionError("the server closed the connection"))

    def close(self) -> None:
        self.usable = False
        self._transport.close()

    def _end(self, error: Exception) -> None:
        self.usable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


def _encoded(bodies: Sequence[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(body).encode() for body in bodies]


async def _poisson(url: str, bodies: Sequence[dict[str, Any]], times: list[float]) -> Load:
    encoded = _encoded(bodies)
    with contextlib.closing(_Sender(url)) as sender:
        cpu, begin = time.process_time(), time.monotonic()
        tasks = []
        for number, due in enumerate(times):
            if (wait := begin + due - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            body = encoded[number % len(encoded)]
            tasks.append(asyncio.create_task(sender.send(body, begin + due)))
        await asyncio.gather(*tasks)
        seconds = time.monotonic() - begin
        share = (time.process_time() - cpu) / seconds
        return Load(sender.latencies_ms, sender.failed, seconds, share)


async def _full(url: str, bodies: Sequence[dict[str, Any]], clients: int, seconds: float) -> Load:
    encoded, number = _encoded(bodies), 0
    with contextlib.closing(_Sender(url)) as sender:
        cpu, begin = time.process_time(), time.monotonic()

        async def client() -> None:
            nonlocal number
            while (now := time.monotonic()) < begin + seconds:
                number += 1
                await sender.send(encoded[number % len(encoded)], now)

        await asyncio.gather(*(client() for _ in range(clients)))
        elapsed = time.monotonic() - begin
        share = (time.process_time() - cpu) / elapsed
        return Load(sender.latencies_ms, sender.failed, elapsed, share)
