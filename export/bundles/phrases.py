"""Gives a bundle set phrases: sentences whose translations are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from export.bundles.card import finish
from export.bundles.columns import read_pairs
from export.errors import ExportError
from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Manifest
from serving.text.phrases import Phrase, fault_of

FILE = "phrases.tsv"


def add_phrases(bundle: Path, file: Path, languages: Sequence[str]) -> Manifest:
    """Write the phrases of a file into a bundle, in place of those that it has, for the pairs of
    languages that it translates. Each line has a phrase in each of the `languages`, separated by
    tabs; a language that has none is left empty.

    Raises ExportError for a bundle that does not translate, for lines of another form or with
    other names in one language, and if no line has a pair of the bundle's languages.
    """
    manifest = read_manifest(bundle)
    if manifest.task != "translate":
        raise ExportError(f"{bundle}: phrases are for bundles that translate, not {manifest.task}")
    found = list(_phrases(file, languages, manifest.languages.trained))
    lines = ["\t".join(phrase) + "\n" for phrase in dict.fromkeys(found)]
    (bundle / FILE).write_text("".join(lines), encoding="utf-8")
    finish(bundle, manifest.model_copy(update={"phrases_file": FILE}))
    return read_manifest(bundle)


def _phrases(
    file: Path, languages: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> Iterator[Phrase]:
    """The phrases of each line for each pair of languages."""
    for line, *cells in read_pairs(file, languages, pairs, "phrases"):
        phrase = Phrase(*cells)
        if fault := fault_of(phrase):
            raise ExportError(f"{file}: line {line}: {fault}")
        yield phrase
