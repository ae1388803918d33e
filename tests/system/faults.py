"""Faults that a server must survive, in adjustable numbers: few in `make test`, many in `make
soak`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import string
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families

from tests.system.server import PAIR, Server

HEAVY = {"beam_size": 4, "min_length": 60, "max_length": 80, "loop_guard": False}
"""Options that make a text expensive."""
LONG = {"beam_size": 8, "min_length": 200, "max_length": 256}
"""Options that keep even a tiny model busy for a while."""

UNICODE = [
    "",
    " ",
    "\u00a0\u2003\u3000",
    " " * 4000,
    "...!?",
    "\r\n\r\nZeile\r\n",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\u202eabc\u202c",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "e\u0301\u0302\u0303" * 20,
    "\ufeffabc",
    "\ufffd\uffff\U0010ffff",
    "\x01\x02\x1b[31m",
    "\u0000",
    "a\u0000b",
]
"""Unusual Unicode texts; those with NUL are refused."""

Samples = dict[str, float]


def samples(server: Server) -> Samples:
    """The values of /metrics by name and labels."""
    text = httpx.get(f"{server.url}/metrics", timeout=30).text
    return {
        sample.name + "".join(f",{k}={v}" for k, v in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(found: Samples, name: str) -> float:
    """The sum of a metric over its labels."""
    return sum(value for key, value in found.items() if key.split(",")[0] == name)


def held(server: Server) -> float:
    """Number of rows being decoded and of waiting texts, for all models."""
    found = samples(server)
    return total(found, "macaron_rows") + total(found, "macaron_queue_depth")


def language_model(server: Server) -> str:
    """The name of the first language model."""
    return str(httpx.get(f"{server.url}/v1/models", timeout=60).json()["data"][0]["id"])


def seconds_until(condition: Callable[[], bool], limit: float) -> float:
    """Seconds until the condition holds; fails after `limit` seconds."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < limit, f"not within {limit} s"
        time.sleep(0.05)
    return time.monotonic() - begin


def some_text(rng: random.Random, words: int = 5) -> str:
    """Random words that are never repeated."""
    return " ".join("".join(rng.choices(string.ascii_lowercase, k=6)) for _ in range(words))


@dataclass
class Outcomes:
    """The outcomes of many requests."""

    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    """Seconds of the requests answered with 200."""
    without_retry_after: int = 0
    """Refusals without Retry-After."""
    lost: int = 0
    """Requests without an answer."""

    def percentile(self, percent: float) -> float:
        """A percentile of the latencies."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]

    async def ask(
        self, session: aiohttp.ClientSession, url: str, body: dict[str, Any], path: str
    ) -> None:
        """Send a request and record its outcome."""
        begin = time.monotonic()
        try:
            async with session.post(url + path, json=body) as answer:
                await answer.read()
                self.statuses[answer.status] += 1
                if answer.status == 200:
                    self.latencies.append(time.monotonic() - begin)
                elif answer.status in (429, 503) and "Retry-After" not in answer.headers:
                    self.without_retry_after += 1
        except (aiohttp.ClientError, TimeoutError, OSError):
            self.lost += 1


def in_session(act: Callable[[aiohttp.ClientSession], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine with its own connections."""

    async def run() -> None:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        timeout = aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            await act(session)

    asyncio.run(run())


def heavy(rng: random.Random) -> dict[str, Any]:
    """An expensive request."""
    return {"q": some_text(rng), **PAIR, "options": HEAVY}


def capacity(server: Server, seconds: float, clients: int = 48) -> float:
    """Heavy requests per second, with as many clients as fill the batches."""
    rng, found = random.Random(1), Outcomes()

    async def act(session: aiohttp.ClientSession) -> None:
        end = time.monotonic() + seconds

        async def client() -> None:
            while time.monotonic() < end:
                await found.ask(session, server.url, {**heavy(rng), "timeout_s": 100}, "/translate")

        await asyncio.gather(*(client() for _ in range(clients)))

    begin = time.monotonic()
    in_session(act)
    return found.statuses[200] / (time.monotonic() - begin)


