"""Parses forms: of the query, and of urlencoded and multipart bodies."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from urllib.parse import parse_qsl

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, parse_form

from serving.errors import MediaTypeError, RequestError

URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"

Fields = dict[str, "str | list[str | Fields]"]
"""The fields of a form by their names: texts, lists of texts, and lists of objects with fields."""

_MAX_FIELDS = 10_000
_IN_LIST = re.compile(r"(\w+)\[(\d{0,5})\]")
"""Names of list items from some clients, including PHP: `text[]`, `text[0]`."""
_IN_OBJECT = re.compile(r"(\w+)\[(\d{1,5})\]\.(\w+)")
"""Names of the fields of objects in a list, from DeepL's clients: `dictionaries[0].entries`."""
_LINE_END = re.compile(r"\r\n?")


def clean_lines(text: str) -> str:
    """Form text with line ends \\n and none at the end; browsers send \\r\\n."""
    return _LINE_END.sub("\n", text).removesuffix("\n")


def form_fields(query: bytes, body: bytes, content_type: str) -> Fields:
    """The fields of the query and then of the body. A repeated field is a list, and so is one
    written `name[]` or `name[0]`, in the order of the numbers. `name[0].field` is the field of an
    object in such a list.

    Raises RequestError if they are not a form in UTF-8, or contain a file.
    """
    try:
        pairs = _urlencoded(query)
        if content_type.lower().startswith(MULTIPART):
            pairs += _multipart(body, content_type)
        elif body.lstrip().startswith(b"{"):  # curl declares every body as a form by default
            raise MediaTypeError(
                f"the body looks like JSON but is declared as {URLENCODED}; send Content-Type: "
                "application/json"
            )
        else:
            pairs += _urlencoded(body)
    except (ValueError, FormParserError) as error:
        raise RequestError(f"the body and the query must be forms in UTF-8: {error}") from error
    return _gathered(pairs)


def _urlencoded(data: bytes) -> list[tuple[str, str]]:
    return parse_qsl(
        data.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS
    )


def _multipart(body: bytes, content_type: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []

    def add(field: Field) -> None:
        pairs.append(((field.field_name or b"").decode(), (field.value or b"").decode()))

    def refuse(_: File) -> None:
        raise RequestError("no field may be a file; send its text")

    parse_form({"Content-Type": content_type.encode()}, io.BytesIO(body), add, refuse)
    return pairs


def _gathered(pairs: Iterable[tuple[str, str]]) -> Fields:
    lists: dict[str, list[tuple[int, str | Fields]]] = {}
    objects: dict[tuple[str, int], list[tuple[str, str]]] = {}
    listed = set()
    for given, value in pairs:
        if within := _IN_OBJECT.fullmatch(given):
            objects.setdefault((within[1], int(within[2])), []).append((within[3], value))
            continue
        found = _IN_LIST.fullmatch(given)
        name, number = (found[1], found[2]) if found else (given, "")
        if found:
            listed.add(name)
        values = lists.setdefault(name, [])
        # Items without a number come after the item before them.
        following = values[-1][0] + 1 if values else 0
        values.append((int(number) if number else following, value))
    for (name, place), parts in objects.items():
        lists.setdefault(name, []).append((place, _gathered(parts)))
    fields: Fields = {}
    for name, numbered in lists.items():
        items = [item for _, item in sorted(numbered, key=lambda each: each[0])]
        first, *others = items
        alone = not others and name not in listed
        fields[name] = first if alone and isinstance(first, str) else items
    return fields
