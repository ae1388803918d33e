"""What a file is to whoever translates it: units of text, and a way to write it with others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from serving.errors import TooLongError
from serving.text.alignment import Link
from serving.text.document import Format
from serving.text.placing.placement import Translated

__all__ = ["FileFormat", "FileInUnits", "Format", "Link", "Translated", "Unit", "WrittenFile"]

MAX_UNIT_CHARACTERS = 250_000
"""What a paragraph, a cell or a message may have."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A paragraph, a message, or what else is translated by itself."""

    text: str
    format: Format = "text"
    links: bool = False
    """Whether the translation needs its word links."""


@dataclass(frozen=True)
class WrittenFile:
    """A file with its translations."""

    content: bytes
    warnings: tuple[str, ...] = ()
    """What could not be kept, in whole sentences."""


@dataclass(frozen=True)
class FileInUnits:
    """A file that has been read; its writers take a translation for each unit, in order."""

    units: Sequence[Unit]
    write: Callable[[Sequence[Translated]], WrittenFile]
    write_bilingual: Callable[[Sequence[Translated]], WrittenFile] | None = None
    """Keeps the source beside; None where the format has no room for it."""
    warnings: tuple[str, ...] = ()
    write_as: Mapping[str, Callable[[Sequence[Translated]], WrittenFile]] = field(
        default_factory=dict
    )
    """How it is written as another kind, by the suffix of that; not empty where a file cannot be
    written as its own kind: `write` is the first of them then."""


@dataclass(frozen=True)
class FileFormat:
    """One kind of file; `read` raises DocumentError for a file that it cannot read."""

    name: str
    suffixes: tuple[str, ...]
    """How names of such files end, in small letters: with a dot, or the whole name."""
    read: Callable[[bytes], FileInUnits]
    read_into: Callable[[bytes, str], FileInUnits] | None = None
    """Reads a file that holds several languages, of which the one that is named is filled."""
    written_as: tuple[str, ...] = ()
    """The suffixes of what it becomes, the usual one first; empty where that is its own kind."""


def check_lengths(units: Sequence[Unit]) -> None:
    """Raise TooLongError for a unit of more than MAX_UNIT_CHARACTERS."""
    for unit in units:
        if len(unit.text) > MAX_UNIT_CHARACTERS:
            raise TooLongError(
                f"a paragraph must have at most {MAX_UNIT_CHARACTERS} characters, got "
                f"{len(unit.text)} in {unit.text[:40]!r}; divide it"
            )
