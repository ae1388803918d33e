"""Files of texts, cut into blocks of rows that are read, and written again, without the others.

Three kinds, told by the end of the name: `.jsonl` and `.ndjson` hold one JSON object a line,
`.parquet` is Parquet, and everything else is text, a row a line.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from serving.errors import InvalidTextError
from serving.lines import LineEncodingError, decode_line

Kind = Literal["text", "jsonl", "parquet"]
Form = Literal["text", "texts", "number"]
Result = str | list[str] | float | None
"""What a row became: its translation, several of them, the log-probability of a given one, or
nothing."""
_TYPES = {"text": pa.string(), "texts": pa.list_(pa.string()), "number": pa.float64()}
_SUFFIXES: dict[str, Kind] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


class RowBlock(NamedTuple):
    """Rows of a file that are read at once."""

    number: int
    first: int
    """Number of the first row in the file, from 0."""
    rows: int
    start: int = 0
    """Of lines: where the first begins, in bytes. Of Parquet: the row group."""
    size: int = 0
    """Of lines: their bytes, ends included. Of Parquet: rows of the group before the first."""


@dataclass(frozen=True)
class Row:
    """One row as it was read."""

    texts: tuple[str, ...] | None = None
    """What the named columns hold; None where nothing is to be decoded."""
    value: Any = None
    """The whole row of a JSONL file, which is written again."""
    error: str = ""
    """Why it cannot be read; empty where it can."""


def kind_of(path: Path) -> Kind:
    """The kind of a file, by its name."""
    return _SUFFIXES.get(path.suffix.lower(), "text")


def cut(path: Path, rows: int) -> list[RowBlock]:
    """The blocks of a file, of at most so many rows each, in order; raises InvalidTextError for a
    file that is no Parquet file though its name says so."""
    if kind_of(path) != "parquet":
        return list(_line_blocks(path, rows))
    file = _parquet(path)
    blocks: list[RowBlock] = []
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
    with path.open("rb") as file:
        for line in file:
            count, size = count + 1, size + len(line)
            if count == rows:
                yield RowBlock(number, first, count, start, size)
                number, first, start, count, size = number + 1, first + count, start + size, 0, 0
    if count:
        yield RowBlock(number, first, count, start, size)


def check_columns(path: Path, columns: Sequence[str], into: str) -> None:
    """Raise InvalidTextError where a Parquet file lacks one of the columns, holds no text in it, or
    has one of the name that the results are to get."""
    if kind_of(path) != "parquet":
        return
    schema = _parquet(path).schema_arrow
    for column in columns:
        if column not in schema.names:
            raise InvalidTextError(
                f"{path}: no column {column!r}, there are {', '.join(schema.names)}; name one with "
                "--column"
            )
        kind = schema.field(column).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise InvalidTextError(f"{path}: column {column!r} must be of strings, it is {kind}")
    if into in schema.names:
        raise InvalidTextError(f"{path}: there is a column {into!r} already; choose another --into")


def read(
    path: Path, block: RowBlock, columns: Sequence[str], into: str
) -> tuple[list[Row], pa.Table | None]:
    """The rows of a block, whose results are written to `into`; of Parquet also the table that they
    stand in."""
    if kind_of(path) == "parquet":
        table = _read_table(path, block)
        held = [table.column(name).to_pylist() for name in columns]
        texts = zip(*held, strict=True)
        return [Row(None if None in row else row) for row in texts], table
    with path.open("rb") as file:
        file.seek(block.start)
        content = file.read(block.size)
    lines = (content if block.first else content.removeprefix(codecs.BOM_UTF8)).split(b"\n")
    rows = []
    for number, line in enumerate(lines[: block.rows], block.first + 1):
        try:
            text = decode_line(line, number)
        except LineEncodingError as error:
            rows.append(Row(error=str(error)))
            continue
        is_json = kind_of(path) == "jsonl"
        rows.append(_json_row(text, columns, into) if is_json else _row(text, columns))
    return rows, None


def _row(line: str, columns: Sequence[str]) -> Row:
    if len(columns) > 1 and not line.strip():
        return Row(("",) * len(columns))
    texts = tuple(line.split("\t", len(columns) - 1))
    if len(texts) < len(columns):
        return Row(error="there must be a tab between source and translation")
    return Row(texts)


def _json_row(line: str, columns: Sequence[str], into: str) -> Row:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Row(error=f"not JSON: {error}")
    if not isinstance(value, dict):
        return Row(value={}, error=f"a row must be a JSON object, got {type(value).__name__}")
    if into in value:
        return Row(value=value, error=f"there is a member {into!r} already; choose another --into")
    texts = []
    for column in columns:
        if column not in value:
            return Row(value=value, error=f"no {column!r} in it; name another with --column")
        if value[column] is None:
            return Row(value=value)
        if not isinstance(value[column], str):
            kind = type(value[column]).__name__
            return Row(value=value, error=f"{column!r} must be a string, got {kind}")
        texts.append(value[column])
    return Row(tuple(texts), value)


def written(
    kind: Kind,
    rows: Sequence[Row],
    table: pa.Table | None,
    results: Sequence[Result],
    into: str,
    *,
    form: Form,
) -> bytes:
    """A block with its results, which are all of one form, as a file of its own.

    Lines: each result, or each object with the result as a further member. Parquet: the table with
    a further column.
    """
    if table is not None:
        column = pa.array(results, _TYPES[form])
        buffer = BytesIO()
        pq.write_table(table.append_column(into, column), buffer)
        return buffer.getvalue()
    if kind == "jsonl":
        lines = []
        for row, result in zip(rows, results, strict=True):
            value = row.value or {}
            # A member of that name is the row's own; that is its error.
            lines.append(_json_line(value if into in value else value | {into: result}))
    else:
        lines = ["" if result is None else _line(result) for result in results]
    return "".join(f"{line}\n" for line in lines).encode()


def _json_line(value: dict[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of an emoji, which JSON can spell and UTF-8 cannot
        return json.dumps(value)
    return text


def _line(result: str | list[str] | float) -> str:
    return f"{result:.6f}" if isinstance(result, float) else str(result).replace("\n", " ")


def join(kind: Kind, parts: Sequence[Path], file: IO[bytes]) -> None:
    """Write parts, as `written` made them, behind each other."""
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
