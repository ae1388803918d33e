"""Pairs of sentences out of one table: TSV (plain, .gz, .zst) or Parquet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.checks import nearest
from training.corpus import Pair, read_lines
from training.errors import CorpusError

Column = int | str
"""A column by its number, counted from 1 (TSV), or by its name."""


@dataclass(frozen=True)
class Table:
    """Pairs in the order of the file."""

    pairs: list[Pair]
    first_line: int = 1
    """Number of the first pair's line, or row."""


def read_table(path: Path, columns: tuple[Column, Column] | None) -> Table:
    """The pairs of two columns; a TSV file has a first line with names where they are named.

    Without `columns` they are the first and the second of a TSV file. A tab ends a column whatever
    stands around it: there is no quoting. Of Parquet, nulls are read as empty text, line ends as
    spaces.

    Raises CorpusError for a file that cannot be read, has no rows, or lacks a column; of TSV it
    names the line.
    """
    table = _read_parquet(path, columns) if path.suffix == ".parquet" else _read_tsv(path, columns)
    if not table.pairs:
        raise CorpusError(f"{path}:{table.first_line}: the file has no pairs")
    return table


def _read_tsv(path: Path, columns: tuple[Column, Column] | None) -> Table:
    lines = read_lines(path)
    first, second = columns or (1, 2)
    first_line = 1
    if isinstance(first, str) or isinstance(second, str):
        names = lines[0].split("\t") if lines else []
        lines, first_line = lines[1:], 2
        first, second = (
            column if isinstance(column, int) else _find(column, names, f"{path}:1") + 1
            for column in (first, second)
        )
    pairs = []
    for number, line in enumerate(lines, first_line):
        cells = line.split("\t")
        if len(cells) < max(first, second):
            raise CorpusError(
                f"{path}:{number}: {len(cells)} columns separated by tabs, column "
                f"{max(first, second)} is wanted"
            )
        pairs.append((cells[first - 1], cells[second - 1]))
    return Table(pairs, first_line)


def _read_parquet(path: Path, columns: tuple[Column, Column] | None) -> Table:
    # A third of a second that only those who read Parquet pay.
    import pyarrow
    from pyarrow import parquet

    names = [str(column) for column in columns or ()]  # sections lets none of them be missing
    try:
        file = parquet.ParquetFile(path)
        schema = file.schema_arrow
        for name in names:
            _check_text(path, name, schema.field(_find(name, schema.names, str(path))).type)
        table = file.read(columns=names, use_threads=False)
    except (OSError, pyarrow.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise CorpusError(f"{path}: cannot be read: {reason}") from error
    sides: list[list[Any]] = [table.column(name).to_pylist() for name in names]
    lines = ([re.sub(r"\r?\n", " ", text or "") for text in side] for side in sides)
    return Table(list(zip(*lines, strict=True)))


def _find(column: str, names: Sequence[str], where: str) -> int:
    """The place of a named column; raises CorpusError, which begins with `where`."""
    if column not in names:
        hint = nearest(column, names)
        raise CorpusError(f"{where}: no column {column!r}{hint}; there are {list(names)}")
    return list(names).index(column)


def _check_text(path: Path, column: str, kind: Any) -> None:
    from pyarrow import types

    values = kind.value_type if types.is_dictionary(kind) else kind
    if not (types.is_string(values) or types.is_large_string(values)):
        raise CorpusError(f"{path}: column {column!r} must hold text, it holds {kind}")
