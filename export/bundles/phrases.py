"""Gives a bundle set phrases: sentences whose translations are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from export.bundles.columns import read_pairs, translating, write_list
from export.errors import ExportError
from serving.text.phrases import Phrase, fault_of

FILE = "phrases.tsv"


def add_phrases(bundle: Path, file: Path, languages: Sequence[str]) -> int:
    """Write the phrases of a file into a bundle, in place of those that it has, for the pairs of
    languages that it translates. Each line has a phrase in each of the `languages`, separated by
    tabs; a language that has none is left empty.

    Returns how many there are. Raises ExportError for a bundle that does not translate, for lines
    of another form or with other names in one language, and if no line has a pair of the bundle's
    languages.
    """
    manifest = translating(bundle, "phrases")
    found = list(_phrases(file, languages, manifest.languages.trained))
    return write_list(bundle, manifest, "phrases_file", FILE, found)


def _phrases(
    file: Path, languages: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> Iterator[Phrase]:
    """The phrases of each line for each pair of languages."""
    for line, *cells in read_pairs(file, languages, pairs, "phrases"):
        phrase = Phrase(*cells)
        if fault := fault_of(phrase):
            raise ExportError(f"{file}: line {line}: {fault}")
        yield phrase
