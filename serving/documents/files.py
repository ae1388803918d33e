"""Translates a file into another file; the caller's function translates its units."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving.documents.raw.writing import check_target, write_whole
from serving.documents.recognition import FORMATS, endings_of, recognised, suffixes
from serving.documents.unit import (
    FileFormat,
    FileInUnits,
    ReadingWishes,
    Translated,
    Unit,
    WrittenFile,
)
from serving.errors import DocumentError, InvalidOptionError
from serving.text.glossary import TermIndex
from serving.text.memory.segments import MemoryUse
from serving.text.terms import NO_TERMS, Terms

MAX_FILE_BYTES = 500_000_000
"""Largest size of a file in bytes; the file is read into memory as a whole."""


@dataclass(frozen=True, kw_only=True)
class FileWishes:
    """Options for translating files that are rarely needed."""

    force: bool = False
    """Whether an existing target file is replaced."""
    bilingual: bool = False
    """Whether the source text stays beside its translation, in formats that have room for it."""
    terms: Terms = NO_TERMS
    """Terms that the translation of every sentence must or must not contain."""
    glossary: Sequence[TermIndex] = ()
    """Glossaries of the language pair. Their terms that occur in a sentence are put into its
    translation."""
    memory: MemoryUse | None = None
    """A translation memory of the language pair; sentences that it contains are not decoded."""
    target_language: str = ""
    """Language that is filled in, in a file with several; empty for the only one beside the
    source."""
    retranslate: bool = False
    """Whether texts that already have a translation, as in PO and XLIFF, are translated again."""
    columns: Sequence[str] = ()
    """Columns of a table to translate, by name or by number from 1; for JSON Lines, keys."""


NO_FILE_WISHES = FileWishes()


@dataclass(frozen=True)
class FileTranslation:
    """The outcome of translating a file."""

    format: str
    units: int
    """Number of paragraphs, cells, messages and other units that contain words."""
    warnings: tuple[str, ...]
    """Parts that could not be kept or translated, in whole sentences."""


def translate_file(
    source: Path,
    target: Path,
    translate: Callable[[Sequence[Unit]], tuple[Sequence[Translated], Sequence[str]]],
    wishes: FileWishes = NO_FILE_WISHES,
) -> FileTranslation:
    """Translate a file into another of the same kind. The target is written completely or not at
    all.

    `translate` returns a translation for each unit, and warnings. Raises DocumentError,
    InvalidOptionError, TooLongError, and OSError if a file cannot be read or written.
    """
    check_target(source, target, force=wishes.force)
    size = source.stat().st_size
    if size > MAX_FILE_BYTES:
        raise DocumentError(f"{source} must have at most {MAX_FILE_BYTES} bytes, got {size}")
    content = source.read_bytes()
    format = recognised(content, source.name)
    file = format.read(
        content,
        ReadingWishes(
            target=wishes.target_language,
            retranslate=wishes.retranslate,
            columns=tuple(wishes.columns),
        ),
    )
    write = file.write_bilingual if wishes.bilingual else _writer(file, format, target)
    if write is None:
        raise InvalidOptionError(
            f"{source}: a {format.name} file has no room for the source beside its translation; "
            "translate it without --bilingual (bilingual=False)",
            parameter="bilingual",
        )
    translations, warnings = translate(file.units)
    written = write(translations)
    write_whole(target, written.content)
    every = dict.fromkeys([*file.warnings, *warnings, *written.warnings])
    return FileTranslation(format.name, len(file.units), tuple(every))


def _writer(
    file: FileInUnits, format: FileFormat, target: Path
) -> Callable[[Sequence[Translated]], WrittenFile]:
    """The writer for the file's own kind, or for that of the target if the file cannot be written
    as its own kind. Raises InvalidOptionError for a target of the wrong kind."""
    if not file.write_as:
        return file.write
    suffix = target.suffix.lower()
    if suffix not in file.write_as:
        raise InvalidOptionError(
            f"the output of a {format.name} file must end with {' or '.join(file.write_as)}, got "
            f"{target}",
            parameter="output",
        )
    return file.write_as[suffix]


def files_to_translate(
    source: str, target: Path, *, tables: bool = False
) -> list[tuple[Path, Path]]:
    """The files that a name, a folder or a pattern stands for, each with the path of its
    translation.

    In a folder these are the files of known kinds, at any depth, each with the same place under
    `target`: only tables if `tables` is set, otherwise all other kinds. Raises InvalidOptionError
    if there are none, or if the target lies within the folder.
    """
    path = Path(source)
    if path.is_file():
        return [(path, target / _output_name(path) if target.is_dir() else target)]
    if path.is_dir():
        if target.resolve().is_relative_to(path.resolve()):
            raise InvalidOptionError(
                f"the output must lie outside of the folder {source}, got {target}",
                parameter="output",
            )
        found = [
            (file, target / file.relative_to(path).with_name(_output_name(file)))
            for file in sorted(_known(path, tables=tables))
        ]
    else:
        files = [Path(name) for name in sorted(glob.glob(source, recursive=True))]
        found = [(file, target / _output_name(file)) for file in files if file.is_file()]
    if not found:
        raise InvalidOptionError(
            f"the input must be a file, or a folder or pattern with files of a known kind "
            f"({', '.join(suffixes(FORMATS))}), got {source}",
            parameter="input",
        )
    return found


def _output_name(path: Path) -> str:
    """File name of a translation in a folder: the file's own name, followed by the suffix of the
    output if that is of another kind."""
    suffix = path.suffix.lower()
    written = next((f.written_as for f in FORMATS if f.written_as and suffix in f.suffixes), ())
    return path.name + written[0] if written else path.name


def _known(folder: Path, *, tables: bool) -> Iterator[Path]:
    endings = suffixes([format for format in FORMATS if format.in_columns == tables])
    return (
        path
        for path in folder.rglob("*")
        if not endings_of(path.name).isdisjoint(endings)
        and path.is_file()
        and not path.name.startswith(".")
    )
