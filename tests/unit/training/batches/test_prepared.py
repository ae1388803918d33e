"""The cache of prepared text: found by content, made anew by whatever changes it."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from serving.bundle.tokenizer import Tokenizer
from tests.toy.recipe import write_toy_recipe
from training.corpora.pairs import Corpus
from training.errors import CorpusError
from training.recipe.config import TranslationRecipe, load_recipe
from training.tasks.translation import prepare, read_corpus


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    recipe = write_toy_recipe(tmp_path)
    with (tmp_path / "toy.de").open("a") as de, (tmp_path / "toy.en").open("a") as en:
        de.write("Ein\u2028Absatz und\x85mehr\n\n")
        en.write("a\u2028paragraph and\x85more\nempty\n")
    return recipe


def load(recipe_file: Path, *overrides: str) -> TranslationRecipe:
    found = load_recipe(str(recipe_file), [f"data.cache={recipe_file.parent}/cache", *overrides])
    assert isinstance(found, TranslationRecipe)
    return found


def files(recipe_file: Path) -> set[str]:
    return {path.name for path in (recipe_file.parent / "cache").iterdir()}


def is_found(recipe_file: Path, *overrides: str) -> bool:
    """Whether the corpus is in the cache, which holds it afterwards."""
    cache = recipe_file.parent / "cache"
    before = files(recipe_file) if cache.exists() else set()
    read_corpus(load(recipe_file, *overrides))
    return files(recipe_file) == before


def test_what_is_found_is_what_was_made(recipe_file: Path, tmp_path: Path) -> None:
    plain = load_recipe(str(recipe_file), [])
    assert isinstance(plain, TranslationRecipe)
    run = tmp_path / "run"
    without = prepare(plain, run)
    assert not (tmp_path / "cache").exists()
    made, found = (prepare(load(recipe_file), run) for _ in range(2))
    assert len(files(recipe_file)) == 2
    for data in (made, found):
        assert data.digest == without.digest
        assert list(data.train.chunks()) == list(without.train.chunks())
        assert data.validation == without.validation
        assert data.report == without.report
        assert data.epoch(1) == without.epoch(1)


def test_a_hit_reads_no_text(recipe_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read_corpus(load(recipe_file))

    def refuse(*_: object) -> Corpus:
        raise AssertionError("the text was read")

    monkeypatch.setattr("training.tasks.translation.iterate_pairs", refuse)
    assert read_corpus(load(recipe_file)) == first


def test_ids_belong_to_one_vocabulary(recipe_file: Path, tmp_path: Path) -> None:
    prepare(load(recipe_file), tmp_path / "run")
    size = Tokenizer(tmp_path / "run" / "tokenizer.model").vocab_size - 20
    other = prepare(load(recipe_file, f"model.vocab_size={size}"), tmp_path / "other")
    assert len(files(recipe_file)) == 3
    chunk = next(other.train.chunks())
    assert chunk.ids[0][0] == other.tokenizer.encode(chunk.texts[0][0])


@pytest.mark.parametrize(
    "override",
    [
        "data.filters=[{name: length}]",
        "data.max_length_ratio=2",
        "data.held_out_pairs=30",
        "data.source_language=fr",
        "loop.seed=2",
    ],
)
def test_whatever_changes_the_clean_text_is_another_entry(recipe_file: Path, override: str) -> None:
    assert not is_found(recipe_file)
    assert is_found(recipe_file)
    assert not is_found(recipe_file, override)
    assert is_found(recipe_file, override)


@pytest.mark.parametrize(
    "override",
    ["data.max_pieces=50", "data.noise={lower: 0.5}", "loop.max_steps=7", "data.token_budget=99"],
)
def test_whatever_does_not_is_the_same(recipe_file: Path, override: str) -> None:
    assert not is_found(recipe_file)
    assert is_found(recipe_file, override)


def test_other_text_is_another_entry(recipe_file: Path) -> None:
    assert not is_found(recipe_file)
    with (recipe_file.parent / "toy.de").open("a") as de:
        de.write("Hallo\n")
    with (recipe_file.parent / "toy.en").open("a") as en:
        en.write("hello\n")
    assert not is_found(recipe_file)


def test_other_validation_text_is_another_entry(recipe_file: Path) -> None:
    folder = recipe_file.parent
    for name in ("toy.de", "toy.en"):
        shutil.copy(folder / name, folder / f"valid.{name}")
    override = f"data.validation={{source: {folder}/valid.toy.de, target: {folder}/valid.toy.en}}"
    assert not is_found(recipe_file, override)
    (folder / "valid.toy.de").write_text((folder / "toy.de").read_text().replace("Der", "Dar"))
    assert not is_found(recipe_file, override)


def test_a_file_that_cannot_be_read_is_made_anew(
    recipe_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = read_corpus(load(recipe_file))
    (name,) = files(recipe_file)
    path = recipe_file.parent / "cache" / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert read_corpus(load(recipe_file)) == first
    assert f"{path}: cannot be read and is made again" in caplog.text
    assert path.read_bytes() == whole


def test_a_cache_that_cannot_be_written_costs_nothing(
    recipe_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (recipe_file.parent / "cache").write_text("a file in the folder's place")
    with caplog.at_level(logging.WARNING):
        found = read_corpus(load(recipe_file))
    assert len(found.train) > 200
    assert "the cache of prepared text is not kept" in caplog.text


def test_a_missing_file_is_named(recipe_file: Path) -> None:
    (recipe_file.parent / "toy.en").unlink()
    with pytest.raises(CorpusError, match=r"toy\.en: cannot be read"):
        read_corpus(load(recipe_file))
