"""Corpora larger than memory: all pairs, in another order each epoch, part by part."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import training.batches.prepared
from serving.bundle.tokenizer import Tokenizer
from tests.toy.corpus import toy_pairs
from tests.toy.recipe import write_toy_recipe
from tests.toy.refusal import refusal
from training.__main__ import main
from training.batches.shards import RowWriter, WrittenRows
from training.batches.streaming import StreamedCorpus
from training.derive.data_report import describe
from training.errors import ConfigError, CorpusError
from training.recipe.config import TranslationRecipe, load_recipe
from training.tasks.translation import RunData, prepare

PAIRS = toy_pairs(600, seed=1)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Of two corpora: 200 pairs in two files of text, 400 in one of TSV."""
    recipe = write_toy_recipe(tmp_path)
    for side, name in enumerate(("a.de", "a.en")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS[:200]))
    (tmp_path / "b.tsv").write_text("".join(f"{de}\t{en}\n" for de, en in PAIRS[200:]))
    return recipe


def options(folder: Path, first: str = "", second: str = "", streaming: int = 100) -> list[str]:
    """Overrides; further keys of the two corpora."""
    corpora = f"{{source: {folder}/a.de, target: {folder}/a.en, {first}}}"
    return [
        f"data.train=[{corpora}, {{file: {folder}/b.tsv, {second}}}]",
        f"data.validation={{source: {folder}/toy.de, target: {folder}/toy.en}}",
        "data.held_out_pairs=0",
        f"data.cache={folder}/cache",
        f"data.streaming={streaming}",
    ]


def load(recipe: Path, *overrides: str) -> TranslationRecipe:
    found = load_recipe(str(recipe), list(overrides))
    assert isinstance(found, TranslationRecipe)
    return found


def stream(recipe: Path, *overrides: str) -> RunData:
    return prepare(load(recipe, *overrides), recipe.parent / "run")


def texts(data: RunData, epoch: int = 0, begun: int = 0) -> list[Counter[tuple[str, str]]]:
    """What each part of an epoch holds."""
    return [
        Counter(
            (data.tokenizer.decode(source), data.tokenizer.decode(target))
            for batch in data.epoch(epoch, begun, part)
            for source, target in batch
        )
        for part in range(data.parts(begun))
    ]


def test_each_pair_comes_once_an_epoch_in_parts_of_a_bounded_size(recipe: Path) -> None:
    data = stream(recipe, *options(recipe.parent))
    parts = texts(data)
    assert sum(parts, Counter()) == Counter(PAIRS)
    assert len(parts) == 6
    assert all(part.total() <= 101 for part in parts)
    whole = stream(recipe, *options(recipe.parent, streaming=0))
    assert sum(parts, Counter()) == sum(texts(whole), Counter())
    assert data.report == whole.report


def test_parts_hold_pairs_from_everywhere_and_others_in_each_epoch(recipe: Path) -> None:
    data = stream(recipe, *options(recipe.parent))
    place = {pair: number for number, pair in enumerate(PAIRS)}
    first, second = texts(data, 0), texts(data, 1)
    for part in first:
        places = sorted(place[pair] for pair in part)
        assert places[0] < 60
        assert places[-1] > 540
    assert len(first[0].keys() & second[0].keys()) < 40


@pytest.mark.parametrize("noise", ["", "data.noise={lower: 0.5, join: 0.2}"])
def test_seed_epoch_and_part_fix_the_batches_and_nothing_else_does(
    recipe: Path, noise: str
) -> None:
    overrides = [*options(recipe.parent, "weight: 1.5"), *([noise] if noise else [])]
    one, other = stream(recipe, *overrides), stream(recipe, *overrides)
    one.epoch(0)
    assert one.epoch(2, 0, 3) == other.epoch(2, 0, 3)
    assert one.epoch(2, 0, 3) != one.epoch(2, 0, 2)
    assert one.epoch(2, 0, 3) != stream(recipe, *overrides, "loop.seed=2").epoch(2, 0, 3)
    assert one.digest == other.digest


