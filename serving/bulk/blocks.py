"""Cuts files of texts into blocks of rows; each block is read and written on its own.

The suffix decides the kind: `.jsonl` and `.ndjson` hold one JSON object per line, `.csv` and `.tsv`
a table whose first line names the columns, `.parquet` is Parquet, and any other file is plain text,
one row per line. All kinds but Parquet may be gzipped (`.gz`).
"""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq

from serving.bulk.delimited import Header, csv_records, delimited_row, header_of, record_line
from serving.errors import InvalidTextError
from serving.lines import LineEncodingError, decode_line

Kind = Literal["text", "jsonl", "csv", "tsv", "parquet"]
Form = Literal["text", "texts", "number"]
Result = str | list[str] | float | None
"""The result of a row: a translation, a list of translations, the log-probability of a given
translation, or None."""
_TYPES = {"text": pa.string(), "texts": pa.list_(pa.string()), "number": pa.float64()}
_SUFFIXES: dict[str, Kind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}


class RowBlock(NamedTuple):
    """A block of consecutive rows, read in one go."""

    number: int
    first: int
    """Index of the first row in the file, from 0."""
    rows: int
    start: int = 0
    """Text formats: byte offset of the first line. Parquet: index of the row group."""
    size: int = 0
    """Text formats: length in bytes, line ends included. Parquet: rows of the group before the
    block."""


@dataclass(frozen=True)
class Row:
    """One row of a file as it was read."""

    texts: tuple[str, ...] | None = None
    """The texts of the named columns; None if the row is not decoded."""
    value: Any = None
    """The whole JSONL object or the cells of the table row; the cells are written back."""
    line: str = ""
    """The JSONL object as it was written; it is written back with the result."""
    error: str = ""
    """The reason why the row cannot be read; empty if it can."""


def kind_of(path: Path) -> Kind:
    """The kind of a file, from its name."""
    name = path.with_suffix("") if is_compressed(path) else path
    return _SUFFIXES.get(name.suffix.lower(), "text")


def is_compressed(path: Path) -> bool:
    """Whether a file is gzipped, judged by its name."""
    return path.suffix.lower() == ".gz"


def open_bytes(path: Path, mode: Literal["rb", "wb"], like: Path) -> IO[bytes]:
    """Open a file; decompress it if `like`, the name it stands for, is that of a gzipped file."""
    return cast("IO[bytes]", gzip.open(path, mode)) if is_compressed(like) else path.open(mode)


def cut(path: Path, rows: int) -> list[RowBlock]:
    """The blocks of a file, in order, of at most `rows` rows each; raises InvalidTextError if the
    content is not Parquet or gzip though the name says so."""
    if kind_of(path) != "parquet":
        try:
            blocks = list(_line_blocks(path, rows))
        except (EOFError, gzip.BadGzipFile) as error:
            raise InvalidTextError(f"{path}: not a whole gzip file: {error}") from error
        # A table without rows still has its columns.
        return blocks or ([RowBlock(0, 0, 0)] if kind_of(path) in ("csv", "tsv") else [])
    file = _parquet(path)
    blocks = []
    first = 0
    for group in range(file.num_row_groups):
        held = file.metadata.row_group(group).num_rows
        for skipped in range(0, held, rows):
            count = min(rows, held - skipped)
            blocks.append(RowBlock(len(blocks), first, count, group, skipped))
            first += count
    return blocks or [RowBlock(0, 0, 0)]  # a table without rows still has its columns


def _line_blocks(path: Path, rows: int) -> Iterator[RowBlock]:
    number = first = count = start = size = 0
    with open_bytes(path, "rb", path) as file:
        records = _records(file, kind_of(path))
        if kind_of(path) in ("csv", "tsv"):
            start = len(next(records, b""))
        for record in records:
            count, size = count + 1, size + len(record)
            if count == rows:
                yield RowBlock(number, first, count, start, size)
                number, first, start, count, size = number + 1, first + count, start + size, 0, 0
    if count:
        yield RowBlock(number, first, count, start, size)


def _records(file: IO[bytes], kind: Kind) -> Iterator[bytes]:
    """The bytes of each row: one line, or several if a quoted CSV cell contains line breaks."""
    return csv_records(file) if kind == "csv" else iter(file)


def check_columns(path: Path, columns: Sequence[str], into: str) -> None:
    """Raise InvalidTextError if a table lacks a column, if a column holds no text, or if a column
    already has the name of the results."""
    if kind_of(path) in ("csv", "tsv"):
        _check_names(path, header_of(*_head(path)).names, columns, into)
    elif kind_of(path) == "parquet":
        schema = _parquet(path).schema_arrow
        _check_names(path, schema.names, columns, into)
        for column in columns:
            kind = schema.field(column).type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise InvalidTextError(
                    f"{path}: column {column!r} must be of strings, it is {kind}"
                )


def _check_names(path: Path, names: Sequence[str], columns: Sequence[str], into: str) -> None:
    for column in columns:
        if column not in names:
            raise InvalidTextError(
                f"{path}: no column {column!r}, there are {', '.join(names)}; name one with "
                "--column"
            )
    if into in names:
        raise InvalidTextError(f"{path}: there is a column {into!r} already; choose another --into")


def _head(path: Path) -> tuple[Path, bytes, bool]:
    """The file of a table, its first line, and whether its cells may be quoted."""
    kind = kind_of(path)
    with open_bytes(path, "rb", path) as file:
        return path, next(_records(file, kind), b""), kind == "csv"


