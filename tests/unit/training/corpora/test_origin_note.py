"""Text that a bundle has made is trained on between its own languages alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.toy.recipe import write_toy_recipe
from training.corpora.origin_note import write_note
from training.errors import CorpusError
from training.recipe.config import TranslationRecipe, load_recipe
from training.tasks.translation import prepare, read_corpus


def recipe(folder: Path, **data: Any) -> TranslationRecipe:
    """Of the toy text, which a bundle is said to have made from German to English."""
    path = write_toy_recipe(folder, pairs=60)
    write_note(folder / "toy", ("de", "en"), "a-teacher")
    tree = yaml.safe_load(path.read_text())
    tree["data"] |= data
    path.write_text(yaml.safe_dump(tree))
    loaded = load_recipe(str(path), [])
    assert isinstance(loaded, TranslationRecipe)
    return loaded


def test_between_its_own_languages_it_is_like_any_text(tmp_path: Path) -> None:
    assert len(read_corpus(recipe(tmp_path)).train) == 40


def test_it_may_be_turned_round(tmp_path: Path) -> None:
    files = {"source": str(tmp_path / "toy.en"), "target": str(tmp_path / "toy.de")}
    turned = recipe(tmp_path, source_language="en", target_language="de", train=[files])
    assert len(read_corpus(turned).train) == 40
    both = {"source": files["target"], "target": files["source"], "directions": "both"}
    assert len(read_corpus(recipe(tmp_path, train=[both])).train) > 40


@pytest.mark.parametrize("languages", [("de", "fr"), ("en", "de"), ("fr", "en")])
def test_a_student_of_other_languages_is_refused_before_the_work(
    tmp_path: Path, languages: tuple[str, str]
) -> None:
    other = recipe(tmp_path, source_language=languages[0], target_language=languages[1])
    message = (
        "toy.de: made of de and en by a-teacher, and the recipe trains from "
        f"{languages[0]} to {languages[1]}"
    )
    for use in (read_corpus, lambda given: prepare(given, tmp_path / "run")):
        with pytest.raises(CorpusError, match=message) as error:
            use(other)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_without_its_note_it_is_text_like_any_other(tmp_path: Path) -> None:
    other = recipe(tmp_path, target_language="fr")
    for content in (b"no JSON", b"[]", b"{}"):
        (tmp_path / "toy.made.json").write_bytes(content)
        assert read_corpus(other).train
    (tmp_path / "toy.made.json").unlink()
    assert read_corpus(other).train
