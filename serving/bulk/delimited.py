"""Delimited tables: CSV, whose cells may be quoted (RFC 4180), and TSV, which has no quotes.

Cells are written back as they were read; only the quotes of CSV are set again where needed.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving.errors import InvalidTextError
from serving.lines import LineEncodingError, decode_line


@dataclass(frozen=True)
class Header:
    """The parsed header of a table."""

    names: tuple[str, ...]
    quoted: bool
    """Whether cells may be quoted (CSV)."""


def csv_records(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of each record; lines are joined until the quotes are closed."""
    record, open_quote = b"", False
    for line in lines:
        record += line
        if line.count(b'"') % 2:
            open_quote = not open_quote
        if not open_quote:
            yield record
            record = b""
    if record:
        yield record


def header_of(path: Path, line: bytes, quoted: bool) -> Header:
    """Parse the first line of a table; raises InvalidTextError if it names no column or one
    twice."""
    try:
        text = decode_line(line.removeprefix(codecs.BOM_UTF8), 1)
    except LineEncodingError as error:
        raise InvalidTextError(f"{path}: {error}") from error
    names = tuple(_cells(text, quoted=quoted))
    if not text.strip() or len(set(names)) != len(names):
        raise InvalidTextError(
            f"{path}: the first line must name the columns, each another name, got {text!r}"
        )
    return Header(names, quoted)


def delimited_row(line: str, header: Header) -> list[str]:
    """The cells of a record, without its line end."""
    return _cells(line, quoted=header.quoted)


def record_line(cells: Sequence[str], *, quoted: bool) -> str:
    """Format cells as a line, with its end. TSV: tabs and line breaks in a cell become spaces."""
    if not quoted:
        return "\t".join(" ".join(cell.splitlines()).replace("\t", " ") for cell in cells) + "\n"
    buffer = io.StringIO()
    csv.writer(buffer).writerow(cells)  # it quotes cells that hold a character of its line ends
    return buffer.getvalue().removesuffix("\r\n") + "\n"


def _cells(line: str, *, quoted: bool) -> list[str]:
    if not quoted:
        return line.split("\t")
    return next(csv.reader(io.StringIO(line, newline="")), [])