def read(
    path: Path, block: RowBlock, columns: Sequence[str], into: str
) -> tuple[list[Row], pa.Table | None]:
    """Read the rows of a block, whose results go to `into`; for Parquet also the table of the
    block."""
    kind = kind_of(path)
    if kind == "parquet":
        table = _read_table(path, block)
        held = [table.column(name).to_pylist() for name in columns]
        texts = zip(*held, strict=True)
        return [Row(None if None in row else row) for row in texts], table
    with open_bytes(path, "rb", path) as file:
        file.seek(block.start)
        content = file.read(block.size)
    content = content if block.first else content.removeprefix(codecs.BOM_UTF8)
    header = header_of(*_head(path)) if kind in ("csv", "tsv") else None
    rows = []
    for number, record in enumerate(_records(BytesIO(content), kind), block.first + 1):
        try:
            text = decode_line(record, number)
        except LineEncodingError as error:
            rows.append(Row(error=str(error)))
            continue
        if header is not None:
            rows.append(_table_row(text, header, columns))
        elif kind == "jsonl":
            rows.append(_json_row(text, columns, into))
        else:
            rows.append(_row(text, columns))
    return rows, None


def _table_row(line: str, header: Header, columns: Sequence[str]) -> Row:
    cells = delimited_row(line, header)
    if not line.strip():
        return Row(value=cells)
    if len(cells) != len(header.names):
        wanted = f"the first line names {len(header.names)} columns, this one has {len(cells)}"
        return Row(value=cells, error=wanted)
    return Row(tuple(cells[header.names.index(column)] for column in columns), cells)


def _row(line: str, columns: Sequence[str]) -> Row:
    if len(columns) > 1 and not line.strip():
        return Row(("",) * len(columns))
    texts = tuple(line.split("\t", len(columns) - 1))
    if len(texts) < len(columns):
        return Row(error="there must be a tab between source and translation")
    return Row(texts)


def _json_row(line: str, columns: Sequence[str], into: str) -> Row:
    if not line.strip():
        return Row()  # a blank line stays blank
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Row(value={}, error=f"not JSON: {error}")
    if not isinstance(value, dict):
        return Row(value={}, error=f"a row must be a JSON object, got {type(value).__name__}")
    if into in value:
        reason = f"there is a member {into!r} already; choose another --into"
        return Row(value=value, error=reason, line=line)
    texts = []
    for column in columns:
        if column not in value:
            reason = f"no {column!r} in it; name another with --column"
            return Row(value=value, error=reason, line=line)
        if value[column] is None:
            return Row(value=value, line=line)
        if not isinstance(value[column], str):
            kind = type(value[column]).__name__
            return Row(value=value, error=f"{column!r} must be a string, got {kind}", line=line)
        texts.append(value[column])
    return Row(tuple(texts), value, line=line)


def written(
    path: Path,
    block: RowBlock,
    read_rows: tuple[Sequence[Row], pa.Table | None],
    results: Sequence[Result],
    into: str,
    *,
    form: Form,
) -> bytes:
    """Write a block with its results, which all have the same form, as a separate file.

    `read_rows` is what `read` returned for the block. Text: one result per line. JSONL: each object
    with the result as an additional member. Tables: each row with an additional column.
    """
    rows, table = read_rows
    kind = kind_of(path)
    if table is not None:
        column = pa.array(results, _TYPES[form])
        buffer = BytesIO()
        pq.write_table(table.append_column(into, column), buffer)
        return buffer.getvalue()
    if kind == "jsonl":
        lines = [_json_line(row, result, into) for row, result in zip(rows, results, strict=True)]
    elif kind in ("csv", "tsv"):
        return _table_lines(path, block, rows, results, into)
    else:
        lines = ["" if result is None else _line(result) for result in results]
    return "".join(f"{line}\n" for line in lines).encode()


def _table_lines(
    path: Path, block: RowBlock, rows: Sequence[Row], results: Sequence[Result], into: str
) -> bytes:
    """The rows of a table with the result as the last cell; the first block also gets the
    header."""
    header = header_of(*_head(path))
    lines = [] if block.number else [record_line([*header.names, into], quoted=header.quoted)]
    for row, result in zip(rows, results, strict=True):
        cells = list(row.value or [])
        cells += [""] * (len(header.names) - len(cells))
        cell = "" if result is None else _line(result)
        lines.append(record_line([*cells, cell], quoted=header.quoted))
    return "".join(lines).encode()


def _json_line(row: Row, result: Result, into: str) -> str:
    """The object of a row as it was written, with the result as its last member: numbers, escapes
    and members that stand twice would not survive being read and written."""
    value = row.value or {}
    if into in value:  # the row has a member with this name itself, which is an error of the row
        return row.line.strip()
    if row.value is None and not row.error:
        return ""
    before = row.line.strip().removesuffix("}").rstrip() if row.line else "{"
    return f"{before}{', ' if value else ''}{_json(into)}: {_json(result)}}}"


def _json(value: Result) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of an emoji, which JSON can spell and UTF-8 cannot
        return json.dumps(value)
    return text


def _line(result: str | list[str] | float) -> str:
    return f"{result:.6f}" if isinstance(result, float) else str(result).replace("\n", " ")


def join(kind: Kind, parts: Sequence[Path], file: IO[bytes]) -> None:
    """Concatenate parts that `written` made."""
    if kind != "parquet":
        for part in parts:
            file.write(part.read_bytes())
        return
    writer = None
    for part in parts:
        table = pq.read_table(part)
        if writer is None:
            writer = pq.ParquetWriter(file, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise InvalidTextError(f"{path}: not a Parquet file: {error}") from error


def _read_table(path: Path, block: RowBlock) -> pa.Table:
    file = _parquet(path)
    if not block.rows:
        return file.schema_arrow.empty_table()
    return file.read_row_group(block.start).slice(block.size, block.rows)
