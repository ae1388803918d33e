"""The commands of `python -m training` on the toy corpus."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.toy.corpus import toy_pairs
from tests.toy.recipe import write_toy_recipe
from tests.toy.run import ToyRun, train_toy
from training.__main__ import main
from training.corpora.pairs import read_lines
from training.loop.trainer import train
from training.metrics.bleu import measure_edit_rate, measure_quality
from training.recipe.config import load_recipe
from training.runs.checkpoint import list_checkpoints
from training.runs.folder import load_trained
from training.runs.log import read_metrics

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> ToyRun:
    """A finished run; tests only read it."""
    return train_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def small_recipe(tmp_path: Path) -> Path:
    return write_toy_recipe(tmp_path, pairs=120)


def run_training(recipe: Path, run: Path, *overrides: str) -> Path:
    return train(load_recipe(str(recipe), list(overrides)), run)


def output_of(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    capsys.readouterr()
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_tokenizer_prepares_a_run_without_training(
    small_recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    printed = output_of(capsys, ["tokenizer", str(small_recipe), "--run", str(run)])
    assert printed == f"{run}/tokenizer.model\n"
    assert sorted(path.name for path in run.iterdir()) == [
        "config.yaml", "corpus_report.json", "tokenizer.model", "validation.source",
        "validation.target",
    ]  # fmt: skip
    before = (run / "tokenizer.model").read_bytes()
    assert run_training(small_recipe, run, "loop.max_steps=1").name == "step_00000001"
    assert (run / "tokenizer.model").read_bytes() == before


def test_overrides_may_follow_options(
    small_recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    assert main(["train", str(small_recipe), "loop.seed=x", "--run", run, "loop.seed=y"]) == 1
    assert "loop.seed must be of type int, got 'y'" in capsys.readouterr().err
    for arguments in (["train", str(small_recipe), "--rum", run], ["average", run, "last=2"]):
        with pytest.raises(SystemExit):
            main(arguments)
        assert "unrecognized arguments" in capsys.readouterr().err


def test_average_writes_the_mean_of_the_last_checkpoints(
    toy: ToyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(toy.run, run)
    printed = output_of(capsys, ["average", str(run), "--last", "2"])
    assert printed == f"{run}/averaged\n"
    state = json.loads((run / "averaged" / "state.json").read_text())
    assert state["averaged"] == ["step_00000010", "step_00000020"]
    averaged = load_file(run / "averaged" / "model.safetensors")
    one, two = (load_file(path / "model.safetensors") for path in list_checkpoints(run))
    for name, value in averaged.items():
        torch.testing.assert_close(value, (one[name] + two[name]) / 2)
    assert load_trained(run).checkpoint == run / "averaged"

    assert main(["average", str(run)]) == 1
    assert "exists already; give --force" in capsys.readouterr().err
    output_of(capsys, ["average", str(run), "--last", "1", "--force"])
    again = load_file(run / "averaged" / "model.safetensors")
    assert all(torch.equal(value, two[name]) for name, value in again.items())


def test_average_takes_the_best_checkpoints(
    small_recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run_training(
        small_recipe, run, "loop.max_steps=9", "loop.validate_every=2", "loop.keep_checkpoints=1",
        "loop.checkpoint_every=9", "loop.keep_best=2", "optim.peak_lr=0.5",  # so that loss rises
        "optim.warmup_steps=4",
    )  # fmt: skip
    losses = {r["step"]: r["loss"] for r in read_metrics(run) if r["kind"] == "validation"}
    best = sorted(sorted(losses, key=losses.__getitem__)[:2])
    kept = [path.name for path in list_checkpoints(run)]
    assert kept == [f"step_{step:08d}" for step in sorted({*best, 9})]
    output_of(capsys, ["average", str(run), "--best", "2"])
    state = json.loads((run / "averaged" / "state.json").read_text())
    assert state["averaged"] == [f"step_{step:08d}" for step in best]
    with pytest.raises(SystemExit):
        main(["average", str(run), "--best", "2", "--last", "2"])


@pytest.mark.parametrize("last", ["0", "-1", "x"])
def test_average_wants_a_positive_number(toy: ToyRun, last: str) -> None:
    with pytest.raises(SystemExit):
        main(["average", str(toy.run), "--last", last])


def test_evaluate_scores_translations_and_writes_them_in_order(
    toy: ToyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = toy_pairs(6, seed=7)
    sources = [source for source, _ in pairs]
    sources.insert(2, "")
    references = [target for _, target in pairs]
    references.insert(2, "nothing")
    source, reference, output = (tmp_path / name for name in ("s", "r", "o"))
    source.write_text("".join(f"{line}\n" for line in sources))
    reference.write_text("".join(f"{line}\n" for line in references))
    arguments = [
        "evaluate", str(toy.run), str(source), str(reference), "--beam-size", "2",
        "--output", str(output), "--threads", "1",
    ]  # fmt: skip
    scores = json.loads(output_of(capsys, arguments))
    translations = read_lines(output)
    assert len(translations) == 7
    assert translations[2] == ""
    assert set(scores) == {
        "checkpoint", "sentences", "beam_size", "bleu", "bleu_signature", "chrf",
        "chrf_signature", "length_ratio", "ter", "ter_signature", "copied", "repeated",
        "numbers_kept", "placeholders_kept", "seconds",
    }  # fmt: skip
    quality = measure_quality(translations, references)
    for name, value in dataclasses.asdict(quality).items():
        assert scores[name] == value
    assert scores["ter"] == pytest.approx(measure_edit_rate(translations, references).ter)
    assert scores["placeholders_kept"] is None  # as no source has one
    assert scores["sentences"] == 7
    assert scores["beam_size"] == 2
    assert scores["checkpoint"] == str(toy.run / "best")

    assert main(arguments) == 1  # the output exists
    assert "give --force" in capsys.readouterr().err
    # Lines in another order give the same translations in that order.
    source.write_text("".join(f"{line}\n" for line in reversed(sources)))
    output_of(capsys, [*arguments, "--force"])
    assert read_lines(output) == translations[::-1]


@pytest.mark.parametrize("place", ["best", "checkpoints/step_00000010"])
def test_evaluate_takes_a_checkpoint_folder(
    toy: ToyRun, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    text = [str(toy.run / f"validation.{side}") for side in ("source", "target")]
    arguments = ["evaluate", str(toy.run / place), *text, "--beam-size", "1"]
    scores: dict[str, Any] = json.loads(output_of(capsys, arguments))
    assert scores["checkpoint"] == str(toy.run / place)


@pytest.mark.parametrize(
    ("checkpoint", "options", "message"),
    [
        ("nowhere", [], "no checkpoint"),
        ("", ["--beam-size", "0"], "beam_size must be"),
        ("", ["--beam-size", "10000"], "beam_size must be"),
        ("", ["--device", "abacus"], "device 'abacus'"),
        (
            "",
            ["--analysis", "length,size"],
            "['length', 'position', 'frequency'] separated by commas",
        ),
        ("", ["--analysis", ""], "separated by commas, got ''"),
    ],
)
def test_evaluate_refuses_in_one_line(
    toy: ToyRun,
    capsys: pytest.CaptureFixture[str],
    checkpoint: str,
    options: list[str],
    message: str,
) -> None:
    text = [str(toy.run / f"validation.{side}") for side in ("source", "target")]
    assert main(["evaluate", str(toy.run / checkpoint), *text, *options]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert "Traceback" not in captured.err


def test_evaluate_needs_aligned_text(
    toy: ToyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "short").write_text("one line\n")
    source = str(toy.run / "validation.source")
    assert main(["evaluate", str(toy.run), source, str(tmp_path / "short")]) == 1
    assert "short:2: line missing" in capsys.readouterr().err


def test_evaluate_analyses_what_is_asked_for(
    toy: ToyRun, capsys: pytest.CaptureFixture[str]
) -> None:
    text = [str(toy.run / f"validation.{side}") for side in ("source", "target")]
    arguments = ["evaluate", str(toy.run), *text, "--beam-size", "1", "--threads", "1"]
    asked = "frequency,length,position"
    scores = json.loads(output_of(capsys, [*arguments, "--analysis", asked]))
    analysis = scores["analysis"]
    assert set(analysis) == {"length", "position", "frequency"}
    assert sum(bucket["sentences"] for bucket in analysis["length"]) == scores["sentences"]
    words = sum(bucket["words"] for bucket in analysis["position"])
    assert words == sum(bucket["reference_words"] for bucket in analysis["frequency"])
    # 280 pairs train the toy, most with a full stop, and every noun is seen.
    assert analysis["frequency"][-1]["frequency"] == "101-1000"
    assert "0" not in {bucket["frequency"] for bucket in analysis["frequency"]}
    scores = json.loads(output_of(capsys, [*arguments, "--analysis", "length"]))
    assert set(scores["analysis"]) == {"length"}


def test_evaluate_scores_each_domain(
    toy: ToyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, reference = (toy.run / f"validation.{side}" for side in ("source", "target"))
    count = len(read_lines(source))
    domains, output = tmp_path / "domains", tmp_path / "output"
    domains.write_text("news\n" * 5 + "chat\n" * (count - 5))
    command = ["evaluate", str(toy.run), str(source), str(reference), "--beam-size", "1"]
    command += ["--domains", str(domains), "--output", str(output), "--threads", "1"]
    news, chat = json.loads(output_of(capsys, command))["analysis"]["domain"]
    assert (news["domain"], news["sentences"]) == ("news", 5)
    assert (chat["domain"], chat["sentences"]) == ("chat", count - 5)
    quality = measure_quality(read_lines(output)[:5], read_lines(reference)[:5])
    assert (news["bleu"], news["chrf"]) == (quality.bleu, quality.chrf)
    domains.write_text("news\n")
    assert main([*command, "--force"]) == 1
    assert "domains:2: line missing" in capsys.readouterr().err


def test_frequencies_need_the_training_text(
    toy: ToyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(toy.run, run)
    text = [str(toy.run / f"validation.{side}") for side in ("source", "target")]
    for place, message in (
        ("${MACARON_DATA}", "the environment variable MACARON_DATA is not set"),
        (str(tmp_path / "moved"), "cannot be read"),
    ):
        for config in (run / "config.yaml", run / "best" / "state.json"):
            config.write_text(
                (toy.run / config.relative_to(run))
                .read_text()
                .replace(str(toy.recipe.parent / "toy."), f"{place}/toy.")
            )
        monkeypatch.delenv("MACARON_DATA", raising=False)
        arguments = ["evaluate", str(run), *text, "--analysis", "position,frequency"]
        assert main(arguments) == 1
        error = capsys.readouterr().err
        assert "counts words in the run's training text" in error
        assert message in error


def test_scale_prints_the_papers_choice(capsys: pytest.CaptureFixture[str]) -> None:
    losses = ["--base-loss", "4", "--deeper-loss", "3.98937", "--wider-loss", "3.98931"]
    found = json.loads(output_of(capsys, ["scale", "--depth", "5", "--width", "4", *losses]))
    assert (found["alpha"], found["depth"], found["width"]) == (212, 7, 6)
    assert found["beta"] == 2
    assert found["probe"]["depth"] == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "got 0 runs and 0 of these options"),
        (["a", "b"], "scale needs three runs (BASE DEEPER WIDER) or all of --depth --width "),
        (["a", "b", "c", "--depth", "5"], "got 3 runs and 1 of these options"),
        (["a", "b", "c"], "a: neither a run"),
    ],
)
def test_scale_refuses_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scale", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_scale_refuses_a_run_of_another_architecture(
    toy: ToyRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scale", *[str(toy.run)] * 3]) == 1
    assert "model.architecture must be 'joint'" in capsys.readouterr().err
