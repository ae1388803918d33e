"""Notes beside parallel text that a bundle has made, with its languages, so that nobody trains a
model of other languages on it."""

from __future__ import annotations

import json
from pathlib import Path

from training.errors import CorpusError
from training.recipe.config import expand
from training.recipe.filters import Languages
from training.recipe.sections import DataConfig
from training.runs.checkpoint import write_atomically

_NOTE = ".made.json"


def write_note(out: Path, languages: Languages, bundle: str) -> None:
    """Note that the bundle of that name has made OUT.<language> of source and target."""
    note = {"source_language": languages[0], "target_language": languages[1], "bundle": bundle}
    write_atomically(out.with_name(out.name + _NOTE), f"{json.dumps(note)}\n".encode())


def check_languages(data: DataConfig) -> None:
    """Raise CorpusError for a corpus that was made between other languages than the recipe trains
    between."""
    for files in data.corpora:
        if files.source is None or files.target is None:
            continue
        source, target = expand(str(files.source)), expand(str(files.target))
        made = _read_note(source)
        if made is None or source.with_suffix("") != target.with_suffix(""):
            continue
        given = files.source_language, files.target_language
        named = source.suffix[1:], target.suffix[1:]
        if named != given and set(named) == set(made[:2]):
            raise CorpusError(
                f"{source}: made of {made[0]} and {made[1]} by {made[2]}, and the recipe trains "
                f"from {given[0]} to {given[1]} on it; train between the languages of the text, or "
                "have a bundle of the recipe's make it"
            )


def _read_note(source: Path) -> tuple[str, str, str] | None:
    """The source language, the target language and the bundle, if a bundle has made the text."""
    try:
        note = json.loads(source.with_suffix(_NOTE).read_bytes())
        return note["source_language"], note["target_language"], note["bundle"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
