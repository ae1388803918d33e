"""The lines of a batch: read from its file, and checked before the first is answered."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pydantic_core

from serving.server.http.settings import Settings, variable
from serving.server.work.batches.records import BatchFault

_MOST_FAULTS = 50
_MAX_ID = 512
_MARGIN = 2048
"""Largest number of bytes of a line besides its body."""


@dataclass(frozen=True)
class BatchLines:
    """The lines of a checked file."""

    file: BinaryIO
    """The file, open as long as lines are read."""
    places: Sequence[tuple[int, int]]
    """Begin and length of each line, in bytes."""
    custom_ids: Sequence[str]

    def body(self, number: int) -> dict[str, Any]:
        """The request in a line; called in threads."""
        begin, size = self.places[number]
        line = os.pread(self.file.fileno(), size, begin)
        body = pydantic_core.from_json(_bare(line))["body"]
        assert isinstance(body, dict)
        return body


def read_lines(
    file: BinaryIO, endpoint: str, settings: Settings
) -> tuple[BatchLines, list[BatchFault]]:
    """The lines of a file that was just opened, and their faults."""
    faults: list[BatchFault] = []
    places: list[tuple[int, int]] = []
    numbers: dict[str, int] = {}
    for number, begin, line in _numbered(file):
        if len(places) == settings.max_batch_lines:
            message = (
                f"a batch must have at most {settings.max_batch_lines} lines "
                f"({variable('max_batch_lines')}); divide it"
            )
            faults.append(BatchFault("too_many_lines", message))
            break
        custom_id, fault = _checked(line, number, endpoint, settings.max_body_bytes)
        if fault is None and custom_id in numbers:
            message = f"custom_id must differ from that of line {numbers[custom_id]}"
            fault = BatchFault("duplicate_custom_id", message, number, "custom_id")
        if fault is not None:
            faults.append(fault)
            if len(faults) == _MOST_FAULTS:
                break
        numbers.setdefault(custom_id, number)
        places.append((begin, len(line)))
    if not places and not faults:
        faults.append(BatchFault("empty_file", "the file must have at least one line, got none"))
    return BatchLines(file, places, list(numbers)), faults


def _numbered(file: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """The lines that are not blank, each with its number and the position where it begins."""
    begin = 0
    for number, line in enumerate(file, start=1):
        if line.strip():
            yield number, begin, line
        begin += len(line)


def _checked(
    line: bytes, number: int, endpoint: str, max_bytes: int
) -> tuple[str, BatchFault | None]:
    """The `custom_id` of a line, and the line's fault, if there is one."""

    def fault(code: str, message: str, param: str | None = None) -> tuple[str, BatchFault]:
        return "", BatchFault(code, message, number, param)

    if len(line) > max_bytes + _MARGIN:
        limit = f"{max_bytes} bytes ({variable('max_body_bytes')})"
        return fault("line_too_long", f"the body of a line must have at most {limit}", "body")
    try:
        found = pydantic_core.from_json(_bare(line), allow_inf_nan=False)
    except ValueError as error:
        return fault("invalid_json_line", f"a line must be valid JSON in UTF-8: {error}")
    if not isinstance(found, dict):
        return fault("invalid_json_line", "a line must be a JSON object")
    custom_id = found.get("custom_id")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= _MAX_ID:
        message = f"custom_id must be a text of 1 to {_MAX_ID} characters"
        return fault("invalid_custom_id", message, "custom_id")
    if found.get("method") != "POST":
        return fault("invalid_method", "method must be 'POST'", "method")
    if found.get("url") != endpoint:
        message = f"url must be {endpoint!r}, the endpoint of the batch"
        return fault("invalid_url", message, "url")
    body = found.get("body")
    if not isinstance(body, dict):
        return fault("invalid_body", "body must be an object", "body")
    if body.get("stream"):
        return fault("invalid_body", "body must not have stream: nobody reads it", "body")
    return custom_id, None


def _bare(line: bytes) -> bytes:
    return line.removeprefix(codecs.BOM_UTF8)
