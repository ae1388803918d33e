"""Telling requests on one path apart by the fields of their bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from starlette.types import Message, Receive, Scope, Send

from serving.errors import RequestTimeoutError
from serving.server.http.body import ByBody

SHARED = {"/one": {"/other": frozenset({"a", "b"}), "/third": frozenset({"c"})}}
LIMIT = 50
JSON_TYPE = "application/json; charset=utf-8"


def chunks(*parts: bytes) -> list[Message | Exception]:
    last = len(parts) - 1
    return [
        {"type": "http.request", "body": part, "more_body": number < last}
        for number, part in enumerate(parts)
    ]


def passed(
    arriving: Sequence[Message | Exception],
    *,
    method: str = "POST",
    path: str = "/one",
    content_type: str = JSON_TYPE,
    length: int = 0,
) -> tuple[str, list[Message | str]]:
    """The path that a request goes on to, and what is received there."""
    left = list(arriving)
    received: list[Message | str] = []
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [
            (b"content-type", content_type.encode()),
            (b"content-length", str(length).encode()),
        ],
    }

    async def receive() -> Message:
        each = left.pop(0)
        if isinstance(each, Exception):
            raise each
        return each

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        for _ in arriving:
            try:
                received.append(await receive())
            except RequestTimeoutError as error:
                received.append(str(error))

    async def send(_: Message) -> None:
        raise AssertionError

    asyncio.run(ByBody(app, SHARED, LIMIT)(scope, receive, send))
    return scope["path"], received  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"a": 1, "b": 2}', "/other"),
        (b'\xef\xbb\xbf{"a": 1, "b": 2}', "/other"),
        (b'{"b": 2, "x": 0, "a": null}', "/other"),
        (b'{"c": 1}', "/third"),
        (b'{"a": 1}', "/one"),
        (b'{"a": "\\"b\\""}', "/one"),
        (b'{"x": {"a": 1, "b": 2}}', "/one"),
        (b'["a", "b"]', "/one"),
        (b'{"a": 1, "b": ', "/one"),
        (b'{"a": NaN, "b": 1}', "/one"),
        (b"\xff", "/one"),
        (b"", "/one"),
    ],
)
def test_the_fields_of_the_body_tell_the_path(body: bytes, path: str) -> None:
    for arriving in (chunks(body), chunks(body[:7], body[7:]), chunks(b"", body, b"")):
        assert passed(arriving) == (path, arriving)


def test_only_a_post_of_json_to_a_shared_path_is_looked_at() -> None:
    arriving = chunks(b'{"a": 1, "b": 2}')
    assert passed(arriving, method="PUT") == ("/one", arriving)
    assert passed(arriving, path="/two") == ("/two", arriving)
    assert passed(arriving, content_type="text/plain") == ("/one", arriving)
    assert passed(arriving, content_type="APPLICATION/JSON") == ("/other", arriving)


def test_a_body_over_the_limit_is_not_waited_for() -> None:
    body = b'{"a": 1, "b": 2}'.ljust(LIMIT + 1)
    arriving = chunks(body, b"more", b"of it")
    assert passed(arriving) == ("/other", arriving)
    assert passed(chunks(b" " * (LIMIT + 1), body))[0] == "/one"


def test_a_body_that_says_it_is_over_the_limit_goes_on_before_it_arrives() -> None:
    late = RequestTimeoutError("too late")
    assert passed([late], length=LIMIT + 1) == ("/one", ["too late"])
    arriving = chunks(b'{"a": 1, "b": 2}')
    assert passed(arriving, length=LIMIT + 1)[0] == "/one"
    assert passed(arriving, length=LIMIT)[0] == "/other"


def test_a_reader_of_a_body_that_does_not_come_gets_an_error() -> None:
    [first, _] = chunks(b'{"a": 1', b"")
    late = RequestTimeoutError("too late")
    assert passed([first, late]) == ("/one", [first, "too late"])
    gone: Message = {"type": "http.disconnect"}
    assert passed([first, gone]) == ("/one", [first, gone])
