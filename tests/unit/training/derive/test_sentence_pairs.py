"""Tables of texts that mean the same, made of a translation recipe's text."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.toy.refusal import refusal
from training.__main__ import main
from training.corpora.labelled import read_sheet
from training.derive.sentence_pairs import MadePairs, make_pairs
from training.errors import ConfigError, CorpusError
from training.recipe.config import Recipe, load_recipe

GERMAN = [
    "Wo ist denn hier der Bahnhof?", "Wo ist hier der Bahnhof?", "Der Hund schläft im Garten.",
    "Ja.", "Morgen regnet es vielleicht.", "OK", "Was gemessen wird, bleibt draußen.",
]  # fmt: skip
ENGLISH = [
    "Where is the station?", "Where is the station?", "The dog sleeps in the garden.",
    "Yes.", "It may rain tomorrow.", "OK", "What is measured stays outside.",
]  # fmt: skip


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return written(tmp_path, GERMAN, ENGLISH)


def written(folder: Path, german: list[str], english: list[str], weight: float = 1.0) -> Recipe:
    """A recipe of two files in the folder."""
    for language, lines in (("de", german), ("en", english)):
        (folder / f"text.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "dev.de").write_text("Guten Morgen, ihr Lieben!\n", encoding="utf-8")
    (folder / "dev.en").write_text("Good morning, my dears!\n", encoding="utf-8")
    (folder / "recipe.yaml").write_text(
        "name: toy\nmodel: {preset: transformer_small}\ndata:\n"
        "  source_language: de\n  target_language: en\n"
        f"  train: [{{source: {folder}/text.de, target: {folder}/text.en, weight: {weight}}}]\n"
        f"  validation: {{source: {folder}/dev.de, target: {folder}/dev.en}}\n",
        encoding="utf-8",
    )
    return load_recipe(str(folder / "recipe.yaml"), [])


def table(path: Path) -> set[frozenset[str]]:
    """The two texts of each line, which may stand in either order."""
    return {frozenset(cells) for _, cells in read_sheet(path, (1, 2)).rows}


def test_translations_and_paraphrases_without_what_is_measured(
    recipe: Recipe, tmp_path: Path
) -> None:
    measured = tmp_path / "measured.tsv"
    measured.write_text("Was gemessen wird bleibt DRAUSSEN!\tSomething else\n".replace("SS", "ß"))
    out = tmp_path / "pairs.tsv"
    made = make_pairs(recipe, out, [measured], force=False)
    translations = {
        frozenset(pair)
        for pair in zip(GERMAN[:5], ENGLISH[:5], strict=True)
    }  # fmt: skip
    assert table(out) == translations | {frozenset(GERMAN[:2])}  # both are the English question
    assert made == MadePairs(out, translations=5, paraphrases=1, left_out=2)  # OK is OK


def test_either_text_stands_first_and_equal_text_makes_equal_files(tmp_path: Path) -> None:
    german = [f"Satz Nummer {number} ist ein Satz." for number in range(200)]
    english = [f"Sentence number {number} is a sentence." for number in range(200)]
    recipe = written(tmp_path, german, english)
    first, second = tmp_path / "a.tsv.gz", tmp_path / "b.tsv.gz"
    for out in (first, second):
        make_pairs(recipe, out, [], force=False)
    assert first.read_bytes() == second.read_bytes()
    lines = gzip.decompress(first.read_bytes()).decode().splitlines()
    assert 60 < sum(line.startswith("Satz") for line in lines) < 140
    assert lines != sorted(lines)


def test_a_weight_is_the_share_that_is_drawn(tmp_path: Path) -> None:
    german = [f"Satz Nummer {number} ist ein Satz." for number in range(400)]
    english = [f"Sentence number {number} is a sentence." for number in range(400)]
    out = tmp_path / "out.tsv"
    made = make_pairs(written(tmp_path, german, english, 0.25), out, [], force=False)
    assert 60 < made.translations < 140
    assert (
        make_pairs(written(tmp_path, german, english, 3), out, [], force=True).translations == 400
    )


def test_texts_with_many_translations_and_short_ones_make_no_paraphrases(tmp_path: Path) -> None:
    german = [f"Das ist die Antwort Nummer {number}." for number in range(13)]
    german += ["Ja klar.", "Ja doch."]
    english = ["That is one of the answers."] * 13 + ["Of course it is."] * 2
    out = tmp_path / "out.tsv"
    made = make_pairs(written(tmp_path, german, english), out, [], force=False)
    assert (made.translations, made.paraphrases) == (15, 0)


def test_what_cannot_be_made_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"OUT must end in \.tsv or \.tsv\.gz"):
        make_pairs(recipe, tmp_path / "pairs.csv", [], force=False)
    out = tmp_path / "pairs.tsv"
    with pytest.raises(CorpusError, match="no pair is left"):
        make_pairs(recipe, out, [tmp_path / "text.de"], force=False)
    assert not out.exists()
    out.write_text("mine\n")
    with pytest.raises(ConfigError, match="exists already; give --force"):
        make_pairs(recipe, out, [], force=False)
    with pytest.raises(ConfigError, match="not a recipe of translation"):
        make_pairs(load_recipe("bert-small", []), tmp_path / "new.tsv", [], force=False)


def test_the_command(recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "pairs.tsv"
    left = tmp_path / "text.de"
    assert main(["pairs", str(tmp_path / "recipe.yaml"), str(out)]) == 0
    assert '"translations": 6, "paraphrases": 1, "left_out": 1' in capsys.readouterr().out
    error = refusal(
        capsys, "pairs", str(tmp_path / "recipe.yaml"), str(left), "--leave-out", str(left)
    )
    assert "OUT must end in" in error


def test_texts_of_a_language_are_written_once(recipe: Recipe, tmp_path: Path) -> None:
    out, english = tmp_path / "pairs.tsv", tmp_path / "english.txt.gz"
    make_pairs(recipe, out, [], texts_of=("en", english), force=False)
    lines = gzip.decompress(english.read_bytes()).decode().splitlines()
    assert sorted(lines) == sorted({*ENGLISH} - {"OK"})
    with pytest.raises(ConfigError, match="--texts-of must name one of de, en, got 'fr'"):
        make_pairs(recipe, tmp_path / "other.tsv", [], texts_of=("fr", english), force=True)
    with pytest.raises(ConfigError, match="exists already"):
        make_pairs(recipe, tmp_path / "other.tsv", [], texts_of=("en", english), force=False)
