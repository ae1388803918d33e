"""Delimited tables: CSV, whose cells may be quoted (RFC 4180), and TSV, which has no quotes.

Cells are written back as they were read; only the quotes of CSV are set again where needed.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving.errors import InvalidTextError
from serving.lines import LineEncodingError, decode_line

_CELLS = re.compile(rb'(?:"(?:[^"]|"")*+(?:"|(?P<open>\Z)))?[^,]*(?:,|\Z)')
_CELL = re.compile(r'(?:"(?P<quoted>(?:[^"]|"")*+)")?(?P<rest>[^,]*)(?P<next>,|\Z)')
"""A cell of CSV: what stands between its quotes, and what follows them, or the whole cell."""


@dataclass(frozen=True)
class Header:
    """The parsed header of a table."""

    names: tuple[str, ...]
    quoted: bool
    """Whether cells may be quoted (CSV)."""


def csv_records(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of each record; lines are joined until the quotes are closed. Only a quotation mark
    at the beginning of a cell opens quotes: that of `5" pipe` is part of the text.

    Raises InvalidTextError if the quotes of the last record are not closed.
    """
    record, open_quote = list[bytes](), False
    number = 0
    for line in lines:
        record.append(line)
        if b'"' in line:
            open_quote = _ends_in_quotes(b'"' + line if open_quote else line)
        if not open_quote:
            yield b"".join(record)
            record, number = [], number + 1
    if record:
        raise InvalidTextError(
            f"row {number + 1} of the file has a cell whose quotation mark is not closed, got "
            f"{record[0][:40]!r}; close it, and double those within the cell"
        )


def _ends_in_quotes(line: bytes) -> bool:
    return any(cell["open"] is not None for cell in _CELLS.finditer(line))


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
        return "\t".join(cell.replace("\n", " ").replace("\t", " ") for cell in cells) + "\n"
    buffer = io.StringIO()
    csv.writer(buffer).writerow(cells)  # it quotes cells that hold a character of its line ends
    return buffer.getvalue().removesuffix("\r\n") + "\n"


def _cells(line: str, *, quoted: bool) -> list[str]:
    """The cells of a record. `csv` is not used: it ends a record at a carriage return that is not
    between quotes, and refuses long cells."""
    if not quoted:
        return line.split("\t")
    cells, place = list[str](), 0
    while line:
        found = _CELL.match(line, place)
        assert found  # every part may be empty
        cells.append((found["quoted"] or "").replace('""', '"') + found["rest"])
        if not found["next"]:
            break
        place = found.end()
    return cells
