"""Load on an HTTP server: as many requests as it answers, or Poisson arrivals at a given rate.

With Poisson arrivals a request is sent when it is due, even if earlier ones are not answered yet,
and its latency counts from then: a slow server does not slow the arrivals down.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

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
    """Posts JSON and records the result."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url
        self.latencies_ms: list[float] = []
        self.failed = 0

    async def send(self, body: bytes, due: float) -> None:
        """Send one request that was due at a time of the monotonic clock."""
        try:
            headers = {"Content-Type": "application/json"}
            async with self._session.post(self._url, data=body, headers=headers) as answer:
                await answer.read()
                ok = answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            ok = False
        if ok:
            self.latencies_ms.append((time.monotonic() - due) * 1000)
        else:
            self.failed += 1


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)


def _encoded(bodies: Sequence[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(body).encode() for body in bodies]


async def _poisson(url: str, bodies: Sequence[dict[str, Any]], times: list[float]) -> Load:
    encoded = _encoded(bodies)
    async with _session() as session:
        sender = _Sender(session, url)
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
    async with _session() as session:
        sender = _Sender(session, url)
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
