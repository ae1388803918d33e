"""What the shipped bundles say of themselves, and what the page opens with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from export.bundles.card import render_card
from serving.bundle.folder import find_bundles, parse_manifest
from serving.bundle.manifest import CARD

ROOT = Path(__file__).resolve().parents[2]
BUNDLES = find_bundles(ROOT / "models")
CARDS = [folder for folder in BUNDLES if (folder / CARD).exists()]


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
def test_a_shipped_model_says_that_it_is_a_demonstration(folder: Path) -> None:
    assert "demonstration" in parse_manifest(folder).demonstration


@pytest.mark.parametrize("folder", CARDS, ids=lambda folder: folder.name)
def test_a_card_is_that_of_its_manifest(folder: Path) -> None:
    size = sum(file.stat().st_size for file in folder.iterdir() if file.name != CARD)
    written = (folder / CARD).read_text(encoding="utf-8")
    assert written == render_card(parse_manifest(folder), size)


def test_the_page_has_a_sentence_in_each_language_that_is_read() -> None:
    text = (ROOT / "serving/web/examples.js").read_text(encoding="utf-8")
    read = {code for folder in BUNDLES for code in parse_manifest(folder).languages.source}
    assert set(re.findall(r"^  (\w+): \"", text, re.MULTILINE)) == read
