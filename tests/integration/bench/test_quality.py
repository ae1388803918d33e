"""`python -m bench quality` on runs too small to tell anything of quality."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bench.__main__ import main
from tests.toy.recipe import write_toy_recipe
from training.__main__ import main as training
from training.loop.trainer import train
from training.recipe.config import load_recipe

RUNS = {
    "one": ["loop.max_steps=30"],  # enough to write words
    "two": ["loop.max_steps=10", "loop.seed=2"],
    "baseline": ["loop.max_steps=10", "model.block=standard"],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of two architectures, and text beside them."""
    folder = tmp_path_factory.mktemp("runs")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    recipe = str(write_toy_recipe(folder))
    for name, overrides in RUNS.items():
        train(load_recipe(recipe, overrides), folder / name)
    torch.set_num_threads(threads)
    for side, name in (("source", "toy.de"), ("reference", "toy.en")):
        lines = (folder / name).read_text().splitlines()[:12]
        (folder / side).write_text("\n".join([*lines, ""]) + "\n")
    return folder


def arguments_for(runs: Path, *systems: str) -> list[str]:
    text = ["--source", str(runs / "source"), "--reference", str(runs / "reference")]
    chosen = [word for system in systems for word in ("--system", system)]
    return ["quality", *chosen, *text, "--beam-size", "2", "--threads", "1"]


def test_systems_are_compared(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systems = [f"transformer={runs}/baseline", f"macaron={runs}/one,{runs}/two"]
    record_file = tmp_path / "record.json"
    arguments = arguments_for(runs, *systems)
    assert main([*arguments, "--json", str(record_file)]) == 0
    output = capsys.readouterr()
    lines = output.out.splitlines()
    assert lines[0].startswith(f"`python -m bench quality --system {systems[0]} --system macaron=")
    assert "source, 13 sentences, beam 2." in lines
    assert any(line.startswith("| transformer | 1 | ") for line in lines)
    assert any(line.startswith("| macaron | 2 | ") for line in lines)
    assert output.err.count("macaron, run ") == 2

    record = json.loads(record_file.read_text())
    baseline, macaron = record["systems"]
    assert baseline["change"] is None
    first = macaron["runs"][0]
    assert macaron["change"]["mean"] == pytest.approx(
        first["quality"]["bleu"] - baseline["runs"][0]["quality"]["bleu"]
    )
    assert first["checkpoint"] == "best"
    assert first["training_hours"] > 0
    assert first["tokens_per_second"] > 0
    assert len(first["translations"]) == 13
    # The same figures as of evaluate.
    text = [str(runs / "source"), str(runs / "reference")]
    options = ["--beam-size", "2", "--analysis", "length,frequency"]
    assert training(["evaluate", str(runs / "one"), *text, *options]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["bleu"] == first["quality"]["bleu"]
    assert scores["analysis"] == {"length": first["lengths"], "frequency": first["frequencies"]}


def test_translations_of_a_file_are_a_run(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run and what it wrote are equal in every score; a file knows nothing of its making."""
    text = [str(runs / "source"), str(runs / "reference")]
    written = tmp_path / "one.txt"
    options = ["--beam-size", "2", "--output", str(written)]
    assert training(["evaluate", str(runs / "one"), *text, *options]) == 0
    record_file = tmp_path / "record.json"
    systems = [f"run={runs}/one", f"file={written}", f"both={written},{runs}/one"]
    assert main([*arguments_for(runs, *systems), "--json", str(record_file)]) == 0
    run, file, both = json.loads(record_file.read_text())["systems"]
    assert file["change"]["mean"] == both["change"]["mean"] == 0.0
    for name in ("quality", "lengths", "frequencies", "translations"):
        assert file["runs"][0][name] == run["runs"][0][name]
    assert {file["runs"][0][name] for name in ("checkpoint", "parameters", "training_hours")} == {
        None
    }
    assert both["runs"][1] == run["runs"][0] | {
        "tokens_per_second": both["runs"][1]["tokens_per_second"]
    }
    # The counts of words are those of the baseline's training text, which a file does not have.
    capsys.readouterr()
    assert main(arguments_for(runs, f"file={written}", f"other={runs}/two")) == 0
    output = capsys.readouterr().out
    assert "| file | 1 |  | " in output
    assert "F1 of words" not in output


@pytest.mark.parametrize(
    ("systems", "options", "message"),
    [
        (["a"], [], "--system must be NAME=RUN,RUN,... with one run at least, got 'a'"),
        (["a={0}/one", "a={0}/two"], [], "every --system must have a name of its own, got a, a"),
        (["a={0}/one,{0}/baseline"], [], "{0}/baseline: the runs of system 'a' must have one"),
        (["a={0}/source,{0}/toy.en"], [], "{0}/source:14: line missing; {0}/source has 13 lines"),
        (["a={0}/nowhere"], [], "{0}/nowhere: neither a run"),
        (["a={0}/one/best"], [], "{0}/one/best/metrics.jsonl: cannot be read"),
        (["a={0}/one"], ["--beam-size", "0"], "beam_size must be"),
        (["a={0}/one"], ["--threads", "100000"], "--threads must be in [1, "),
        (["a={0}/one"], ["--json", "{0}"], "--json must name a file, {0} is a folder"),
    ],
)
def test_bad_options_are_named(
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    systems: list[str],
    options: list[str],
    message: str,
) -> None:
    arguments = arguments_for(runs, *(system.format(runs) for system in systems))
    assert main([*arguments, *(option.format(runs) for option in options)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines()[-1].startswith(f"error: {message.format(runs)}")