def test_weights_and_ends_of_corpora_count(recipe: Path) -> None:
    data = stream(recipe, *options(recipe.parent, "weight: 2.5", "until_step: 7"))
    found = sum(texts(data), Counter())
    assert {found[pair] for pair in PAIRS[:200]} == {2, 3}
    assert 460 < sum(found[pair] for pair in PAIRS[:200]) < 540
    assert {found[pair] for pair in PAIRS[200:]} == {1}
    after = sum(texts(data, 3, begun=7), Counter())
    assert set(after) == set(PAIRS[:200])


def test_tags_and_lengths_are_as_in_memory(recipe: Path) -> None:
    overrides = options(recipe.parent, second="tag: <web>")
    data = stream(recipe, *overrides, "data.max_pieces=18")
    memory = stream(recipe, *overrides, "data.max_pieces=18", "data.streaming=0")
    assert sum(texts(data), Counter()) == sum(texts(memory), Counter())
    assert data.report.to_dict() == memory.report.to_dict()
    assert data.report.dropped["too many pieces"] > 0
    assert describe(data) == describe(memory)


def test_text_of_which_every_pair_is_too_long_is_an_error(recipe: Path) -> None:
    data = stream(recipe, *options(recipe.parent), "data.max_pieces=1")
    assert data.report.dropped["too many pieces"] == 600
    with pytest.raises(CorpusError, match="no training pair is left"):
        data.epoch(0)


