"""Corpora of several kinds, their shares, tags and noise, and the report of `data`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import torch
from pyarrow import parquet
from safetensors.torch import load_file

from tests.toy.corpus import toy_pairs
from tests.toy.recipe import write_toy_recipe
from tests.toy.refusal import refusal
from tests.toy.text import write_toy_text
from training.__main__ import main
from training.recipe.config import TranslationRecipe, load_recipe
from training.tasks.translation import RunData, prepare

pytestmark = pytest.mark.usefixtures("one_thread")

PAIRS = toy_pairs(300, seed=1)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return write_toy_recipe(tmp_path)


@pytest.fixture
def corpora(tmp_path: Path) -> dict[str, str]:
    """The toy corpus in three: 100 pairs of plain text, 150 in a TSV file, 50 in a Parquet file."""
    for side, name in enumerate(("a.de", "a.en")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS[:100]))
    (tmp_path / "b.tsv").write_text("".join(f"{en}\t{de}\n" for de, en in PAIRS[100:250]))
    columns = {"en": [en for _, en in PAIRS[250:]], "de": [de for de, _ in PAIRS[250:]]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "c.parquet")
    return {
        "plain": f"source: {tmp_path}/a.de, target: {tmp_path}/a.en",
        "tsv": f"file: {tmp_path}/b.tsv, columns: [2, 1]",
        "parquet": f"file: {tmp_path}/c.parquet, columns: [de, en]",
    }


def train_on(*corpora: str) -> str:
    listing = ", ".join(f"{{{corpus}}}" for corpus in corpora)
    return f"data.train=[{listing}]"


def prepared(recipe: Path, run: Path, *overrides: str) -> RunData:
    found = load_recipe(str(recipe), list(overrides))
    assert isinstance(found, TranslationRecipe)
    return prepare(found, run)


def sources(data: RunData, epoch: int = 0) -> Counter[str]:
    batches = data.epoch(epoch)
    return Counter(data.tokenizer.decode(source) for batch in batches for source, _ in batch)


def test_text_tsv_and_parquet_make_one_corpus(
    recipe: Path, corpora: dict[str, str], tmp_path: Path
) -> None:
    whole = prepared(recipe, tmp_path / "whole")
    parts = prepared(recipe, tmp_path / "parts", train_on(*corpora.values()))
    assert (parts.digest, parts.validation) == (whole.digest, whole.validation)


def test_a_temperature_gives_small_corpora_more(
    recipe: Path, corpora: dict[str, str], tmp_path: Path
) -> None:
    overrides = [train_on(*corpora.values()), "data.held_out_pairs=1"]
    plain = prepared(recipe, tmp_path / "run", *overrides)
    of_one = prepared(recipe, tmp_path / "run", *overrides, "data.temperature=1")
    assert of_one.digest == plain.digest
    even = prepared(recipe, tmp_path / "run", *overrides, "data.temperature=1e9")
    epoch = sources(even)
    parts = (PAIRS[:100], PAIRS[100:250], PAIRS[250:])
    counts = [sum(epoch[de] for de, _ in part) for part in parts]
    assert sum(counts) == epoch.total()
    assert all(85 < count < 115 for count in counts)


def test_a_tag_is_a_piece_of_its_own_before_the_sources_of_its_corpus(
    recipe: Path, corpora: dict[str, str], tmp_path: Path
) -> None:
    plain, tsv, table = corpora.values()
    data = prepared(
        recipe,
        tmp_path / "run",
        train_on(plain, f"{tsv}, tag: <web>", f"{table}, tag: <web>"),
        "data.held_out_pairs=1",
    )
    found = sources(data)
    assert {source for source in found if not source.startswith("<web> ")} <= {
        de for de, _ in PAIRS[:100]
    }
    tagged = {source.removeprefix("<web> ") for source in found if source.startswith("<web> ")}
    assert 195 <= len(tagged) <= 200
    assert tagged <= {de for de, _ in PAIRS[100:]}
    assert "<web>" in data.tokenizer.pieces(data.tokenizer.encode("<web> Hallo"))


def test_tags_are_refused_where_they_are_text_or_no_piece(
    recipe: Path, corpora: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, tsv, _ = corpora.values()
    run = ["train", str(recipe), "--run", str(tmp_path / "run")]
    assert main(["tokenizer", str(recipe), "--run", str(tmp_path / "plain")]) == 0
    model = f"tokenizer.file={tmp_path}/plain/tokenizer.model"
    error = refusal(capsys, *run, train_on(plain, f"{tsv}, tag: <web>"), model)
    assert "the tag '<web>' of data.train is not a piece of the run's vocabulary" in error
    assert "without tokenizer.file" in error
    with (tmp_path / "b.tsv").open("a") as file:
        file.write("the tag <web>\tdas <web>\n")
    error = refusal(capsys, *run, train_on(f"{plain}, tag: <web>", tsv))
    assert error.endswith(
        f"{tmp_path}/b.tsv:151: the tag '<web>' of data.train is also text here; choose another tag"
    )


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ("file: {}/b.tsv, columns: [1, 3]", "b.tsv:1: 2 columns separated by tabs, column 3"),
        ("file: {}/b.tsv, columns: [de, en]", "b.tsv:1: no column 'de'"),
        ("file: {}/c.parquet, columns: [de, eng]", "c.parquet: no column 'eng'; did you mean 'en'"),
        ("source: {}/a.de, target: {}/short.en", "short.en:3: line missing"),
        ("source: {}/a.de, target: {}/empty.zst", "empty.zst: cannot be read"),
        ("file: {}/empty.tsv", "empty.tsv:1: the file has no pairs"),
        ("file: {}/mixed.tsv", "mixed.tsv:2: not UTF-8"),
    ],
)
def test_a_corpus_that_cannot_be_used_is_one_line_before_the_work(
    recipe: Path,
    corpora: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    corpus: str,
    message: str,
) -> None:
    (tmp_path / "short.en").write_text("one\ntwo\n")
    (tmp_path / "empty.tsv").touch()
    (tmp_path / "empty.zst").write_bytes(b"\x00")
    (tmp_path / "mixed.tsv").write_bytes("ä\ta\n".encode() + "ö\to\n".encode("latin-1"))
    override = train_on(corpora["plain"], corpus.format(tmp_path, tmp_path))
    error = refusal(capsys, "train", str(recipe), "--run", str(tmp_path / "run"), override)
    assert message in error
    assert not (tmp_path / "run").exists()


def test_a_corpus_has_no_part_in_epochs_that_begin_after_its_last_step(
    recipe: Path, corpora: dict[str, str], tmp_path: Path
) -> None:
    plain, tsv, table = corpora.values()
    overrides = ["data.held_out_pairs=1", "data.subword_alpha=0"]
    weighted = [f"{plain}, weight: 2", f"{tsv}, until_step: 5", f"{table}, until_step: 9"]
    data = prepared(recipe, tmp_path / "run", train_on(*weighted), *overrides)
    whole = prepared(recipe, tmp_path / "run", train_on(weighted[0], tsv, table), *overrides)
    assert data.epoch(1, 4) == whole.epoch(1)
    assert (data.change_after(0), data.change_after(5), data.change_after(9)) == (5, 9, None)
    first, second, third = (
        {source for source, _ in part} for part in (PAIRS[:100], PAIRS[100:250], PAIRS[250:])
    )
    for begun, ended in ((0, set[str]()), (5, second), (9, second | third)):
        batches = data.epoch(1, begun)
        found = {data.tokenizer.decode(source) for batch in batches for source, _ in batch}
        assert not found & ended
        assert len((first | second | third) - ended - found) <= 1  # but for what is held out


def test_a_run_with_a_corpus_that_ends_repeats_the_unbroken_one(
    recipe: Path, corpora: dict[str, str], tmp_path: Path
) -> None:
    plain, tsv, table = corpora.values()
    listing = train_on(f"{plain}, weight: 2", f"{tsv}, until_step: 8", f"{table}, until_step: 20")

    def train(name: str, *arguments: str) -> dict[str, torch.Tensor]:
        command = ["train", str(recipe), "--run", str(tmp_path / name), "--threads", "1"]
        assert main([*command, NOISE, listing, "loop.max_steps=30", *arguments]) == 0
        (last,) = sorted((tmp_path / name / "checkpoints").iterdir())[-1:]
        return load_file(last / "model.safetensors")

    whole = train("whole")
    for step in ("6", "8", "13"):  # before the first change, at it, amid the epoch behind it
        train("broken", "--stop-after", step)
    broken = train("broken")
    assert all(torch.equal(broken[name], value) for name, value in whole.items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("until_step: 0", ""), "data.train[0].until_step must be >= 1, got 0"),
        (
            ("until_step: 7", "until_step: 19"),
            "until_step ends the last corpus at 19, before loop.max_steps = 20",
        ),
        (("until_step: 7", "weight: 0"), "until_step ends the last corpus at 7, before"),
    ],
)
def test_corpora_that_all_end_before_the_run_are_refused_before_the_work(
    recipe: Path,
    corpora: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, str],
    message: str,
) -> None:
    plain, tsv, _ = corpora.values()
    listing = train_on(f"{plain}, {options[0]}", f"{tsv}, {options[1]}")
    error = refusal(capsys, "train", str(recipe), "--run", str(tmp_path / "run"), listing)
    assert message in error
    assert not (tmp_path / "run").exists()


def test_a_corpus_of_which_nothing_is_left_cannot_be_the_last(
    recipe: Path, corpora: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, _, _ = corpora.values()
    (tmp_path / "odd.tsv").write_text("1\t2\n")
    listing = train_on(f"{plain}, until_step: 5", f"file: {tmp_path}/odd.tsv")
    numbers = "data.filters=[{name: numbers, min_digits: 1}]"
    error = refusal(capsys, "train", str(recipe), "--run", str(tmp_path / "run"), listing, numbers)
    assert "no training pair is left of the corpora that are trained on in the end" in error


NOISE = (
    "data.noise={lower: 0.2, title: 0.1, typos: 0.3, punctuation: 0.2, accents: 0.2, join: 0.2, "
    "copy: 0.1}"
)


@pytest.mark.parametrize(
    "sampling",
    [
        ["data.subword_alpha=0.3"],
        pytest.param(["data.bpe_dropout=0.1", "tokenizer.model_type=bpe"], marks=pytest.mark.slow),
    ],
    ids=["unigram", "bpe"],
)
def test_a_resumed_run_with_noise_repeats_the_unbroken_one(
    recipe: Path, tmp_path: Path, sampling: list[str]
) -> None:
    def train(name: str, *arguments: str) -> dict[str, torch.Tensor]:
        command = ["train", str(recipe), "--run", str(tmp_path / name), "--threads", "1"]
        overrides = [NOISE, *sampling, "loop.max_steps=50"]
        assert main([*command, *overrides, *arguments]) == 0
        (last,) = sorted((tmp_path / name / "checkpoints").iterdir())[-1:]
        return load_file(last / "model.safetensors")

    whole = train("whole")
    train("broken", "--stop-after", "33")  # amid the second epoch
    broken = train("broken")
    assert all(torch.equal(broken[name], value) for name, value in whole.items())


def test_noise_may_change_when_a_run_goes_on(recipe: Path, tmp_path: Path) -> None:
    command = ["train", str(recipe), "--run", str(tmp_path / "run"), "--threads", "1"]
    assert main([*command, "--stop-after", "10"]) == 0
    assert main([*command, NOISE]) == 0


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(["data", *arguments]) == 0
    return capsys.readouterr().out


def test_data_reports_corpora_shares_and_what_was_dropped(
    recipe: Path, corpora: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, tsv, table = corpora.values()
    with (tmp_path / "a.de").open("a") as de, (tmp_path / "a.en").open("a") as en:
        de.write("Seite 10\n\n")
        en.write("page 20\nempty\n")
    run = tmp_path / "run"
    arguments = [
        str(recipe), "--run", str(run), train_on(f"{plain}, weight: 2", tsv, f"{table}, weight: 0"),
        "data.filters=[{name: numbers}]", "data.held_out_pairs=1",
    ]  # fmt: skip
    found: dict[str, Any] = json.loads(report(capsys, *arguments, "--json"))
    first, second, third = found["corpora"]
    assert (first["pairs"], first["kept"]) == (102, 100)
    assert first["dropped"] == {"numbers": 1, "empty": 1}
    assert first["first_line"] == {
        "numbers": f"{tmp_path}/a.de:101",
        "empty": f"{tmp_path}/a.de:102",
    }
    assert (first["weight"], second["weight"], third["weight"]) == (2, 1, 0)
    assert found["unused"] == [f"{tmp_path}/c.parquet"]
    assert third["epoch_pairs"] == third["epoch_tokens_share"] == 0
    data = prepared(recipe, run, *arguments[3:])
    epoch = [pair for batch in data.epoch(0) for pair in batch]
    assert found["epoch_pairs"] == len(epoch)
    assert found["epoch_tokens"] == sum(len(source) + len(target) for source, target in epoch)
    shares = [corpus["epoch_pairs_share"] for corpus in found["corpora"]]
    assert sum(shares) == pytest.approx(1)
    assert shares[0] == pytest.approx(2 * first["trained_on"] / len(epoch), abs=1e-4)
    texts = [de for chunk in data.train.chunks() for de, _ in chunk.texts]
    pieces = [len(ids) for ids in data.tokenizer.encode_batch(texts)]
    words = sum(len(text.split()) for text in texts)
    assert found["source"]["words"] == words
    assert found["source"]["pieces_per_word"] == pytest.approx(sum(pieces) / words, abs=1e-4)
    assert found["source"]["pieces"]["longest"] == max(pieces)
    assert found["source"]["byte_share"] == 0
    assert json.loads((run / "corpus_report.json").read_text())["corpora"][0]["dropped"] == {
        "numbers": 1,
        "empty": 1,
    }
    assert not (run / "checkpoints").exists()
    table_ = report(capsys, *arguments)
    assert f"weight 0, never trained on: {tmp_path}/c.parquet" in table_
    assert "held out for validation: 1" in table_


def test_byte_pieces_are_counted(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["--run", str(tmp_path / "run")]
    assert main(["tokenizer", str(recipe), *run]) == 0
    with (tmp_path / "toy.de").open("a") as de, (tmp_path / "toy.en").open("a") as en:
        de.write("日本\n")
        en.write("Japan\n")
    model = f"tokenizer.file={tmp_path}/run/tokenizer.model"
    found = json.loads(
        report(capsys, str(recipe), "--run", str(tmp_path / "other"), model, "--json",
               "data.held_out_pairs=1")
    )  # fmt: skip
    total = found["source"]["pieces_per_word"] * found["source"]["words"]
    assert found["source"]["byte_share"] == pytest.approx(6 / total, rel=0.01)


def test_data_writes_nothing_into_a_run_that_has_begun(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(["train", str(recipe), "--run", str(run), "--threads", "1"]) == 0
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    report(capsys, str(recipe), "--run", str(run), "data.filters=[{name: length}]")
    assert {path.name: path.stat().st_mtime_ns for path in run.iterdir()} == before


def test_data_reports_on_the_text_of_a_language_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(write_toy_text(tmp_path)), "--run", str(tmp_path / "run")]
    found = json.loads(report(capsys, *arguments, "--json"))
    lines = (tmp_path / "train.txt").read_text().splitlines()
    assert found["kept"] == 400
    assert found["tokens"] == sum(len(line.split()) + 1 for line in lines)
    assert f"tokens: {found['tokens']}\n" in report(capsys, *arguments)
    assert (tmp_path / "run" / "vocab.txt").exists()
