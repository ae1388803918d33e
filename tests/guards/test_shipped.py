"""What the shipped bundles say of themselves, and what the page opens with."""

from __future__ import annotations

import re
from pathlib import Path, PureWindowsPath

import pytest

from export.bundles.card import render_card
from serving.bundle.folder import find_bundles, parse_manifest
from serving.bundle.manifest import CARD
from serving.text.dictionary import words_of

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


def test_files_of_bundles_have_names_that_any_system_takes() -> None:
    names = [file.name for folder in BUNDLES for file in (folder, *folder.iterdir())]
    assert len(names) > 40  # files have been found
    assert [name for name in names if not re.fullmatch(r"[a-z0-9][\w.-]*\w", name, re.I)] == []
    assert [name for name in names if PureWindowsPath(name).is_reserved()] == []


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
def test_the_page_of_the_models_has_their_sizes(folder: Path) -> None:
    page = (ROOT / "docs/background/models.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| `{folder.name}` \|(.*M \|.*MB \|.*)", page, re.MULTILINE)
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert f"| {size / 1e6:.1f} MB |" in row
    card = folder / CARD
    written = card.read_text(encoding="utf-8") if card.exists() else ""
    for millions in re.findall(r"^\| parameters \| (\S+) million", written, re.MULTILINE):
        assert f"| {float(millions):.1f} M |" in row


def test_the_page_lists_no_other_models() -> None:
    page = (ROOT / "docs/background/models.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w-]+)` \|.*MB \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(folder.name for folder in BUNDLES)


def test_dictionaries_are_of_the_list_that_is_given_for_them() -> None:
    lines = (ROOT / "docs/dictionary.tsv").read_text(encoding="utf-8").splitlines()
    columns = [dict(zip(("de", "en", "fr", "es"), line.split("\t"), strict=True)) for line in lines]
    listed = {
        (code, word.removeprefix("+"))
        for row in columns
        for code, cell in row.items()
        for word in words_of(cell)
    }
    files = [folder / "dictionary.tsv" for folder in BUNDLES]
    found = [file for file in files if file.exists()]
    assert len(found) == 4  # every translator has one
    for file in found:
        for line in file.read_text(encoding="utf-8").splitlines():
            source, word, target, translations = line.split("\t")
            assert (source, word) in listed, line
            assert {(target, each) for each in words_of(translations)} <= listed, line


def test_the_page_has_a_sentence_in_each_language_that_is_read() -> None:
    text = (ROOT / "serving/web/examples.js").read_text(encoding="utf-8")
    read = {code for folder in BUNDLES for code in parse_manifest(folder).languages.source}
    assert set(re.findall(r"^  (\w+): \"", text, re.MULTILINE)) == read
