"""Texts of an export, checked before the work."""

from __future__ import annotations

from pathlib import Path

import pytest

from export.bundle import export_bundle
from export.errors import ExportError
from export.texts import TextPair
from training.errors import CorpusError


def written(folder: Path, source: str, reference: str) -> TextPair:
    (folder / "a").write_text(source)
    (folder / "b").write_text(reference)
    return TextPair("news", folder / "a", folder / "b")


@pytest.mark.parametrize(
    ("source", "reference", "error", "message"),
    [
        ("eins\nzwei\n", "one\n", CorpusError, "b:2: line missing"),
        ("\n \n", "\n\n", ExportError, "a: no pair has words on both sides; .* for news"),
        ("eins\n\n", "\none\n", ExportError, "a: no pair has words on both sides"),
    ],
)
@pytest.mark.parametrize("use", ["dev", "tests"])
def test_a_text_that_cannot_be_used_is_refused_before_anything_is_loaded(
    tmp_path: Path, source: str, reference: str, error: type[Exception], message: str, use: str
) -> None:
    text = written(tmp_path, source, reference)
    texts = {"dev": text} if use == "dev" else {"tests": (text,)}
    with pytest.raises(error, match=message):
        # There is no such checkpoint, which would be the first to show.
        export_bundle(
            tmp_path / "nowhere", tmp_path / "out", precision="fp32", target="cpu", **texts
        )
    assert not (tmp_path / "out").exists()