def test_what_was_prepared_is_found_again(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = stream(recipe, *options(recipe.parent))

    def refuse(*_: object) -> None:
        raise AssertionError("it was made anew")

    monkeypatch.setattr("training.tasks.translation.store_text", refuse)
    monkeypatch.setattr(training.batches.prepared, "store_ids", refuse)
    again = stream(recipe, *options(recipe.parent, streaming=50))
    assert again.digest == first.digest
    assert again.parts(0) == 12
    (recipe.parent / "b.tsv").write_text("anders\tother\n")
    with pytest.raises(AssertionError, match="made anew"):
        stream(recipe, *options(recipe.parent))


def test_text_that_cannot_be_used_leaves_nothing_behind(recipe: Path) -> None:
    with (recipe.parent / "a.de").open("a") as file:
        file.write("eins\nzwei\n")
    with pytest.raises(CorpusError, match=r"a\.en:201: line missing; .* has 202 lines"):
        stream(recipe, *options(recipe.parent))
    assert list((recipe.parent / "cache").iterdir()) == []
    filters = "data.filters=[{name: length, min_characters: 900}]"
    (recipe.parent / "a.de").write_text("eins\n" * 200)
    with pytest.raises(CorpusError, match=r"a\.de: no usable pair; kept 0 pairs"):
        stream(recipe, *options(recipe.parent), filters)


@pytest.mark.parametrize("key", ["cache", "validation"])
def test_streaming_needs_a_cache_and_a_validation_text(recipe: Path, key: str) -> None:
    chosen = [option for option in options(recipe.parent) if f".{key}=" not in option]
    with pytest.raises(ConfigError, match=rf"data\.streaming needs data\.{key}: it keeps the text"):
        load(recipe, *chosen, "data.held_out_pairs=1")


@pytest.mark.parametrize("dtype", ["u1", "<i4"])
def test_rows_are_read_as_they_were_written(tmp_path: Path, dtype: str) -> None:
    draw = random.Random(1)
    rows = [[draw.randrange(200) for _ in range(draw.randrange(4))] for _ in range(50)]
    rows[0] = []
    with RowWriter(tmp_path / "0-source", dtype) as writer:
        for first in range(0, 50, 20):
            writer.write([np.array(row, dtype).tobytes() for row in rows[first : first + 20]])
    found = WrittenRows(tmp_path / "0-source", dtype)
    assert len(found) == 50
    for first, last in ((0, 50), (0, 1), (7, 19), (49, 50)):
        assert [row.tolist() for row in found.read(first, last)] == rows[first:last]
        assert found.sizes(first, last).tolist() == [len(row) for row in rows[first:last]]
    with RowWriter(tmp_path / "none", dtype):
        pass
    assert len(WrittenRows(tmp_path / "none", dtype)) == 0


def peak(run: Callable[[], object]) -> int:
    """The most memory, in bytes, that something takes."""
    tracemalloc.start()
    run()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(recipe: Path) -> None:
    folder = recipe.parent
    assert main(["tokenizer", str(recipe), "--run", str(folder / "run")]) == 0
    draw = random.Random(1)
    words = " ".join(text for pair in PAIRS for text in pair).split()
    recipe_ = load(
        recipe, *options(folder, streaming=1000), "data.filters=[]",
        f"tokenizer.file={folder}/run/tokenizer.model",
    )  # fmt: skip

    def follow(pairs: int) -> None:
        """Prepare a corpus, and lay out parts of it."""
        with (folder / "b.tsv").open("w") as file:
            for number in range(pairs):
                file.write(f"{' '.join(draw.choices(words, k=12))}\t{number} house\n")
        data = prepare(recipe_, folder / "run")
        assert isinstance(data.train, StreamedCorpus)
        assert sum(data.train.trained_on) == 200 + pairs
        for part in range(3):
            assert 800 < sum(map(len, data.epoch(0, 0, part))) <= 1100

    small, large = (peak(lambda pairs=pairs: follow(pairs)) for pairs in (4000, 16_000))  # type: ignore[misc]
    assert large < 1.1 * small
    assert large < 16_000 * 500  # bytes; a pair in memory takes more than a thousand


def train(recipe: Path, name: str, *arguments: str) -> dict[str, torch.Tensor]:
    run = recipe.parent / name
    overrides = [*options(recipe.parent, "weight: 1.5", "until_step: 12"), "loop.max_steps=24"]
    noise = "data.noise={lower: 0.3, join: 0.2}"
    command = ["train", str(recipe), "--run", str(run), "--threads", "1", *overrides, noise]
    assert main([*command, "loop.bleu_sentences=0", "loop.log_every=4", *arguments]) == 0
    (last,) = sorted((run / "checkpoints").iterdir())[-1:]
    return load_file(last / "model.safetensors")


def test_a_resumed_run_repeats_the_unbroken_one(recipe: Path) -> None:
    whole = train(recipe, "whole")
    for step in ("12", "17"):
        train(recipe, "broken", "--stop-after", step)
    broken = train(recipe, "broken")
    assert all(torch.equal(broken[name], value) for name, value in whole.items())


@pytest.mark.slow
def test_two_processes_see_what_one_does(recipe: Path) -> None:
    exact = ["model.dropout=0", "loop.bf16=false"]
    one = train(recipe, "one", "optim.accumulation=2", *exact)
    two = train(recipe, "two", "--processes", "2", *exact)
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-3, atol=1e-4)


def test_a_run_goes_on_as_it_was_begun(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(recipe, "run", "--stop-after", "3")
    command = ["train", str(recipe), "--run", str(recipe.parent / "run")]
    error = refusal(capsys, *command, *options(recipe.parent, streaming=0))
    assert "was started with another 'data.streaming': 100 there, 0 now" in error


def test_the_vocabulary_is_that_of_text_in_memory(recipe: Path) -> None:
    overrides = options(recipe.parent)
    streamed = stream(recipe, *overrides)
    memory = prepare(load(recipe, *overrides, "data.streaming=0"), recipe.parent / "other")
    assert isinstance(streamed.tokenizer, Tokenizer)
    assert streamed.tokenizer.serialized() == memory.tokenizer.serialized()
