"""Slow clients, over real sockets and uvicorn."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.http.slow_clients import MOST_HEAD_BYTES, TimedConnection
from serving.server.models.registry import Registry
from tests.unit.serving.echo import EchoTranslator, wait_until

TIMEOUT_S = 0.4
HEAD = (
    b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n"
)


class Streams:
    """An app that writes without end; `ended` counts the streams that were given up."""

    def __init__(self) -> None:
        self.ended = 0

    async def stream(self, _: Request) -> Response:
        return StreamingResponse(self._chunks())

    async def _chunks(self):  # type: ignore[no-untyped-def]
        try:
            while True:
                yield b"x" * 65536
                await asyncio.sleep(0)
        finally:
            self.ended += 1


@pytest.fixture(scope="module")
def streams() -> Streams:
    return Streams()


@pytest.fixture(scope="module")
def port(streams: Streams) -> Iterator[int]:
    settings = Settings(client_timeout_s=TIMEOUT_S)
    registry = Registry(settings)
    registry.start([EchoTranslator()])
    app: Starlette = create_app(registry, settings)
    app.router.routes.append(Route("/stream", streams.stream))

    class Quick(TimedConnection):
        timeout_s = TIMEOUT_S

    config = uvicorn.Config(app, port=0, log_level="critical", http=Quick, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(10)
    registry.close()


def connect(port: int) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(10)
    connection.connect(("127.0.0.1", port))
    return connection


def read_all(connection: socket.socket) -> bytes:
    """What comes until the server ends the connection, in whatever way."""
    data = b""
    try:
        while part := connection.recv(65536):
            data += part
    except ConnectionResetError:
        pass
    return data


def trickle(connection: socket.socket, data: bytes) -> None:
    """Send a byte now and then."""
    for byte in data:
        connection.sendall(bytes([byte]))
        time.sleep(0.02)


@pytest.mark.parametrize("begun", [b"", b"POST /transl", b"GET /livez HTTP/1.1\r\nHost: x\r\n"])
def test_a_head_that_never_ends_is_given_up(port: int, begun: bytes) -> None:
    with connect(port) as connection:
        begin = time.monotonic()
        connection.sendall(begun)
        assert read_all(connection) == b""
        assert TIMEOUT_S * 0.8 < time.monotonic() - begin < 5


def test_a_head_that_comes_byte_by_byte_is_given_up(port: int) -> None:
    with connect(port) as connection:
        begin = time.monotonic()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            trickle(connection, b"GET /livez HTTP/1.1\r\nX: " + b"y" * 1000)
        assert time.monotonic() - begin < 5


def test_a_second_head_that_never_ends_is_given_up(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /li")
        begin = time.monotonic()
        assert b" 200 OK" in read_all(connection)
        assert time.monotonic() - begin < 8


@pytest.mark.parametrize("body", [b"", b'{"q": "a'])
def test_a_body_that_never_ends_gets_408(port: int, body: bytes) -> None:
    with connect(port) as connection:
        connection.sendall(HEAD + body)
        answer = connection.recv(65536)
        assert b" 408 Request Timeout" in answer
        assert b'"code":"request_timeout"' in answer


def test_a_connection_is_kept_alive_meanwhile(port: int) -> None:
    with connect(port) as connection:
        for _ in range(4):
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b" 200 OK" in connection.recv(65536)
            time.sleep(TIMEOUT_S * 0.6)


def test_a_reader_that_stops_is_cancelled(port: int, streams: Streams) -> None:
    before = streams.ended
    with connect(port) as connection:
        connection.sendall(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(4096)
        time.sleep(TIMEOUT_S / 2)
        assert streams.ended == before
        wait_until(lambda: streams.ended == before + 1, 10)


def test_a_slow_reader_that_goes_on_is_not(port: int, streams: Streams) -> None:
    before = streams.ended
    with connect(port) as connection:
        connection.sendall(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        end = time.monotonic() + 4 * TIMEOUT_S
        while time.monotonic() < end:
            for _ in range(40):
                assert connection.recv(65536)
            time.sleep(TIMEOUT_S / 20)
        assert streams.ended == before


def test_a_head_without_bound_is_refused_and_its_connection_closed(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            connection.sendall((b"X: " + b"y" * 1000 + b"\r\n") * 20_000)


def test_a_long_head_is_refused_in_words(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"GET /livez?" + b"y" * MOST_HEAD_BYTES)
        answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert str(MOST_HEAD_BYTES).encode() in answer


def test_heads_up_to_the_bound_are_read_one_after_the_other(port: int) -> None:
    with connect(port) as connection:
        for _ in range(3):
            head = b"GET /livez HTTP/1.1\r\nHost: x\r\nX: " + b"y" * (MOST_HEAD_BYTES - 1000)
            connection.sendall(head + b"\r\n\r\n")
            assert b" 200 OK" in connection.recv(65536)


@pytest.mark.parametrize(
    "head",
    [
        b"rubbish\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost x\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "GET /liv\u00e9z HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
        b"GET /livez HTTP/1.1\r\nHost: x\r\n X: folded\r\n\r\n",
    ],
)
def test_what_is_not_http_gets_400(port: int, head: bytes) -> None:
    with connect(port) as connection:
        connection.sendall(head)
        assert b" 400 Bad Request" in read_all(connection)


def test_requests_sent_at_once_are_answered_in_order(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(
            b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
            b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
            b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        answer = read_all(connection)
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"404", b"200"]
