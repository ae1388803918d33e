"""Pairs of sentences out of one table: TSV (plain, .gz, .zst) or Parquet."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.corpora.pairs import Pair, iterate_lines
from training.errors import CorpusError
from training.recipe.checks import nearest

Column = int | str
"""A column by its number, counted from 1 (TSV), or by its name."""


@dataclass(frozen=True)
class Table:
    """Pairs in the order of the file."""

    pairs: list[Pair]
    first_line: int = 1
    """Number of the first pair's line, or row."""


def read_table(path: Path, columns: tuple[Column, Column] | None) -> Table:
    """All pairs of `iterate_table`, in a table."""
    return Table(list(iterate_table(path, columns)), first_line(path, columns))


def first_line(
    path: Path, columns: tuple[Column, Column] | None, direction: Column | None = None
) -> int:
    """The number of the first pair's line, or row."""
    named = any(isinstance(column, str) for column in (*(columns or ()), direction))
    return 2 if named and path.suffix != ".parquet" else 1


def iterate_table(
    path: Path, columns: tuple[Column, Column] | None, only: tuple[Column, str] | None = None
) -> Iterator[Pair]:
    """Iterate over the pairs of two columns, read as they are asked for. If columns of a TSV file
    are named, its first line holds the names.

    Without `columns` they are the first and the second of a TSV file. A tab always ends a column:
    there is no quoting. In Parquet, nulls are read as empty text, and line ends as spaces. With
    `only`, a column of a TSV file and a direction such as `de>en`, the texts of a line with another
    direction in that column are empty.

    Raises CorpusError for a file that cannot be read, has no rows, or lacks a column; for TSV the
    error names the line.
    """
    marked, direction = only or (None, "")
    pairs = (
        _iterate_parquet(path, columns)
        if path.suffix == ".parquet"
        else _iterate_tsv(path, columns, marked, direction)
    )
    found = False
    for pair in pairs:
        found = True
        yield pair
    if not found:
        raise CorpusError(f"{path}:{first_line(path, columns, marked)}: the file has no pairs")


def _iterate_tsv(
    path: Path, columns: tuple[Column, Column] | None, marked: Column | None, direction: str
) -> Iterator[Pair]:
    lines = iterate_lines(path)
    begin = first_line(path, columns, marked)
    names = [name for head in itertools.islice(lines, begin - 1) for name in head.split("\t")]
    first, second, marked = (
        column if isinstance(column, int) else _find(column, names, f"{path}:1") + 1
        for column in (*(columns or (1, 2)), marked or 0)
    )
    for number, line in enumerate(lines, begin):
        cells = line.split("\t")
        if len(cells) < max(first, second):
            raise CorpusError(
                f"{path}:{number}: {len(cells)} columns separated by tabs, column "
                f"{max(first, second)} is wanted"
            )
        good = not marked or len(cells) < marked or cells[marked - 1] in ("", direction)
        yield (cells[first - 1], cells[second - 1]) if good else ("", "")


def _iterate_parquet(path: Path, columns: tuple[Column, Column] | None) -> Iterator[Pair]:
    # The import takes a third of a second, which only readers of Parquet should pay.
    import pyarrow
    from pyarrow import parquet

    names = [str(column) for column in columns or ()]  # `sections` checks that none is missing
    try:
        file = parquet.ParquetFile(path)
        schema = file.schema_arrow
        for name in names:
            _check_text(path, name, schema.field(_find(name, schema.names, str(path))).type)
        for batch in file.iter_batches(columns=names, use_threads=False):
            sides: list[list[Any]] = [batch.column(name).to_pylist() for name in names]
            yield from zip(*(map(_one_line, side) for side in sides), strict=True)
    except (OSError, pyarrow.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise CorpusError(f"{path}: cannot be read: {reason}") from error


def _one_line(text: str | None) -> str:
    return re.sub(r"\r?\n", " ", text or "")


def _find(column: str, names: Sequence[str], where: str) -> int:
    """The place of a named column; raises CorpusError, which begins with `if`."""
    if column not in names:
        hint = nearest(column, names)
        raise CorpusError(f"{where}: no column {column!r}{hint}; there are {list(names)}")
    return list(names).index(column)


def _check_text(path: Path, column: str, kind: Any) -> None:
    from pyarrow import types

    values = kind.value_type if types.is_dictionary(kind) else kind
    if not (types.is_string(values) or types.is_large_string(values)):
        raise CorpusError(f"{path}: column {column!r} must hold text, it holds {kind}")
