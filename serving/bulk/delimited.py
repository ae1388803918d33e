"""Tables of lines: CSV, whose cells may stand between quotes (RFC 4180), and TSV, which has none.

Cells are read and written again as they are; only the quotes of CSV are set anew where needed.
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
    """What the first line of a table says."""

    names: tuple[str, ...]
    quoted: bool
    """Whether cells may stand between quotes: of CSV."""


def csv_records(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of each row: lines are joined until quotes are closed."""
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
    """The columns that a first line names; raises InvalidTextError where it names none, or two
    alike."""
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
    """The cells of a row without its end."""
    return _cells(line, quoted=header.quoted)


def record_line(cells: Sequence[str], *, quoted: bool) -> str:
    """Cells as a row, with its end. In TSV, tabs and ends of lines in a cell become blanks."""
    if not quoted:
        return "\t".join(" ".join(cell.splitlines()).replace("\t", " ") for cell in cells) + "\n"
    buffer = io.StringIO()
    csv.writer(buffer).writerow(cells)  # it quotes cells that hold a character of its line ends
    return buffer.getvalue().removesuffix("\r\n") + "\n"


def _cells(line: str, *, quoted: bool) -> list[str]:
    if not quoted:
        return line.split("\t")
    return next(csv.reader(io.StringIO(line, newline="")), [])
