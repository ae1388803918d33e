"""CSV and TSV: cells at their places in the file, so that all others stay as they were."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from serving.documents.raw.encoding import decoded
from serving.documents.tables.columns import numbered, places_of, unknown_columns
from serving.documents.texts.slots import Slot, file_with_slots
from serving.documents.unit import FileInUnits, ReadingWishes, Unit
from serving.errors import DocumentError

_DELIMITERS = ",;\t|"
_NAMED = re.compile(r'("?)sep=(?P<delimiter>[^"\r\n])\1(?:\r\n?|\n|\Z)', re.IGNORECASE)
"""Pattern of the line by which a file tells Excel its separator."""
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_HEADER_CHARACTERS = 100_000
"""Number of characters that are examined to find the separator of the cells."""
_BREAKS = re.compile(r"[\t\r\n]+")


class _Cell(NamedTuple):
    row: int
    column: int
    begin: int
    end: int
    """The span in the file, with the quotation marks around it."""
    quoted: bool


def read_csv(content: bytes, wishes: ReadingWishes) -> FileInUnits:
    """Read the chosen columns of CSV (RFC 4180). The separator is the most frequent one in the
    first row, a comma, a semicolon, a tab or a bar, or what the line `sep=` before it names.

    If columns are chosen by name, the first row contains the names, and stays. Raises DocumentError
    for a quotation mark that is not closed, and InvalidOptionError if no column is chosen, or none
    of the file's.
    """
    source = decoded(content)
    named = _NAMED.match(source.text)
    if named:
        delimiter = named["delimiter"]
    else:
        first = _QUOTED.sub("", source.text[:_HEADER_CHARACTERS]).lstrip("\r\n")
        line = re.split(r"[\r\n]", first, maxsplit=1)[0]
        delimiter = max(_DELIMITERS, key=line.count)
    begin = named.end() if named else 0
    cells = functools.partial(_cells, source.text, delimiter, begin, strict=True)
    write = _quoted_where_needed(delimiter)
    return file_with_slots(source, list(_slots(source.text, cells, wishes, write)))


def read_tsv(content: bytes, wishes: ReadingWishes) -> FileInUnits:
    """Read the chosen columns of TSV, like those of CSV. A cell is quoted if it begins and ends
    with quotation marks, as spreadsheets write it; any other mark is part of the text."""
    source = decoded(content)
    cells = functools.partial(_cells, source.text, "\t", strict=False)
    return file_with_slots(source, list(_slots(source.text, cells, wishes, _in_line)))


def _slots(
    text: str,
    cells: Callable[[], Iterator[_Cell]],
    wishes: ReadingWishes,
    write: Callable[[str], str],
) -> Iterator[Slot]:
    first = itertools.takewhile(lambda cell: cell.row == 0, cells())
    names = [_value(text, cell) for cell in first]
    if not names:
        return
    places, by_name = places_of(wishes.columns, names)
    widest = 0
    for cell in cells():
        widest = max(widest, cell.column + 1)
        if cell.column in places and not (by_name and cell.row == 0):
            unit = Unit(_value(text, cell))
            yield Slot(cell.begin, cell.end, unit, _quoted if cell.quoted else write)
    if max(places) >= widest:
        raise unknown_columns(wishes.columns, numbered(names))


def _cells(text: str, delimiter: str, at: int = 0, *, strict: bool) -> Iterator[_Cell]:
    """Yield every cell from a position on, in order; blank lines have none. If `strict`, raises
    DocumentError for a cell that begins with a quotation mark which is not closed at the cell's
    end."""
    mark = re.escape(delimiter)
    pattern = re.compile(
        rf'(?:(?P<quoted>"(?:[^"]++|"")*+")(?={mark}|[\r\n]|\Z)|(?P<bare>[^{mark}\r\n]*))'
        rf"(?P<next>{mark}|\r\n|\r|\n|\Z)"
    )
    row = column = 0
    while at < len(text):
        found = pattern.match(text, at)
        assert found  # a bare cell may be empty
        begin, end = at, found.start("next")
        quoted = found["quoted"] is not None
        if strict and not quoted and text.startswith('"', begin):
            raise DocumentError(
                f"row {row + 1}, column {column + 1}: a quotation mark must be closed at the end "
                f"of the cell, got {text[begin : begin + 40]!r}; close it, and double those within"
            )
        at = found.end()
        delimited = found["next"] == delimiter
        if column or delimited or end > begin:
            yield _Cell(row, column, begin, end, quoted)
            row, column = (row, column + 1) if delimited else (row + 1, 0)


def _value(text: str, cell: _Cell) -> str:
    if cell.quoted:
        return text[cell.begin + 1 : cell.end - 1].replace('""', '"')
    return text[cell.begin : cell.end]


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _quoted_where_needed(delimiter: str) -> Callable[[str], str]:
    """Format a cell that had no quotation marks; it gets them if it needs them now."""
    needed = re.compile(f'[{re.escape(delimiter)}"\r\n]')
    return lambda text: _quoted(text) if needed.search(text) else text


def _in_line(text: str) -> str:
    """Format a cell of TSV without quotation marks; a tab in it would begin another cell, so it
    becomes a space."""
    return _BREAKS.sub(" ", text)
