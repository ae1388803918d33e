from __future__ import annotations

import json

import pytest

from serving.documents.unit import ReadingWishes
from serving.errors import DocumentError, InvalidOptionError
from tests.unit.serving.documents.fakes import written


def of(content: str, *keys: str, name: str = "a.jsonl") -> str:
    """A file with the strings of these keys in capitals."""
    return written(content.encode(), name, wishes=ReadingWishes(columns=keys)).content.decode()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            '{"id": 1, "text": "Haus"}\n{"text":"Tor", "id": "b"}\n',
            '{"id": 1, "text": "HAUS"}\n{"text":"TOR", "id": "b"}\n',
        ),
        ('{"text": "a\\nb\\u00e4\\""}\r\n\r\n', '{"text": "A\\nB\\u00c4\\""}\r\n\r\n'),
        ('{"text": "ä\u2028b", "c": "\\/x"}', '{"text": "Ä\u2028B", "c": "\\/x"}'),
        ('{"c": "x"}\n{"text": null}\n{"text": "a"}', '{"c": "x"}\n{"text": null}\n{"text": "A"}'),
        ('{"text": ["a", "b"], "c": ["d"]}', '{"text": ["A", "B"], "c": ["d"]}'),
        ('{"t": {"text": "a"}, "text": "b"}', '{"t": {"text": "a"}, "text": "B"}'),
    ],
    ids=["keys", "escapes", "other letters", "missing", "lists", "deeper"],
)
def test_a_key_is_translated_and_all_else_stays_to_the_byte(source: str, expected: str) -> None:
    assert of(source, "text") == expected


def test_keys_within_keys_have_dots_between() -> None:
    line = {"messages": [{"role": "user", "content": "ja"}, {"role": "x", "content": "nein"}]}
    found = json.loads(of(json.dumps(line), "messages.content", name="a.ndjson"))
    assert [each["content"] for each in found["messages"]] == ["JA", "NEIN"]
    assert [each["role"] for each in found["messages"]] == ["user", "x"]


@pytest.mark.parametrize("keys", [(), ("body",), ("text", "body"), ("1",)])
def test_a_key_that_there_is_not_is_refused_with_those_that_there_are(keys: tuple[str]) -> None:
    with pytest.raises(InvalidOptionError, match=r"choose with --columns .* has 'text', 'a\.b'$"):
        of('{"text": "Haus"}\n{"a": {"b": "c"}}\n', *keys)


def test_a_line_that_is_no_json_is_named() -> None:
    with pytest.raises(DocumentError, match="line 3: the file is not JSON"):
        of('{"text": "a"}\n\n{"text": \n', "text")


def test_an_empty_file_stays() -> None:
    assert of("", "text") == of("") == ""
