"""Forms: whatever bytes come, they are fields or an error that can be shown."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from urllib.parse import urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.errors import RequestError
from serving.server.http.form import MULTIPART, URLENCODED, Fields, form_fields

BOUNDARY = f"{MULTIPART}; boundary=x"
NAMES = st.text(st.characters(exclude_characters="[", codec="utf-8"), max_size=5)
"""With a bracket they may be those of lists."""
PAIRS = st.lists(st.tuples(NAMES, st.text(max_size=10)), max_size=5)
SCRAPS = [
    *(b"--x", b"--", b"\r\n", b"\r", b"\n", b"=", b"&", b";", b'"', b"%", b"\0", b"\xff", b"a"),
    *(b"Content-Disposition", b": form-data", b"; name=", b'"q"', b"; filename=", b"{"),
    *(b"Content-Transfer-Encoding: base64", b"Content-Type: text/plain", b"quoted-printable"),
]


def fields_of(pairs: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    return {name: [value for other, value in pairs if other == name] for name, _ in pairs}


def as_lists(fields: Fields) -> dict[str, list[str | Fields]]:
    return {name: [v] if isinstance(v, str) else v for name, v in fields.items()}


@given(PAIRS, PAIRS)
def test_pairs_of_query_and_body_come_back(
    query: list[tuple[str, str]], body: list[tuple[str, str]]
) -> None:
    found = form_fields(urlencode(query).encode(), urlencode(body).encode(), URLENCODED)
    assert as_lists(found) == fields_of(query + body)


@given(st.lists(st.tuples(st.sampled_from(["q", "größe"]), st.binary(max_size=20))))
def test_multipart_comes_back(pairs: list[tuple[str, bytes]]) -> None:
    text = [(name, value.hex() + "\r\n--\r\nü") for name, value in pairs]
    parts = "".join(
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in text
    )
    found = form_fields(b"", f"{parts}--x--\r\n".encode(), BOUNDARY)
    assert as_lists(found) == fields_of(text)


@pytest.mark.parametrize("content_type", [URLENCODED, BOUNDARY, MULTIPART, ""])
@given(data=st.lists(st.one_of(st.sampled_from(SCRAPS), st.binary(max_size=3)), max_size=20))
@example(data=[b"--x\r\nContent-Disposition: form-data\r\n\r\na\r\n--x--\r\n"])
@example(
    data=[
        b'--x\r\nContent-Disposition: form-data; name="q"\r\nContent-Transfer-Encoding: base64',
        b"\r\n\r\n%%%\r\n--x--\r\n",
    ]
)
def test_scraps_are_fields_or_an_error(content_type: str, data: list[bytes]) -> None:
    for query, body in ((b"", b"".join(data)), (b"".join(data), b"")):
        fields: Fields = {}
        with contextlib.suppress(RequestError):
            fields = form_fields(query, body, content_type)
        for value in as_lists(fields).values():
            assert all(isinstance(text, str) for text in value)


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        (b"q[]=a", {"q": ["a"]}),
        (b"q[0]=a&q[1]=b", {"q": ["a", "b"]}),
        (b"q[1]=b&q[0]=a", {"q": ["a", "b"]}),
        (b"q[10]=b&q[9]=a", {"q": ["a", "b"]}),
        (b"q[3]=a&q[]=b&q[]=c&q[4]=d", {"q": ["a", "b", "d", "c"]}),
        (b"q[0]=a&q[0]=b", {"q": ["a", "b"]}),  # none is lost
        (b"q=a&q[]=b", {"q": ["a", "b"]}),
        (b"%71%5B%5D=a", {"q": ["a"]}),
        (b"q[x]=a&q[1=b&q1]=c&[0]=d&q[0][a]=e", None),  # other names
        (b"q[123456]=a&q[-1]=b", None),
    ],
)
def test_items_of_a_list_may_be_numbered(query: bytes, fields: Fields | None) -> None:
    pairs = [part.split("=") for part in query.decode().split("&")]
    assert form_fields(query, b"", "") == (dict(pairs) if fields is None else fields)


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        (b"q[0].a=x&q[0].b=y", {"q": [{"a": "x", "b": "y"}]}),
        (b"n=1&q[7].a=y&q[00].a=x&q[7].b=z", {"n": "1", "q": [{"a": "x"}, {"a": "y", "b": "z"}]}),
        (b"q[0].a=x&q[0].a=y", {"q": [{"a": ["x", "y"]}]}),  # none is lost
        (b"q[1].a=x&q[0]=y&q[3]=z", {"q": ["y", {"a": "x"}, "z"]}),
        (b"q%5B0%5D.a=%09", {"q": [{"a": "\t"}]}),
        (b"q[99999].a=x", {"q": [{"a": "x"}]}),
        (b"q[0].a.b=x&q[0].a[0]=y&q[].a=z&q[123456].a=v&q.a=w", None),  # other names
    ],
)
def test_items_may_be_objects(query: bytes, fields: Fields | None) -> None:
    pairs = [part.split("=") for part in query.decode().split("&")]
    assert form_fields(query, b"", "") == (dict(pairs) if fields is None else fields)


def test_there_may_be_as_many_objects_as_fields() -> None:
    def body(count: int) -> bytes:
        return b"&".join(b"q[%d].a=%d" % (99_999 - at, at) for at in range(count))

    found = form_fields(b"", body(10_000), URLENCODED)
    assert found["q"] == [{"a": str(at)} for at in reversed(range(10_000))]
    with pytest.raises(RequestError, match="Max number of fields exceeded"):
        form_fields(b"", body(10_001), URLENCODED)
