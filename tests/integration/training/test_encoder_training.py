"""Pre-training encoders, fitting them to labels and exporting what came of it, by the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from export.__main__ import main as export
from serving.bundle.folder import read_manifest
from serving.encoding.reader import Classifier, Embedder, probabilities
from serving.errors import TooLongError
from tests.toy.encoder_recipe import (
    write_classes,
    write_encoder_recipe,
    write_pairs,
    write_scores,
)
from tests.toy.refusal import refusal
from training.__main__ import main
from training.corpora.pairs import read_lines
from training.recipe.config import FineTuningRecipe, load_recipe
from training.results.report import read_curves
from training.runs.folder import load_encoder, read_run_recipe
from training.runs.log import read_metrics

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pre-trained run in BERT, and one fitted to classes in CLASSES; tests only read them."""
    folder = tmp_path_factory.mktemp("encoders")
    train(write_encoder_recipe(folder), folder / "bert")
    write_classes(folder / "classes.tsv")
    grid = ("--lr", "1e-4,5e-3", "--batch", "16", "--seeds", "1,2", "--epochs", "6")
    grid = (*grid, "data.attribution=kinds of things")
    finetune(folder / "bert", folder / "classes.tsv", folder / "classes", *grid)
    return folder


def train(recipe: Path, run: Path, *arguments: str) -> None:
    command = ["train", str(recipe), "--run", str(run), "--threads", "1", *arguments]
    assert main(command) == 0


def finetune(base: Path, task: Path, run: Path, *arguments: str) -> None:
    command = ["finetune", str(base), str(task), "--run", str(run), "--threads", "1", *arguments]
    assert main(command) == 0


def figures(run: Path) -> list[dict[str, Any]]:
    timing = ("time", "labels_per_second", "memory_mb", "matrix_share")
    return [{k: v for k, v in r.items() if k not in timing} for r in read_metrics(run)]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(list(arguments)) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_pretrained_run_holds_pieces_and_validation_text(folder: Path) -> None:
    run = folder / "bert"
    assert {path.name for path in run.iterdir()} == {
        "config.yaml", "corpus_report.json", "tokenizer.json", "validation.txt", "metrics.jsonl",
        "tensorboard", "checkpoints", "best",
    }  # fmt: skip
    assert read_run_recipe(run) == load_recipe(str(folder / "bert.yaml"), [])
    blank = [line for line in read_lines(folder / "valid.txt") if not line]
    assert len(read_lines(run / "validation.txt")) == len(blank) + 1
    first, last = (r for r in read_metrics(run) if r["kind"] == "validation")
    assert last["perplexity"] < first["perplexity"] < 80
    assert 0 < last["next_sentence_accuracy"] < 1


@pytest.mark.parametrize(
    "overrides",
    [
        ["optim.accumulation=2"],
        [
            "data.next_sentence=false",
            "loop.activation_checkpointing=true",
            "model.positions=rotary",
        ],
    ],
    ids=["pairs", "single"],
)
def test_a_resumed_run_repeats_the_unbroken_one(tmp_path: Path, overrides: list[str]) -> None:
    recipe = write_encoder_recipe(tmp_path)
    # 36 updates pass an end of an epoch; the break falls within a window of the log.
    overrides = [*overrides, "loop.max_steps=36", "loop.log_every=7", "loop.validate_every=12"]
    train(recipe, tmp_path / "whole", *overrides)
    train(recipe, tmp_path / "broken", *overrides, "--stop-after", "23")
    train(recipe, tmp_path / "broken", *overrides)
    assert figures(tmp_path / "broken") == figures(tmp_path / "whole")
    assert figures(tmp_path / "whole")[-2]["epoch"] >= 1
    last = "checkpoints/step_00000036/model.safetensors"
    whole, broken = (load_file(tmp_path / name / last) for name in ("whole", "broken"))
    assert all(torch.equal(broken[name], value) for name, value in whole.items())


