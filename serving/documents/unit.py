"""A file as the translator sees it: units of text, and writers that put translations back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from serving.errors import InvalidOptionError, TooLongError
from serving.text.alignment import Link
from serving.text.document import Format
from serving.text.placing.placement import Translated

__all__ = [
    "NO_READING_WISHES",
    "FileFormat",
    "FileInUnits",
    "Format",
    "Link",
    "ReadingWishes",
    "Translated",
    "Unit",
    "WrittenFile",
]

MAX_UNIT_CHARACTERS = 250_000
"""Largest number of characters of a unit."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A paragraph, a message or another text that is translated by itself."""

    text: str
    format: Format = "text"
    links: bool = False
    """Whether the translation needs word links."""


@dataclass(frozen=True)
class WrittenFile:
    """A file with its translations."""

    content: bytes
    warnings: tuple[str, ...] = ()
    """Parts that could not be kept, in whole sentences."""


@dataclass(frozen=True)
class FileInUnits:
    """A file that was read. Its writers take a translation for each unit, in order."""

    units: Sequence[Unit]
    write: Callable[[Sequence[Translated]], WrittenFile]
    write_bilingual: Callable[[Sequence[Translated]], WrittenFile] | None = None
    """Writes the translations beside the source; None if the format has no room for both."""
    warnings: tuple[str, ...] = ()
    write_as: Mapping[str, Callable[[Sequence[Translated]], WrittenFile]] = field(
        default_factory=dict
    )
    """Writers of other kinds of files, by suffix. If the file cannot be written as its own kind,
    this is not empty and `write` is its first entry."""


@dataclass(frozen=True, kw_only=True)
class ReadingWishes:
    """Options for the reader of a file."""

    target: str = ""
    """Language that is filled in, in a file with several; empty for the only one beside the
    source."""
    retranslate: bool = False
    """Whether units that already have a translation are read as well, to be translated again."""
    columns: tuple[str, ...] = ()
    """Names or numbers (from 1) of the columns of a table that are read, or keys of JSON Lines."""


NO_READING_WISHES = ReadingWishes()


@dataclass(frozen=True)
class FileFormat:
    """A kind of file."""

    name: str
    suffixes: tuple[str, ...]
    """Endings of file names, in small letters: a suffix with its dot, or a whole name."""
    reader: Callable[[bytes, ReadingWishes], FileInUnits]
    written_as: tuple[str, ...] = ()
    """Suffixes of the output, the usual one first; empty if the output has the same kind."""
    in_columns: bool = False
    """Whether the reader needs the columns that are to be translated."""

    def read(self, content: bytes, wishes: ReadingWishes = NO_READING_WISHES) -> FileInUnits:
        """Read a file. Raises DocumentError for a file that cannot be read, TooLongError for a unit
        that is too long, and InvalidOptionError for columns in a format without columns."""
        if wishes.columns and not self.in_columns:
            raise InvalidOptionError(
                f"columns are only for csv, tsv and jsonl files, got a {self.name} file; leave "
                "--columns (columns) out",
                parameter="columns",
            )
        return self.reader(content, wishes)


def check_lengths(units: Sequence[Unit]) -> None:
    """Raise TooLongError for a unit of more than MAX_UNIT_CHARACTERS."""
    for unit in units:
        if len(unit.text) > MAX_UNIT_CHARACTERS:
            raise TooLongError(
                f"a paragraph must have at most {MAX_UNIT_CHARACTERS} characters, got "
                f"{len(unit.text)} in {unit.text[:40]!r}; divide it"
            )
