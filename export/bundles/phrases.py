"""Gives a bundle set phrases: sentences whose translations are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path

from export.bundles.card import finish
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
    pairs = manifest.languages.trained
    found = [phrase for phrase in _phrases(file, languages) if _pair(phrase) in pairs]
    if not found:
        wanted = ", ".join(f"{source} to {target}" for source, target in pairs)
        raise ExportError(
            f"{file}: no line has phrases from {wanted}, which the bundle translates; name the "
            f"languages of its columns with --languages, got {','.join(languages)}"
        )
    lines = ["\t".join(phrase) + "\n" for phrase in dict.fromkeys(found)]
    (bundle / FILE).write_text("".join(lines), encoding="utf-8")
    finish(bundle, manifest.model_copy(update={"phrases_file": FILE}))
    return read_manifest(bundle)


def _pair(phrase: Phrase) -> tuple[str, str]:
    return phrase.source, phrase.target


def _phrases(file: Path, languages: Sequence[str]) -> Iterator[Phrase]:
    """The phrases of each line for each pair of languages."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) != len(languages):
            raise ExportError(
                f"{file}: line {number} must have {len(languages)} columns, one for each of "
                f"{','.join(languages)}, got {len(columns)}; separate them by tabs"
            )
        written = dict(zip(languages, columns, strict=True))
        for source, target in permutations(languages, 2):
            if not (written[source] and written[target]):
                continue
            phrase = Phrase(source, written[source], target, written[target])
            if fault := fault_of(phrase):
                raise ExportError(f"{file}: line {number}: {fault}")
            yield phrase
