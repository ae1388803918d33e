"""The choice of a table's columns to translate: only the user knows what a column is for."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Sequence

from serving.errors import InvalidOptionError

_NUMBER = re.compile(r"[0-9]{1,9}")
_MOST_SHOWN = 50
"""Largest number of columns that an error names."""


def named_columns(text: str) -> tuple[str, ...]:
    """The columns listed in a text, separated by commas; a name with a comma stands between
    quotation marks."""
    cells = next(csv.reader(io.StringIO(text, newline=""), skipinitialspace=True), [])
    return tuple(cell.strip() for cell in cells if cell.strip())


def places_of(asked: Sequence[str], names: Sequence[str]) -> tuple[frozenset[int], bool]:
    """The positions, from 0, of the requested columns, and whether the first row contains names.

    It does if one of the columns is requested by its name; all columns of that name are then meant.
    A number counts from 1, whatever the names are. Raises InvalidOptionError if no column is
    requested, or one that is neither a name nor a number of the table.
    """
    places, by_name = set[int](), False
    for each in asked:
        if _NUMBER.fullmatch(each):
            found = [int(each) - 1]
        else:
            found = [place for place, name in enumerate(names) if name.strip() == each]
            by_name = True
        if not found or found[0] < 0:
            raise unknown_columns(asked, numbered(names))
        places.update(found)
    if not places:
        raise unknown_columns(asked, numbered(names))
    return frozenset(places), by_name


def numbered(names: Sequence[str]) -> list[str]:
    """Columns as an error lists them: with their numbers, because names may be missing."""
    return [f"{number} {name.strip()[:60]!r}" for number, name in enumerate(names, 1)]


def unknown_columns(asked: Sequence[str], known: Collection[str]) -> InvalidOptionError:
    """The error for an unknown column, which names the existing ones."""
    shown = list(known)[:_MOST_SHOWN]
    if len(known) > len(shown):
        shown.append(f"{len(known) - len(shown)} more")
    # The advice stands first, because a server truncates long messages.
    return InvalidOptionError(
        "columns must name the columns to translate, got "
        f"{', '.join(map(repr, asked))[:100] or 'none'}; choose with --columns (columns=...), over "
        "HTTP in the field columns of /documents, which other routes lack; the file has "
        f"{', '.join(shown)}",
        parameter="columns",
    )
