"""Training and evaluating language models on a toy text, by the commands."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.toy.recipe import write_toy_recipe
from tests.toy.refusal import refusal
from tests.toy.text import write_toy_text
from training.__main__ import main
from training.corpora.pairs import read_lines
from training.errors import ConfigError
from training.recipe.config import LanguageRecipe, load_recipe
from training.results.perplexity import evaluate_text
from training.runs.folder import load_language_model, load_trained, read_run_recipe
from training.runs.log import read_metrics
from training.tasks.language import prepare_text

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in RUN of a recipe of words; tests only read it."""
    folder = tmp_path_factory.mktemp("text")
    train(write_toy_text(folder), folder / "run")
    return folder


def train(recipe: Path, run: Path, *arguments: str) -> None:
    command = ["train", str(recipe), "--run", str(run), "--threads", "1", *arguments]
    assert main(command) == 0


def evaluate(capsys: pytest.CaptureFixture[str], run: Path, *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["evaluate", str(run), *arguments, "--threads", "1"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def figures(run: Path) -> list[dict[str, Any]]:
    timing = ("time", "labels_per_second", "memory_mb", "matrix_share")
    return [{k: v for k, v in r.items() if k not in timing} for r in read_metrics(run)]


def test_a_run_folder_holds_vocabulary_and_validation_text(folder: Path) -> None:
    run = folder / "run"
    assert {path.name for path in run.iterdir()} == {
        "config.yaml", "corpus_report.json", "vocab.txt", "validation.txt", "metrics.jsonl",
        "tensorboard", "checkpoints", "best",
    }  # fmt: skip
    assert read_run_recipe(run) == load_recipe(str(folder / "text.yaml"), [])
    assert read_lines(run / "validation.txt") == read_lines(folder / "valid.txt")
    report = json.loads((run / "corpus_report.json").read_text())
    tokens = sum(len(line.split()) + 1 for line in read_lines(folder / "train.txt"))
    assert report == {"kept": 400, "tokens": tokens, "dropped": {}}


def test_the_loss_falls_and_perplexity_is_its_exponential(folder: Path) -> None:
    first, last = (r for r in read_metrics(folder / "run") if r["kind"] == "validation")
    assert last["loss"] < first["loss"] < 4.5
    assert last["perplexity"] == pytest.approx(math.exp(last["loss"]))


@pytest.mark.parametrize(
    "overrides",
    [
        ["data.batching=columns", "optim.accumulation=2"],
        pytest.param(["data.batching=documents"], marks=pytest.mark.slow),
        pytest.param(
            ["optim.optimizer=sgd", "optim.peak_lr=0.5", "optim.schedule=constant",
             "optim.clip_norm=5", "optim.weight_decay=2.4e-5", "model.norm=none"],
            marks=pytest.mark.slow),
    ],
    ids=["columns", "documents", "sgd"],
)  # fmt: skip
def test_a_resumed_run_repeats_the_unbroken_one(tmp_path: Path, overrides: list[str]) -> None:
    recipe = write_toy_text(tmp_path)
    # 110 updates pass an end of an epoch; the break falls within a window of the log.
    overrides = [*overrides, "loop.max_steps=110", "loop.log_every=7", "loop.validate_every=25"]
    train(recipe, tmp_path / "whole", *overrides)
    train(recipe, tmp_path / "broken", *overrides, "--stop-after", "46")
    train(recipe, tmp_path / "broken", *overrides)
    assert figures(tmp_path / "broken") == figures(tmp_path / "whole")
    assert figures(tmp_path / "whole")[-2]["epoch"] >= 1
    last = "checkpoints/step_00000110/model.safetensors"
    whole, broken = (load_file(tmp_path / name / last) for name in ("whole", "broken"))
    assert all(torch.equal(broken[name], value) for name, value in whole.items())


def test_pieces_in_place_of_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_toy_text(tmp_path, "sentencepiece")
    train(recipe, tmp_path / "run", "data.batching=documents", "model.block=macaron")
    assert (tmp_path / "run" / "tokenizer.model").is_file()
    text = str(tmp_path / "valid.txt")
    scores = evaluate(capsys, tmp_path / "run", text, "--protocol", "rolling")
    assert scores["tokens"] > scores["words"]
    total = scores["loss"] * scores["tokens"]
    assert scores["word_perplexity"] == pytest.approx(math.exp(total / scores["words"]))


@pytest.mark.parametrize("protocol", ["bptt", "sliding", "rolling"])
def test_evaluate_prints_perplexity(
    folder: Path, capsys: pytest.CaptureFixture[str], protocol: str
) -> None:
    text = folder / "valid.txt"
    scores = evaluate(capsys, folder / "run", str(text), "--protocol", protocol)
    lines = read_lines(text)
    words = sum(len(line.split()) for line in lines)
    whole = words + len(lines)
    tokens = {"bptt": whole // 20 * 20 - 20, "sliding": whole, "rolling": words}[protocol]
    assert scores["protocol"] == protocol
    assert scores["window"] == (70 if protocol == "bptt" else 16)
    assert (scores["documents"], scores["tokens"], scores["words"]) == (100, tokens, words)
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    assert 2 < scores["perplexity"] < 80
    if protocol == "rolling":
        assert scores["word_perplexity"] == pytest.approx(scores["perplexity"])


def test_evaluate_bptt_in_the_training_shape_equals_validation(folder: Path) -> None:
    recipe = load_recipe(str(folder / "text.yaml"), ["loop.bf16=false", "data.batch_size=20"])
    assert isinstance(recipe, LanguageRecipe)
    trained = load_language_model(folder / "run")
    data = prepare_text(recipe, folder / "run")
    validated = data.validate(trained.model)
    scores = evaluate_text(folder / "run", folder / "valid.txt", protocol="bptt", window=16)
    assert scores["loss"] == pytest.approx(validated["loss"], rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a language model on one text, with --protocol"),
        (["--window", "9"], "a language model on one text, with --protocol"),
        (["x", "--window", "9"], "--window belongs to --protocol"),
        (["x", "--protocol", "bptt"], "reference belongs to translation models"),
        (["--output", "x", "--protocol", "bptt"], "output belongs to translation models"),
        (["--protocol", "rolling", "--window", "1"], "--window must be >= 2, got 1"),
        (["x"], "a translation model is needed here"),
    ],
)
def test_what_evaluate_refuses(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    text = str(folder / "valid.txt")
    arguments = [text if argument == "x" else argument for argument in arguments]
    assert main(["evaluate", str(folder / "run"), text, *arguments]) == 1
    assert message in capsys.readouterr().err


def test_an_empty_text_has_no_perplexity(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = tmp_path / "empty.txt"
    text.write_text("\n")
    assert main(["evaluate", str(folder / "run"), str(text), "--protocol", "rolling"]) == 1
    assert "too short, no token can be scored" in capsys.readouterr().err


def test_each_kind_of_run_is_refused_where_the_other_is_needed(
    folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="a translation model is needed here"):
        load_trained(folder / "run")
    translation = tmp_path / "run"
    train(write_toy_recipe(tmp_path, pairs=120), translation, "loop.max_steps=1")
    with pytest.raises(ConfigError, match="a language model is needed here"):
        load_language_model(translation)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.vocab_size=90"], "set model.vocab_size="),
        (["data.batch_size=5000"], "validation needs two for each of data.batch_size = 5000"),
        (["data.validation=/nowhere"], "/nowhere: cannot be read"),
        (["tokenizer.file=/nowhere"], "no usable word list: /nowhere: cannot be read"),
        (["data.batching=rows"], "unknown data.batching 'rows'"),
        (["data.cleaning=wiki"], "did you mean 'wikitext'?"),
        (["data.source_language=de"], "unknown key 'data.source_language'"),
        (["tokenizer.kind=word"], "did you mean 'words'?"),
        (["optim.optimizer=sdg"], "did you mean 'sgd'?"),
        (["model.architecture=transformer"], "unknown key 'model."),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], overrides: list[str], message: str
) -> None:
    recipe, run = str(write_toy_text(tmp_path)), str(tmp_path / "run")
    assert message in refusal(capsys, "train", recipe, *overrides, "--run", run)


def test_a_run_is_not_resumed_on_other_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_toy_text(tmp_path)
    train(recipe, tmp_path / "run", "loop.max_steps=2")
    text = tmp_path / "train.txt"
    text.write_text("".join(f"{line}\n" for line in reversed(read_lines(text))))
    arguments = ["train", str(recipe), "loop.max_steps=4", "--run", str(tmp_path / "run")]
    assert "training text is no longer the one" in refusal(capsys, *arguments)


def test_a_translation_model_has_no_word_list(tmp_path: Path) -> None:
    recipe = write_toy_recipe(tmp_path, pairs=120)
    with pytest.raises(ConfigError, match="must be 'sentencepiece', got 'words'"):
        load_recipe(str(recipe), ["tokenizer.kind=words"])


def test_the_tokenizer_command_prints_the_word_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_toy_text(tmp_path)
    assert main(["tokenizer", str(recipe), "--run", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'run' / 'vocab.txt'}\n"
