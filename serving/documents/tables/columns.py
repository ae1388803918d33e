"""Which columns of a table are translated: nobody but the user knows what a column is for."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Sequence

from serving.errors import InvalidOptionError

_NUMBER = re.compile(r"[0-9]{1,9}")
_MOST_SHOWN = 50
"""How many columns an error names."""


def named_columns(text: str) -> tuple[str, ...]:
    """The columns that a text lists, with commas between; a name with a comma stands between
    quotation marks."""
    cells = next(csv.reader(io.StringIO(text, newline=""), skipinitialspace=True), [])
    return tuple(cell.strip() for cell in cells if cell.strip())


def places_of(asked: Sequence[str], names: Sequence[str]) -> tuple[frozenset[int], bool]:
    """The places, from 0, of the columns that are asked for, and whether the first row names them.

    It does if one of them is asked for by its name; all columns of that name are meant. What is a
    number counts from 1, whatever the names are. Raises InvalidOptionError where nothing is asked
    for, or what is neither a name nor a number.
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
    """Columns as an error names them: with their numbers, for names may be missing."""
    return [f"{number} {name.strip()[:60]!r}" for number, name in enumerate(names, 1)]


def unknown_columns(asked: Sequence[str], known: Collection[str]) -> InvalidOptionError:
    """The error that names the columns that there are."""
    shown = list(known)[:_MOST_SHOWN]
    if len(known) > len(shown):
        shown.append(f"{len(known) - len(shown)} more")
    # What is to be done stands first: a server cuts long messages off.
    return InvalidOptionError(
        "columns must say which of the file's are translated, got "
        f"{', '.join(map(repr, asked))[:100] or 'none'}; choose with --columns (columns=...), over "
        "HTTP in the field columns of /documents, which other routes lack; the file has "
        f"{', '.join(shown)}",
        parameter="columns",
    )
