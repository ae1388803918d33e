"""`python -m bench translate` as a whole, on a model too small to tell anything of speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import main
from bench.commands import decoding
from bench.runs.decoding.translate import SYSTEMS, TimedTranslation, run_translate
from bench.subjects.scenarios import OUR_INT8, PEER_INT8, Setting
from tests.conftest import single_thread
from tests.toy.recipe import write_toy_recipe
from training.loop.trainer import train
from training.recipe.config import load_recipe

OVERRIDES = ["model.block=standard", "model.dropout=0.0", "loop.max_steps=300"]
SENTENCES = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A baseline run that has learnt its text by heart, and text beside it."""
    folder = tmp_path_factory.mktemp("translate")
    recipe = load_recipe(str(write_toy_recipe(folder)), OVERRIDES)
    with single_thread():
        train(recipe, folder / "run")
    for name in ("toy.de", "toy.en"):
        lines = (folder / name).read_text().splitlines()[:SENTENCES]
        (folder / name).write_text("\n".join([*lines[:5], "", *lines[5:]]) + "\n")
    return folder


def arguments_for(folder: Path) -> list[str]:
    text = ["--source", str(folder / "toy.de"), "--reference", str(folder / "toy.en")]
    return ["translate", "--checkpoint", str(folder / "run"), *text]


@pytest.mark.slow
def test_both_translate_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[TimedTranslation] = []

    def run(*arguments: object) -> list[TimedTranslation]:
        found.extend(run_translate(*arguments))  # type: ignore[arg-type]
        return found

    monkeypatch.setattr(decoding, "run_translate", run)
    command = [*arguments_for(folder), "--repetitions", "2", "--threads", "1", "--busy"]
    assert main(command) == 0
    output = capsys.readouterr()
    ours, theirs = found
    assert (ours.system, theirs.system) == (OUR_INT8, PEER_INT8) == SYSTEMS
    assert ours.setting == theirs.setting == Setting(1, 1)
    same = sum(a == b for a, b in zip(ours.lines, theirs.lines, strict=True))
    assert same >= SENTENCES // 2  # int8 is rounded in two ways
    assert len(set(ours.lines)) > 1
    assert all(ours.lines)
    assert f"Same translations: {same} of {SENTENCES}; BLEU" in output.out
    for each in found:
        assert len(each.usages) == len(each.stages) == 2
        assert all(10 < usage.peak_rss / 2**20 < 2000 for usage in each.usages)
        for stages in each.stages:
            assert len(stages) == 4
            assert all(stage.seconds > 0 and stage.cpu_seconds > 0 for stage in stages)
            held = [stage.rss for stage in stages if stage.rss is not None]
            assert held == sorted(held)
    assert "repetition 2: CTranslate2, int8, 1 x 1 threads" in output.err
    rows = [line.split(" | ") for line in output.out.splitlines() if line.startswith("| ")]
    assert [row[0].removeprefix("| ") for row in rows[2:4]] == [each.name for each in SYSTEMS]
    assert len(rows) == 4 + 2 + 8


@pytest.mark.parametrize(
    "arguments", [[], ["--shape", "tiny"], ["--random-weights", "1"], ["--source", "a"]]
)
def test_random_weights_read_no_text(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["translate", *arguments]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: translate reads text, which models of random weights do ")
    assert "give --checkpoint RUN with --source FILE and --reference FILE" in output.err
