"""Several directions in one recipe: their corpora, tags, filters, shares and held-out pairs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from serving.bundle.tokenizer import Tokenizer
from tests.toy.languages import WORDS, translated, write_multilingual_recipe
from training.batches.batching import encode_prefix
from training.errors import ConfigError, CorpusError
from training.recipe.config import TranslationRecipe, load_recipe, recipe_from_dict
from training.recipe.filters import LanguageFilter, ScriptFilter
from training.recipe.sections import DataConfig, ParallelFiles
from training.tasks.translation import RunData, corpus_weights, prepare, read_corpus
from training.vocabularies.sentence_pieces import train_tokenizer

FR_EN = ParallelFiles(source="a.fr", target="a.en", directions="both")
ES_EN = ParallelFiles(file="b.tsv", source_language="es", directions="both", tag="<web>")


def config(*train: ParallelFiles, **changes: Any) -> DataConfig:
    return DataConfig(source_language="fr", target_language="en", train=train, **changes)


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_multilingual_recipe(tmp_path_factory.mktemp("several"), pairs=300)


def load(path: Path, *overrides: str) -> TranslationRecipe:
    recipe = load_recipe(str(path), list(overrides))
    assert isinstance(recipe, TranslationRecipe)
    return recipe


@pytest.fixture(scope="module")
def data(recipe_file: Path, tmp_path_factory: pytest.TempPathFactory) -> RunData:
    run = tmp_path_factory.mktemp("run")
    found = prepare(load(recipe_file), run)
    found.write(run)
    return found


# The recipe


def test_a_corpus_of_both_directions_is_two() -> None:
    some = config(FR_EN, ES_EN)
    assert some.directions == (("fr", "en"), ("en", "fr"), ("es", "en"), ("en", "es"))
    assert some.language_tags == {"en": "<2en>", "fr": "<2fr>", "es": "<2es>"}
    found = [(files.source, files.file, files.columns, files.tag) for files in some.corpora]
    assert found == [
        ("a.fr", None, None, None),
        ("a.en", None, None, None),
        (None, "b.tsv", None, "<web>"),
        (None, "b.tsv", (2, 1), "<web>"),
    ]
    named = ParallelFiles(file="c.parquet", columns=("x", "y"), directions="both")
    assert config(named).corpora[1].columns == ("y", "x")


def test_a_recipe_of_one_direction_has_no_tags() -> None:
    plain = ParallelFiles(source="a.fr", target="a.en")
    some = config(plain, ParallelFiles(source="b", target="c", target_language="en"))
    assert not some.is_multilingual
    assert some.language_tags == {}
    assert [files.source for files in some.corpora] == ["a.fr", "b"]


def test_many_languages_into_one_have_one_tag() -> None:
    some = config(
        ParallelFiles(source="a", target="b"),
        ParallelFiles(source="c", target="d", source_language="es"),
    )
    assert some.language_tags == {"en": "<2en>"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": [{"directions": "all"}]}, r"unknown data.train\[0\].directions 'all'"),
        (
            {"train": [{"target_language": "fr", "directions": "both"}, {}]},
            "translates 'fr' to itself",
        ),
        ({"train": [{"source_language": "ES"}, {}]}, "must be a lower-case language code"),
        ({"train": [{"source_language": "es"}]}, "are fr to en, but data.train is es to en"),
        (
            {"train": [{"directions": "both"}], "validation": {"target_language": "es"}},
            "data.validation is fr to es, but data.train has only fr to en, en",
        ),
        (
            {
                "train": [{"directions": "both"}],
                "filters": [{"name": "script", "target": ["greek"]}],
            },
            "filter script: source and target apply to one direction",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, Any], message: str) -> None:
    files = {"source": "a", "target": "b"}
    tree = changes | {"train": [files | each for each in changes["train"]]}
    if "validation" in tree:
        tree["validation"] = files | tree["validation"]
    tree |= {"source_language": "fr", "target_language": "en"}
    model = {"preset": "macaron_small", "vocab_size": 100}
    with pytest.raises(ConfigError, match=message):
        recipe_from_dict({"name": "x", "model": model, "data": tree})


# The text


def test_filters_judge_each_direction_by_its_own_languages() -> None:
    greek = ParallelFiles(source="a", target="b", source_language="el", directions="both")
    some = config(FR_EN, greek, filters=(ScriptFilter(),))
    pair = ("Καλημέρα σας", "good morning")
    drops = {
        direction: [step.start(direction)(pair) for step in some.steps_of(direction)]
        for direction in some.directions
    }
    assert drops == {
        ("fr", "en"): [True],
        ("en", "fr"): [True],
        ("el", "en"): [False],
        ("en", "el"): [True],
    }
    assert config(ParallelFiles(source="a", target="b"), filters=(ScriptFilter(),)).steps == (
        ScriptFilter(),
    )


def test_so_does_the_detector() -> None:
    some = config(FR_EN, ES_EN, filters=(LanguageFilter(),))
    pair = (
        "Je voudrais savoir où se trouve la gare la plus proche.",
        "I would like to know where the nearest station is.",
    )
    for direction, drops in ((("fr", "en"), False), (("es", "en"), True)):
        (step,) = some.steps_of(direction)
        assert step.start(direction)(pair) is drops
        assert step.start(direction[::-1])(pair[::-1]) is drops


def test_duplicates_are_those_of_one_direction(recipe_file: Path) -> None:
    tree = yaml.safe_load(recipe_file.read_text())
    first = tree["data"]["train"][0]
    tree["data"]["train"] = [first, {**first, "directions": "one"}]
    recipe = recipe_from_dict(tree)
    assert isinstance(recipe, TranslationRecipe)
    corpora = read_corpus(recipe).report.corpora
    assert [corpus.dropped["duplicates"] for corpus in corpora] == [0, 0, 300]


def test_pairs_are_held_out_in_all_directions_and_trained_on_in_none(data: RunData) -> None:
    directions = data.recipe.data.directions
    counts = Counter(data.validation_directions)
    assert set(counts) == {0, 1, 2, 3}
    assert max(counts.values()) - min(counts.values()) <= 2
    # So that each part of them is of all directions.
    assert len(set(data.validation_directions[:20])) == 4
    trained = {
        (*directions[chunk.origin], *pair) for chunk in data.train.chunks() for pair in chunk.texts
    }
    for number, (source, target) in zip(data.validation_directions, data.validation, strict=True):
        first, second = directions[number]
        assert target == translated(source, first, second)
        assert (first, second, source, target) not in trained
        assert (second, first, target, source) not in trained
    gone = sum(corpus.dropped["held out the other way"] for corpus in data.report.corpora)
    assert len(trained) + len(data.validation) + gone == 1200


def test_each_source_begins_with_the_tag_of_its_target(data: RunData) -> None:
    tags = {tag: language for language, tag in data.recipe.data.language_tags.items()}
    seen = set()
    for batch in data.epoch(0):
        for source, target in batch:
            tag, text = data.tokenizer.pieces(source[:1])[0], data.tokenizer.decode(source)
            wanted = {
                translated(text, language, tags[tag])
                for language in ("de", "en", "es")
                if language != tags[tag] and knows(language, text)
            }
            assert data.tokenizer.decode(target) in wanted
            assert not any(
                data.tokenizer.pieces([id_])[0] in tags for id_ in [*source[1:], *target]
            )
            seen.add(tag)
    assert seen == {"<2de>", "<2en>", "<2es>"}


def knows(language: str, text: str) -> bool:
    return all(word in WORDS[language] for word in text.split())


def test_a_corpus_tag_stands_behind_that_of_the_language(tmp_path: Path) -> None:
    path = tmp_path / "toy.model"
    texts = [f"{word} und {word} oder {word}" for word in ("hund", "katze", "maus", "haus")] * 9
    train_tokenizer(texts, path, vocab_size=279, symbols=["<web>"], controls=["<2fr>"])
    tokenizer = Tokenizer(path)
    ids = encode_prefix(tokenizer, "<2fr>", "<web>") + tokenizer.encode("hund")
    assert tokenizer.pieces(ids)[0] == "<2fr>"
    assert "<web>" in tokenizer.pieces(ids)
    assert tokenizer.decode(ids) == "<web> hund"
    # As text it is text, and comes back as such.
    assert tokenizer.control_id("<2fr>") not in tokenizer.encode("<2fr> hund")
    assert tokenizer.decode(tokenizer.encode("<2fr> hund")) == "<2fr> hund"
    for tag in ("<2es>", "<web>", "hund"):
        with pytest.raises(
            ConfigError, match=f"'{tag}' of a target language is not a control piece"
        ):
            encode_prefix(tokenizer, tag, None)


def test_a_language_tag_that_is_also_text_is_refused(recipe_file: Path, tmp_path: Path) -> None:
    tree = yaml.safe_load(recipe_file.read_text())
    path = tmp_path / "tagged.en"
    files = tree["data"]["train"][0]
    path.write_text(Path(files["source"]).read_text().replace("dog", "<2es>", 1))
    files["source"] = str(path)
    recipe = recipe_from_dict(tree)
    assert isinstance(recipe, TranslationRecipe)
    with pytest.raises(CorpusError, match=r"tagged\.en:\d+: the tag '<2es>' of data.train is also"):
        read_corpus(recipe)


def test_a_temperature_works_over_directions() -> None:
    some = config(
        ParallelFiles(source="a", target="b"),
        ParallelFiles(source="c", target="d"),
        ParallelFiles(source="e", target="f", source_language="es"),
        temperature=1e9,
    )
    sizes = {0: 100, 1: 500, 2: 200}
    weights = corpus_weights(some, sizes)
    shares = [weight * sizes[origin] for origin, weight in enumerate(weights)]
    assert shares == pytest.approx([400 / 6, 2000 / 6, 400], rel=1e-4)
    assert weights[0] == weights[1]


def test_the_run_reports_the_languages_of_its_validation_text(data: RunData) -> None:
    other = RunData(
        data.recipe,
        data.tokenizer,
        data.train,
        data.validation,
        data.report,
        data.validation_directions[::-1],
    )
    assert other.validation_digest != data.validation_digest


def test_the_cache_and_streams_keep_directions_apart(
    recipe_file: Path, data: RunData, tmp_path: Path
) -> None:
    cached = [f"data.cache={tmp_path}/cache", f"tokenizer.file={tmp_path}/toy.model"]
    (tmp_path / "toy.model").write_bytes(data.tokenizer.serialized())
    for number in range(2):
        found = prepare(load(recipe_file, *cached), tmp_path / f"run{number}")
        assert found.digest == data.digest
        assert found.validation_directions == data.validation_directions
    entries = set((tmp_path / "cache").iterdir())
    tree = yaml.safe_load(recipe_file.read_text())
    files = tree["data"]["train"][0]
    listing = "{" + ", ".join(f"{key}: {value}" for key, value in files.items()) + "}"
    one = listing.replace("both", "one")
    prepare(load(recipe_file, *cached, f"data.train=[{one}, {listing}]"), tmp_path / "other")
    assert len(set((tmp_path / "cache").iterdir()) - entries) == 2
    streamed = prepare(
        load(recipe_file, *cached, "data.streaming=200", f"data.validation={listing}"),
        tmp_path / "streamed",
    )
    parts = range(streamed.parts(0))
    sources = Counter(
        data.tokenizer.pieces(source[:1])[0]
        for part in parts
        for batch in streamed.epoch(0, part=part)
        for source, _ in batch
    )
    assert sources == {"<2de>": 300, "<2en>": 600, "<2es>": 300}
    assert Counter(streamed.validation_directions) == {0: 300, 1: 300}
