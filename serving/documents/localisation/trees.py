"""Messages in trees: JSON, as in i18next, and ARB, of Flutter."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from serving.documents.raw.encoding import decoded
from serving.documents.texts.slots import Slot, file_with_slots
from serving.documents.unit import FileInUnits, Unit
from serving.errors import DocumentError

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]')
_IS_KEY = re.compile(r"\s*:")


@dataclass(frozen=True)
class JsonString:
    """A string that is a value."""

    keys: tuple[str, ...]
    """The keys of the objects around the string, from the outermost on."""
    begin: int
    end: int
    """Position of the end, after the closing quote."""
    text: str


def read_json(content: bytes) -> FileInUnits:
    """Read every string that is a value; keys stay."""
    return _read(content, of_arb=False)


def read_arb(content: bytes) -> FileInUnits:
    """Read Flutter's messages; entries that begin with `@` describe messages, and stay."""
    return _read(content, of_arb=True)


def _read(content: bytes, *, of_arb: bool) -> FileInUnits:
    source = decoded(content)
    ascii = source.text.isascii() and "\\u" in source.text
    slots = [
        Slot(
            string.begin,
            string.end,
            Unit(string.text),
            lambda text: json.dumps(text, ensure_ascii=ascii),
        )
        for string in json_strings(source.text)
        if not (of_arb and string.keys[0].startswith("@"))
    ]
    return file_with_slots(source, slots)


def json_strings(text: str) -> Iterator[JsonString]:
    """The strings that are values, in order. Raises DocumentError for text that is not JSON."""
    if not text.strip():
        return
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"the file is not JSON: {error}") from error
    keys: list[str] = []
    pending = ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in "{[":
            keys.append(pending)
            pending = ""
        elif token in "}]":
            keys.pop()
        elif token == ",":
            pending = ""
        elif token.startswith('"'):
            if _IS_KEY.match(text, match.end()):
                pending = json.loads(token)
            else:
                yield JsonString((*keys[1:], pending), *match.span(), json.loads(token))