def overload(server: Server, rate: float, seconds: float) -> Outcomes:
    """Send heavy requests at a fixed rate, without waiting for earlier ones and without a
    deadline."""
    rng, found = random.Random(2), Outcomes()

    async def act(session: aiohttp.ClientSession) -> None:
        begin, tasks = time.monotonic(), []
        for number in range(int(rate * seconds)):
            if (wait := begin + number / rate - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            request = found.ask(session, server.url, heavy(rng), "/translate")
            tasks.append(asyncio.create_task(request))
        await asyncio.gather(*tasks)

    in_session(act)
    return found


def latency(server: Server, times: int = 5) -> float:
    """Median seconds of a short request to an idle server."""
    rng, found = random.Random(), []
    for _ in range(times):
        begin = time.monotonic()
        assert server.ask(some_text(rng, 2)).status_code == 200
        found.append(time.monotonic() - begin)
    return sorted(found)[times // 2]


def seconds_to_recover(server: Server, idle_s: float, limit: float = 30.0) -> float:
    """Seconds until a short request takes at most three times as long as on an idle server."""
    return seconds_until(lambda: latency(server, 1) <= 3 * idle_s + 0.02, limit)


def kill_clients(server: Server, count: int) -> None:
    """Start requests, streaming and not, and disconnect in the middle of each."""
    rng, model = random.Random(3), language_model(server)
    for number in range(count):
        if number % 2:
            body: dict[str, Any] = {"prompt": "the", "max_tokens": 3000, "min_tokens": 2900}
            path, body = "/v1/completions", {"model": model, "stream": True, **body}
        else:
            path, body = "/translate", {"q": [some_text(rng)] * 4, **PAIR, "options": LONG}
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            connection.sendall(head.encode() + data)
            time.sleep(rng.uniform(0, 0.05))


def malformed(rng: random.Random) -> bytes:
    """A request that is malformed in some way."""
    body = json.dumps({"q": "Hallo", **PAIR}).encode()
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(rng.randint(1, 300)) + b"\r\n\r\n"
    if kind == 1:  # a good head, noise as body
        body = rng.randbytes(rng.randint(0, 200))
    if kind == 2:  # bytes of the body changed
        changed = bytearray(body)
        for _ in range(rng.randint(1, 5)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        body = bytes(changed)
    if kind == 3:
        body = b"[" * rng.randint(1, 5000)
    paths = ["/translate", "/v1/completions", "/tokenize", "/models", "/\xff", "*", "/%00", "//"]
    length = {4: rng.choice(["-1", "abc", "1, 2", "9" * 30, ""])}.get(kind, str(len(body)))
    head = (
        f"{rng.choice(['POST', 'GET', 'PUT', 'OPTIONS', 'x' * 50])} {rng.choice(paths)} "
        f"HTTP/{rng.choice(['1.1', '1.0', '2.0', '9.9'])}\r\nHost: x\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
    data = head.encode("latin-1") + body
    if kind == 5:  # bytes of the whole changed
        changed = bytearray(data)
        for _ in range(rng.randint(1, 10)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        data = bytes(changed)
    return data


def fuzz(server: Server, count: int, seed: int = 4) -> Counter[str]:
    """Statuses of malformed requests: `closed` if the server closed the connection, as it must if
    the head never ends, and `hang` if nothing came."""
    rng = random.Random(seed)

    def send(data: bytes) -> str:
        try:
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
                connection.sendall(data)
                answer = connection.recv(65536)
        except TimeoutError:
            return "hang"
        except OSError:
            return "closed"
        parts = answer.split(b"\r\n")[0].split(b" ")
        return parts[1].decode() if len(parts) > 1 else "closed"

    with ThreadPoolExecutor(32) as pool:
        return Counter(pool.map(send, [malformed(rng) for _ in range(count)]))


def random_paths(server: Server, count: int, seed: int = 5) -> int:
    """Request unknown paths; returns how many samples /metrics has gained."""
    rng = random.Random(seed)
    with httpx.Client(base_url=server.url, timeout=30) as client:
        client.get("/unknown")
        client.get("/web/unknown")
        client.get("/v1/models/unknown")
        samples(server)
        before = len(samples(server))
        for number in range(count):
            name = "".join(rng.choices(string.ascii_letters + string.digits, k=20))
            path = (f"/{name}", f"/web/{name}", f"/v1/models/{name}")[number % 3]
            assert client.get(path).status_code == 404
    return len(samples(server)) - before


@dataclass(frozen=True)
class Footprint:
    """The resources of a server process and its decoding processes."""

    requests: int
    rss_mb: float
    threads: int
    descriptors: int


def worker_pids(server: Server) -> list[int]:
    """The processes that answer requests."""
    return [
        child.pid
        for child in psutil.Process(server.process.pid).children()
        if any("serving.worker" in argument for argument in _arguments(child))
    ]


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:  # it has just ended
        return []


def footprint(server: Server, requests: int) -> Footprint:
    """The footprint of the only worker and its decoding processes."""
    (pid,) = worker_pids(server)
    worker = psutil.Process(pid)
    processes = [worker, *worker.children()]
    return Footprint(
        requests,
        sum(process.memory_info().rss for process in processes) / 2**20,
        sum(process.num_threads() for process in processes),
        sum(process.num_fds() for process in processes),
    )


def mixed(rng: random.Random, model: str) -> tuple[str, dict[str, Any], bool]:
    """The path and body of a random request, and whether to disconnect early."""
    kind = rng.random()
    if kind < 0.6:
        texts = [some_text(rng, rng.randint(1, 12)) for _ in range(rng.choice([1, 1, 1, 4]))]
        options = {"beam_size": rng.choice([1, 2, 4]), "max_length": 40}
        return "/translate", {"q": texts, **PAIR, "options": options}, False
    if kind < 0.8:
        body = {"model": model, "prompt": "the", "max_tokens": rng.randint(1, 20)}
        return "/v1/completions", {**body, "seed": rng.randrange(1000), "stream": kind < 0.7}, False
    if kind < 0.9:
        wrong = rng.choice([{"q": 1}, {"q": "a", **PAIR, "options": {"beam_size": 99}}, {}])
        return "/translate", wrong, False
    return "/translate", {"q": some_text(rng), **PAIR, "options": HEAVY}, True


def mixed_traffic(server: Server, count: int, every: int, clients: int = 8) -> list[Footprint]:
    """Send requests of every kind; returns the footprint after each `every` of them."""
    rng, found, prints = random.Random(6), Outcomes(), [footprint(server, 0)]
    model = language_model(server)

    async def act(session: aiohttp.ClientSession) -> None:
        sent = 0

        async def client(last: int) -> None:
            nonlocal sent
            while sent < last:
                sent += 1
                path, body, leave = mixed(rng, model)
                ask = found.ask(session, server.url, body, path)
                if leave:
                    try:
                        await asyncio.wait_for(ask, rng.uniform(0.001, 0.05))
                    except TimeoutError:
                        continue
                else:
                    await ask

        for last in range(every, count + 1, every):
            await asyncio.gather(*(client(last) for _ in range(clients)))
            while held(server):
                await asyncio.sleep(0.1)
            prints.append(footprint(server, last))

    in_session(act)
    assert not found.lost, found
    assert set(found.statuses) <= {200, 400}, found.statuses
    return prints


def rss_slope(prints: Sequence[Footprint]) -> float:
    """MB per thousand requests, by least squares over the second half."""
    half = prints[len(prints) // 2 :]
    xs, ys = [p.requests / 1000 for p in half], [p.rss_mb for p in half]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((a - x) ** 2 for a in xs)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / spread if spread else 0.0


def slow_clients(server: Server, count: int, limit_s: float) -> Counter[str]:
    """Send heads and bodies that never end, all at once; returns how each connection ended."""
    heads = (b"POST /trans", b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: appli")
    body = (
        b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 1000\r\n\r\n{"
    )
    found, connections = Counter[str](), []
    for number in range(count):
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=limit_s)
        connection.sendall((*heads, body)[number % 3])
        connections.append(connection)
    for connection in connections:
        with connection:
            try:
                answer = connection.recv(4096)
                found[answer.split(b" ")[1].decode() if answer else "closed"] += 1
            except ConnectionResetError:
                found["closed"] += 1
            except TimeoutError:
                found["hang"] += 1
    return found


def unread_streams(server: Server, count: int) -> None:
    """Open streams of long texts and never read them, until the server gives up."""
    body = json.dumps(
        {
            "model": language_model(server),
            "prompt": "a",
            "stream": True,
            "timeout_s": 100,
            "max_tokens": 4000,
            "min_tokens": 3900,
            "n": 8,
            "best_of": 8,
            "logprobs": 20,
        }
    )
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    connections = []
    for _ in range(count):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall((head + body).encode())
        connections.append(connection)
    seconds_until(lambda: held(server) > 0, 30)
    seconds_until(lambda: held(server) == 0, 99)
    for connection in connections:
        connection.close()


@dataclass(frozen=True)
class Kill:
    """The result of killing one of two workers."""

    asked: int
    lost: int
    clients: int
    """The largest number of concurrent requests."""
    refused: int
    seconds_to_replace: float


def decoder_pids(server: Server) -> list[int]:
    """Decoding processes, the busiest first. Processes that end meanwhile are left out."""
    seconds = {}
    loaders = [loader.pid for pid in worker_pids(server) for loader in _children(pid)]
    for pid in loaders:
        for child in _children(pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                seconds[child.pid] = child.cpu_times().user
    return sorted(seconds, key=lambda pid: seconds[pid], reverse=True)


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children()
    except psutil.NoSuchProcess:  # it has just ended
        return []


def kill_one(
    server: Server, pids: Callable[[Server], list[int]], seconds: float, clients: int = 4
) -> Kill:
    """SIGKILL the first of these processes under traffic."""
    victims = pids(server)
    rng, asked, lost, refused = random.Random(7), 0, 0, 0
    end = time.monotonic() + seconds

    def client(_: int) -> None:
        nonlocal asked, lost, refused
        while time.monotonic() < end:
            asked += 1
            try:
                status = server.ask(some_text(rng)).status_code
                refused += status != 200
            except httpx.TransportError:
                lost += 1

    with ThreadPoolExecutor(clients) as pool:
        traffic = [pool.submit(client, number) for number in range(clients)]
        time.sleep(seconds / 4)
        os.kill(victims[0], signal.SIGKILL)
        taken = seconds_until(
            lambda: len(set(pids(server)) - {victims[0]}) == len(victims), max(60.0, seconds)
        )
        for future in traffic:
            future.result()
    return Kill(asked, lost, clients, refused, taken)
