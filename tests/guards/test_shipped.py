"""What the shipped bundles say of themselves, and what the page opens with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from serving.bundle.folder import find_bundles, parse_manifest

ROOT = Path(__file__).resolve().parents[2]
BUNDLES = find_bundles(ROOT / "models")


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
def test_a_shipped_model_says_that_it_is_a_demonstration(folder: Path) -> None:
    said = parse_manifest(folder).demonstration
    assert "demonstration" in said
    card = folder / "README.md"
    assert not card.exists() or f"- {said}" in card.read_text(encoding="utf-8")


def test_the_page_has_a_sentence_in_each_language_that_is_read() -> None:
    text = (ROOT / "serving/web/examples.js").read_text(encoding="utf-8")
    read = {code for folder in BUNDLES for code in parse_manifest(folder).languages.source}
    assert set(re.findall(r"^  (\w+): \"", text, re.MULTILINE)) == read
