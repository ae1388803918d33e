"""Records of glossaries, and the reading of entries from lists, TSV and CSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from serving.errors import RequestError, TooLongError

Format = str
"""The format of entries, `tsv` or `csv`."""
MOST_DICTIONARIES = 100
"""Largest number of language pairs of one glossary."""
_CSV_COLUMNS = (2, 4)
"""Numbers of columns: a term and its translation; DeepL's files may have their languages after
them."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass(frozen=True)
class GlossaryLimits:
    """Limits of an owner; each number is a setting of the server."""

    glossaries: int
    entries: int
    """Largest number of entries of one dictionary."""
    term_chars: int


@dataclass(frozen=True)
class StoredDictionary:
    """Metadata of the entries of a glossary for one language pair."""

    source: str
    target: str
    entry_count: int


@dataclass(frozen=True)
class StoredGlossary:
    """Metadata of a glossary."""

    id: str
    name: str
    created: float
    """Time of creation, in seconds since 1970."""
    dictionaries: tuple[StoredDictionary, ...]


@dataclass(frozen=True)
class NewDictionary:
    """Entries for one language pair, which `checked_entries` has accepted."""

    source: str
    target: str
    """Language codes, in small letters."""
    entries: Mapping[str, str]
    """Terms and their translations."""


def entries_of(text: str, format: Format) -> Iterator[tuple[str, str]]:
    """The entries in a text in `tsv` or `csv`, one per line; empty lines are skipped.

    Raises RequestError, which names the line.
    """
    text = text.removeprefix("\ufeff")
    return _of_csv(text) if format == "csv" else _of_tsv(text)


def checked_entries(
    pairs: Iterable[tuple[str, str]], limits: GlossaryLimits, parameter: str = "entries"
) -> dict[str, str]:
    """Entries without surrounding spaces.

    Raises RequestError for a term that is blank, occurs twice or contains a tab, a line end or
    another control character, and if there are no entries; TooLongError for too many entries and
    for one that is too long.
    """
    entries: dict[str, str] = {}
    for number, pair in enumerate(pairs, 1):
        term, translation = (part.strip() for part in pair)
        for text in (term, translation):
            _check_term(text, number, limits, parameter)
        if term in entries:
            raise RequestError(
                f"{parameter} must have each term once, got {term!r} again as entry {number}; "
                "leave one out",
                parameter=parameter,
            )
        entries[term] = translation
        if len(entries) > limits.entries:
            raise too_many_entries(limits, parameter)
    if not entries:
        raise RequestError(
            f"{parameter} must have at least one entry, got none", parameter=parameter
        )
    return entries


def too_many_entries(limits: GlossaryLimits, parameter: str = "entries") -> TooLongError:
    """The error for a dictionary that would be too large."""
    return TooLongError(
        f"a dictionary must have at most {limits.entries} entries "
        "(MACARON_MAX_GLOSSARY_ENTRIES), got more; make several glossaries",
        parameter=parameter,
    )


def as_tsv(entries: Mapping[str, str]) -> str:
    """Entries as lines of term, tab and translation."""
    return "\n".join(f"{term}\t{translation}" for term, translation in entries.items())


def _check_term(text: str, number: int, limits: GlossaryLimits, parameter: str) -> None:
    if len(text) > limits.term_chars:
        raise TooLongError(
            f"a term must have at most {limits.term_chars} characters (MACARON_MAX_TERM_CHARS), "
            f"got {len(text)} in entry {number}",
            parameter=parameter,
        )
    if not text or _CONTROL.search(text):
        raise RequestError(
            f"{parameter} must be terms without tabs, line ends and control characters, got "
            f"{text!r} in entry {number}",
            parameter=parameter,
        )


def _of_tsv(text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        parts = line.removesuffix("\r").split("\t")
        if len(parts) != 2:
            raise RequestError(
                "entries must be lines of a term, a tab and its translation, got line "
                f"{number} with {len(parts) - 1} tabs",
                parameter="entries",
            )
        yield parts[0], parts[1]


def _of_csv(text: str) -> Iterator[tuple[str, str]]:
    rows = csv.reader(text.splitlines(keepends=True), strict=True)
    try:
        for row in rows:
            if not row:
                continue
            if len(row) not in _CSV_COLUMNS:
                raise RequestError(
                    "entries must be rows of a term and its translation, got line "
                    f"{rows.line_num} with {len(row)} columns",
                    parameter="entries",
                )
            yield row[0], row[1]
    except csv.Error as error:
        raise RequestError(
            f"entries must be CSV, got line {rows.line_num} that is not: {error}",
            parameter="entries",
        ) from error