def test_data_and_tokenizer_prepare_and_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = str(write_encoder_recipe(tmp_path))
    found = printed(capsys, "data", recipe, "--run", str(tmp_path / "run"), "--json")
    assert found["documents"] == 40
    assert found["tokens"] > 1000
    assert main(["tokenizer", recipe, "--run", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "run" / "tokenizer.json")


def test_the_best_of_a_grid_is_kept_with_what_the_others_came_to(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = folder / "classes"
    results = json.loads((run / "results.json").read_text())
    trials = results["trials"]
    assert list(trials) == [
        f"lr{rate}-epochs6-batch16-seed{seed}" for rate in ("0.0001", "0.005") for seed in (1, 2)
    ]
    best = results["best"]
    assert best["accuracy"] == max(trial["accuracy"] for trial in trials.values())
    assert best["accuracy"] > 0.9
    assert results["over_seeds"][1]["mean"] == pytest.approx(
        np.mean([trials[f"lr0.005-epochs6-batch16-seed{seed}"]["accuracy"] for seed in (1, 2)])
    )
    assert results["over_seeds"][1]["deviation"] == pytest.approx(
        np.std([trials[f"lr0.005-epochs6-batch16-seed{s}"]["accuracy"] for s in (1, 2)], ddof=1)
    )
    left = [path for path in run.rglob("model.safetensors") if "trials" in path.parts]
    assert left == []  # the best one's weights are the run's own
    recipe = read_run_recipe(run)
    assert isinstance(recipe, FineTuningRecipe)
    assert recipe.data.labels == ("age", "colour", "size")
    assert recipe.optim.warmup_steps == round(0.1 * recipe.loop.max_steps)
    assert recipe.loop.max_steps == 6 * -(-216 // 16)
    # The metric is that of the checkpoint, measured anew on the lines that were held out.
    table = folder / "held_out.tsv"
    cells = [line.split("\t") for line in read_lines(run / "validation.tsv")]
    assert len(cells) == 24
    table.write_text("".join(f"{label}\t{text}\n" for text, label in cells))
    found = printed(capsys, "evaluate", str(run), str(table))
    assert (found["accuracy"], found["lines"]) == (best["accuracy"], 24)
    assert read_curves([run])[0].curve("validation", "accuracy")


def test_the_same_command_gives_the_result_again_and_another_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = (str(folder / "bert"), str(folder / "classes.tsv"), "--run", str(folder / "classes"))
    grid = ("--batch", "16", "--seeds", "1,2", "--epochs", "6")
    command = ["finetune", *task, *grid, "data.attribution=kinds of things"]
    results = json.loads((folder / "classes" / "results.json").read_text())
    found = printed(capsys, *command, "--lr", "1e-4,5e-3")
    assert found["best"] == results["best"]
    message = refusal(capsys, *command, "--lr", "1e-3")
    assert "holds the result of another grid" in message


def test_a_broken_grid_goes_on_where_it_was(folder: Path, tmp_path: Path) -> None:
    grid = ("--lr", "5e-3", "--seeds", "1,2", "--epochs", "1")
    base, task = folder / "bert", folder / "classes.tsv"
    finetune(base, task, tmp_path / "whole", *grid)
    finetune(base, task, tmp_path / "broken", *grid)
    results = (tmp_path / "whole" / "results.json").read_text()
    trial = tmp_path / "broken" / "trials" / "lr0.005-epochs1-batch32-seed2" / "results.json"
    before = trial.read_text()
    (tmp_path / "broken" / "results.json").unlink()
    trial.unlink()
    finetune(base, task, tmp_path / "broken", *grid)
    assert trial.read_text() == before
    found, wanted = (
        json.loads((tmp_path / "broken" / "results.json").read_text()),
        json.loads(results),
    )
    assert found["trials"] == wanted["trials"]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_fitted_run_becomes_a_classifier(folder: Path, tmp_path: Path, precision: str) -> None:
    run, out = folder / "classes", tmp_path / "kinds"
    assert export(["bundle", str(run), str(out), "--precision", precision]) == 0
    manifest = read_manifest(out)
    assert (manifest.task, manifest.precision) == ("classify", precision)
    assert manifest.reading is not None
    assert manifest.reading.labels == ("age", "colour", "size")
    parity, (quality,) = manifest.parity, manifest.quality
    assert abs(parity["metric_bundle"] - parity["metric_checkpoint"]) <= 0.5
    assert (quality.metric, quality.value) == ("accuracy", parity["metric_bundle"])
    assert parity["data"] == "validation.tsv"
    assert manifest.attribution == "generated by tests/toy/encoder_recipe.py; kinds of things"
    assert manifest.recipe["data"]["train"] == f"{folder.name}/classes.tsv"  # not where it lay
    trained = load_encoder(run)
    text = "the old cat sees the tree ."
    classifier = Classifier(out, threads=1)
    ids = torch.tensor([classifier.encode(text).ids])
    wanted = probabilities(trained.model(ids).detach().numpy())[0]
    found = dict(classifier.classify([text])[0])
    assert max(found, key=found.__getitem__) == "age"
    np.testing.assert_allclose([found[label] for label in manifest.reading.labels], wanted,
                               atol=1e-4 if precision == "fp32" else 0.02)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("positions", "precision"), [("rotary", "int8"), ("relative", "fp32")])
def test_positions_that_attention_tells_go_from_text_to_a_classifier(
    tmp_path: Path, positions: str, precision: str
) -> None:
    base, run, out = (tmp_path / name for name in ("base", "run", "kinds"))
    train(write_encoder_recipe(tmp_path), base, f"model.positions={positions}")
    task = write_classes(tmp_path / "classes.tsv")
    grid = ("--lr", "5e-3", "--epochs", "6", "--batch", "16", "--seeds", "2")
    finetune(base, task, run, *grid)
    assert json.loads((run / "results.json").read_text())["best"]["accuracy"] > 0.9
    assert export(["bundle", str(run), str(out), "--precision", precision]) == 0
    classifier = Classifier(out, threads=1)
    assert classifier.classify(["the old cat sees the tree ."])[0][0][0] == "age"
    longest = "the old cat sees the tree . " * 30  # beyond the fitted run's data.max_length
    with pytest.raises(TooLongError, match="a text must have at most 48 tokens"):
        classifier.classify([longest])


def test_scores_become_a_classifier_of_one_class(folder: Path, tmp_path: Path) -> None:
    task = write_scores(tmp_path / "scores.jsonl")
    finetune(folder / "bert", task, tmp_path / "run", "--lr", "1e-2", "--epochs", "6")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert (results["kind"], results["metric"]) == ("regression", "spearman")
    assert results["best"]["spearman"] > 0.7
    out = tmp_path / "worth"
    assert export(["bundle", str(tmp_path / "run"), str(out), "--precision", "fp32"]) == 0
    classifier = Classifier(out, threads=1)
    assert classifier.reading.labels == ("score",)
    texts = ["the big cat sees the tree .", "the small cat sees the tree ."]
    big, small = (answer[0][1] for answer in classifier.classify(texts))
    assert big > small


def test_pairs_become_an_embedder(folder: Path, tmp_path: Path) -> None:
    task = write_pairs(tmp_path / "pairs.csv")
    # Until each finds its own: where some do not, int8 may tell others apart, or fewer.
    fitted = ("--kind", "contrastive", "--lr", "5e-3", "--epochs", "8", "data.symmetric=true")
    finetune(folder / "bert", task, tmp_path / "run", *fitted)
    out = tmp_path / "alike"
    assert export(["bundle", str(tmp_path / "run"), str(out)]) == 0
    manifest = read_manifest(out)
    assert (manifest.task, manifest.precision) == ("encode", "int8")
    assert manifest.parity["cosine_mean"] >= 0.99
    vectors = Embedder(out, threads=1).embed(
        ["the old cat sees the tree .", "sees, old cat", "likes, big river"]
    )
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]


def test_curves_of_encoders_are_drawn(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "both.html"
    runs = [str(folder / "bert"), str(folder / "classes")]
    assert main(["report", *runs, "--output", str(page)]) == 0
    for title in ("Validation perplexity", "Next sentences recognised", "Validation accuracy"):
        assert title in page.read_text()


def test_layers_of_a_pretrained_run_are_left_out(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "pruned"
    assert main(["prune", str(folder / "bert"), str(out), "--encoder-layers", "1"]) == 0
    assert read_run_recipe(out).model.num_encoder_layers == 1
    finetune(out, folder / "classes.tsv", tmp_path / "run", "--epochs", "1")


def test_a_fitted_encoder_is_fitted_again_and_keeps_its_encoder(
    folder: Path, tmp_path: Path
) -> None:
    task = write_pairs(tmp_path / "pairs.csv", 60)
    once = ("--kind", "contrastive", "--epochs", "1", "--lr", "1e-12", "optim.weight_decay=0")
    finetune(folder / "classes", task, tmp_path / "run", *once)
    before, after = load_encoder(folder / "classes").model, load_encoder(tmp_path / "run").model
    theirs = before.encoder.state_dict()
    for name, value in after.encoder.state_dict().items():
        torch.testing.assert_close(value, theirs[name], rtol=0, atol=1e-6)


def test_labels_that_training_never_saw_are_reported(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dev = tmp_path / "dev.tsv"
    dev.write_text("age\tthe old cat .\nweight\tthe big cat .\n")
    task = str(folder / "classes.tsv")
    message = refusal(capsys, "finetune", str(folder / "bert"), task, "--dev", str(dev),
                      "--run", str(tmp_path / "run"))  # fmt: skip
    assert f"{dev}:2: the label 'weight' is not one of the 3 in training" in message
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("name", "text", "words", "message"),
    [
        ("a.tsv", "size\tthe big cat\nage\tthe old cat\nsize\tthe red cat\n", [], None),
        ("a.tsv", "the cat\t0.5\nthe dog\t1.5\nthe bird\t1\n", [], None),
        ("a.csv", "a,b\nc,d\ne,f\n", ["--kind", "contrastive"], None),
        ("a.tsv", "a\tx\nb\ty\nc\tz\n", [], "a.tsv: no line is left to validate on"),
        ("a.csv", "a,b\nc,d\n", ["--kind", "contrastive"], "at least 2 lines must be left"),
        ("a.jsonl", '{"text": "a", "label": ["x", "y"]}\n' * 3, [], "a line has one label"),
    ],
)
def test_three_lines_are_learnt_or_what_is_needed_is_reported(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    text: str,
    words: list[str],
    message: str | None,
) -> None:
    (tmp_path / name).write_text(text)
    words = [*words, "--epochs", "1"]
    if message is None:
        finetune(folder / "bert", tmp_path / name, tmp_path / "run", *words)
        assert (tmp_path / "run" / "best").is_dir()
        return
    task = [str(folder / "bert"), str(tmp_path / name), "--run", str(tmp_path / "run")]
    assert message in refusal(capsys, "finetune", *task, *words)
    assert not (tmp_path / "run").exists()


def test_a_metric_without_positives_is_reported(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task, dev = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    task.write_text("".join(f"the {w} cat .\t{w == 'old'}\n" for w in ("old", "big") * 20))
    dev.write_text("the red cat .\tFalse\n" * 3)
    finetune(folder / "bert", tmp_path, tmp_path / "run", "--metric", "f1", "--epochs", "1")
    assert "f1 undefined: no line is 'True'" in caplog.messages
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["best"]["f1_note"] == "undefined: no line is 'True'"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lr", "fast"], "--lr must be numbers separated by commas, got 'fast'"),
        (["--epochs", "0"], "--epochs must be numbers above 0, got '0'"),
        (["--kind", "double"], "--kind must be one of single, pair, regression, contrastive"),
        (["--metric", "pearson"], "loop.best_by of this model must be 'loss' or 'accuracy'"),
        (["data.max_length=99"], "data.max_length must be at most model.max_positions = 48"),
        (["--columns", "9,1"], "has 2 columns, column 9 is wanted"),
        (["--columns", "0,1"], "has 2 columns, column 0 is wanted"),
        (["--columns", "1"], "--columns must name one or two texts and the label, got [1]"),
    ],
)
def test_what_is_wrong_with_the_command_is_reported(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    task = [str(folder / "bert"), str(folder / "classes.tsv"), "--run", str(tmp_path / "run")]
    assert message in refusal(capsys, "finetune", *task, *words)


def test_other_runs_are_distinguished(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(["bundle", str(folder / "bert"), str(tmp_path / "out")]) == 1
    assert "fit it to labelled text: python -m macaron finetune" in capsys.readouterr().err
    assert export(["bundle", str(folder / "classes"), str(tmp_path / "out"), "--shortlist"]) == 1
    assert "--shortlist is not for an encoder" in capsys.readouterr().err
    few = tmp_path / "few.tsv"
    few.write_text("age\tthe old cat .\nsize\tthe big cat .\n")
    bundle = ["bundle", str(folder / "classes"), str(tmp_path / "out"), "--text", str(few)]
    assert export(bundle) == 1
    assert "at least 16 lines" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
