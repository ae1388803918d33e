"""Lists of texts in several languages: files with tabs that have a language in each column, and
what bundles get of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

from export.bundles.card import finish
from export.errors import ExportError
from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Manifest


class Cells(NamedTuple):
    """Two cells of a line, neither of them empty."""

    line: int
    """Number of the line, from 1."""
    source: str
    """Language code of the first."""
    text: str
    target: str
    translation: str


def read_pairs(
    file: Path, languages: Sequence[str], pairs: Sequence[tuple[str, str]], name: str
) -> Iterator[Cells]:
    """The cells of each line for each of the `pairs` of languages, which are those that a bundle
    translates. `name` says in messages what the cells have.

    Raises ExportError for a line with fewer or more columns than `languages`, and if no line has
    one of the pairs.
    """
    empty = True
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) != len(languages):
            raise ExportError(
                f"{file}: line {number} must have {len(languages)} columns, one for each of "
                f"{','.join(languages)}, got {len(columns)}; separate them by tabs"
            )
        written = dict(zip(languages, columns, strict=True))
        for source, target in permutations(languages, 2):
            if (source, target) in pairs and written[source] and written[target]:
                empty = False
                yield Cells(number, source, written[source], target, written[target])
    if empty:
        wanted = ", ".join(f"{source} to {target}" for source, target in pairs)
        raise ExportError(
            f"{file}: no line has {name} from {wanted}, which the bundle translates; name the "
            f"languages of its columns with --languages, got {','.join(languages)}"
        )


def translating(bundle: Path, name: str) -> Manifest:
    """The manifest of a bundle that may have a list. `name` says in the message what is in it.
    Raises ExportError for a bundle that does not translate."""
    manifest = read_manifest(bundle)
    if manifest.task != "translate":
        raise ExportError(f"{bundle}: {name} are for bundles that translate, not {manifest.task}")
    return manifest


def write_list(
    bundle: Path, manifest: Manifest, field: str, file: str, rows: Iterable[Sequence[str]]
) -> int:
    """Write rows, each row once, into a `file` of a bundle, which a `field` of its manifest names.
    Returns their number."""
    lines = dict.fromkeys("\t".join(row) + "\n" for row in rows)
    (bundle / file).write_text("".join(lines), encoding="utf-8")
    finish(bundle, manifest.model_copy(update={field: file}))
    return len(lines)
