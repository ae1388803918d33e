"""A file as the translator sees it: units of text, and writers that put translations back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from serving.errors import TooLongError
from serving.text.alignment import Link
from serving.text.document import Format
from serving.text.placing.placement import Translated

__all__ = ["FileFormat", "FileInUnits", "Format", "Link", "Translated", "Unit", "WrittenFile"]

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
    """What could not be kept, in whole sentences."""


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


@dataclass(frozen=True)
class FileFormat:
    """One kind of file; `read` raises DocumentError if it cannot read a file."""

    name: str
    suffixes: tuple[str, ...]
    """How names of such files end, in small letters: a suffix with its dot, or a whole name."""
    read: Callable[[bytes], FileInUnits]
    read_into: Callable[[bytes, str], FileInUnits] | None = None
    """Reads a file of several languages; the named language is filled."""
    written_as: tuple[str, ...] = ()
    """Suffixes of the output, the usual one first; empty if the output has the same kind."""


def check_lengths(units: Sequence[Unit]) -> None:
    """Raise TooLongError for a unit of more than MAX_UNIT_CHARACTERS."""
    for unit in units:
        if len(unit.text) > MAX_UNIT_CHARACTERS:
            raise TooLongError(
                f"a paragraph must have at most {MAX_UNIT_CHARACTERS} characters, got "
                f"{len(unit.text)} in {unit.text[:40]!r}; divide it"
            )
