"""Slow clients, over real sockets and uvicorn."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
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


BODY = b'{"q": "Hallo", "source": "de", "target": "en"}'
CHUNKED = b"5\r\n" + BODY[:5] + b"\r\n%x\r\n" % len(BODY[5:]) + BODY[5:] + b"\r\n0\r\n\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAA\r\n"


def asking(headers: bytes, body: bytes, method: bytes = b"POST /translate") -> bytes:
    """A request that may ask for another protocol."""
    head = method + b" HTTP/1.1\r\nHost: x\r\nX-Empty:\r\nContent-Type: application/json\r\n"
    return head + headers + b"\r\n" + body


def answers(data: bytes) -> list[tuple[bytes, bool]]:
    """The status of each answer, and whether it has the translation."""
    found = re.findall(rb"HTTP/1\.1 (\d+)(.*?)(?=HTTP/1\.1 |\Z)", data, re.DOTALL)
    return [(status, b'"translatedText":"Hallo"' in rest) for status, rest in found]


LAST = b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        UPGRADE,
        b"Connection: keep-alive\r\nConnection: upgrade\r\nUpgrade: TLS/1.0\r\nupgrade: h2c\r\n",
        b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n",
    ],
)
@pytest.mark.parametrize(
    ("framing", "body"), [(LENGTH, BODY), (b"Transfer-Encoding: chunked\r\n", CHUNKED)]
)
def test_a_wish_for_another_protocol_is_ignored(
    port: int, headers: bytes, framing: bytes, body: bytes
) -> None:
    request = asking(headers + framing, body)
    cuts = [*range(1, len(request), 23), request.index(body), len(request)]
    for cut in cuts:
        with connect(port) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(request[:cut])
            time.sleep(0.005)
            connection.sendall(request[cut:] + request + LAST)
            assert answers(read_all(connection)) == [(b"200", True)] * 2 + [(b"404", False)], cut


def test_it_is_ignored_where_a_client_waits_before_it_sends_the_body(port: int) -> None:
    request = asking(UPGRADE + LENGTH + b"Expect: 100-continue\r\n", b"")
    with connect(port) as connection:
        for _ in range(2):
            connection.sendall(request)
            assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(BODY)
            assert answers(connection.recv(65536)) == [(b"200", True)]


def test_it_is_ignored_where_there_is_no_body(port: int) -> None:
    requests = asking(UPGRADE, b"", b"GET /livez") * 3
    last = asking(b"Connection: close, Upgrade\r\nUpgrade: x\r\n" + LENGTH, BODY)
    with connect(port) as connection:
        connection.sendall(requests + last)
        assert answers(read_all(connection)) == [(b"200", False)] * 3 + [(b"200", True)]


@pytest.mark.parametrize(
    "headers",
    [
        LENGTH + b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked, gzip\r\n",
        b"Content-Length: x\r\n",
    ],
)
def test_what_is_not_http_is_refused_with_it_too(port: int, headers: bytes) -> None:
    with connect(port) as connection:
        connection.sendall(asking(UPGRADE + headers, BODY + LAST))
        assert answers(read_all(connection)) == [(b"400", False)]


@pytest.mark.parametrize("headers", [b"", UPGRADE])
def test_there_are_no_tunnels(port: int, headers: bytes) -> None:
    with connect(port) as connection:
        connection.sendall(asking(headers, LAST, b"CONNECT x:80"))
        assert answers(read_all(connection)) == [(b"400", False)]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_may_ask_for_http_2(port: int) -> None:
    command = ["curl", "-s", "--http2", "-d", BODY.decode(), "-H", "Content-Type: application/json"]
    found = subprocess.run(
        [*command, f"http://127.0.0.1:{port}/translate"],
        capture_output=True,
        check=True,
        timeout=20,
    )
    assert b'"translatedText":"Hallo"' in found.stdout
