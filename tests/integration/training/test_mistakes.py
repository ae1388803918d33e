"""What a user does after an error: the advice that it gives works, and nothing learnt is lost."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file, save_file

from tests.toy.corpus import write_toy_corpus
from tests.toy.recipe import write_toy_recipe
from tests.toy.refusal import refusal
from tests.toy.run import ToyRun, train_toy
from tests.toy.text import write_toy_text
from training.__main__ import main
from training.errors import BrokenCheckpointError
from training.runs.checkpoint import list_checkpoints, load_weights, read_state
from training.runs.folder import load_trained, read_run_recipe
from training.runs.log import read_metrics

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> ToyRun:
    return train_toy(tmp_path_factory.mktemp("finished"))


@pytest.fixture
def toy(finished: ToyRun, tmp_path: Path) -> ToyRun:
    """A copy of a finished run that a test may break."""
    shutil.copytree(finished.run, tmp_path / "run")
    return ToyRun(finished.recipe, tmp_path / "run")


def train(toy: ToyRun, *overrides: str) -> None:
    command = ["train", str(toy.recipe), "--run", str(toy.run), "--threads", "1", *overrides]
    assert main(command) == 0


def refused(capsys: pytest.CaptureFixture[str], toy: ToyRun, *overrides: str) -> str:
    return refusal(capsys, "train", str(toy.recipe), "--run", str(toy.run), *overrides)


def contents(folder: Path) -> dict[str, bytes]:
    """All files but for what TensorBoard writes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "tensorboard" not in path.parts
    }


# Before a run has begun, its folder is anybody's


@pytest.mark.parametrize(
    ("wrong", "right", "says"),
    [
        (["model.vocab_size=3000"], ["model.vocab_size=330"], "no more pieces, got 3000"),
        (["data.held_out_pairs=300"], ["data.held_out_pairs=9"], "lower it or add text"),
        (["data.train=[{source: /nowhere.de, target: x}]"], [], "/nowhere.de: cannot be read"),
        (["data.max_pieces=1"], [], "no training pair is left"),
        (["loop.device=abacus"], [], "device 'abacus' cannot be used"),
    ],
    ids=["vocabulary", "held out", "path", "pieces", "device"],
)
def test_a_start_that_failed_claims_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    wrong: list[str],
    right: list[str],
    says: str,
) -> None:
    toy = ToyRun(write_toy_recipe(tmp_path), tmp_path / "run")
    assert says in refused(capsys, toy, *wrong)
    train(toy, "loop.max_steps=2", *right)
    assert len(list_checkpoints(toy.run)) == 1


def test_a_vocabulary_made_for_another_start_is_made_anew(tmp_path: Path) -> None:
    toy = ToyRun(write_toy_recipe(tmp_path), tmp_path / "run")
    command = ["tokenizer", str(toy.recipe), "--run", str(toy.run)]
    assert main([*command, "model.vocab_size=340"]) == 0
    train(toy, "loop.max_steps=2", "model.vocab_size=330")
    assert load_trained(toy.run).tokenizer.vocab_size == 330


def test_training_keeps_the_vocabulary_that_the_tokenizer_command_made(tmp_path: Path) -> None:
    toy = ToyRun(write_toy_recipe(tmp_path), tmp_path / "run")
    assert main(["tokenizer", str(toy.recipe), "--run", str(toy.run)]) == 0
    made = (toy.run / "tokenizer.model").stat()
    train(toy, "loop.max_steps=2", "optim.peak_lr=1e-3")
    assert (toy.run / "tokenizer.model").stat().st_mtime_ns == made.st_mtime_ns


def test_after_divergence_a_lower_rate_goes_on_in_the_same_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = ToyRun(write_toy_recipe(tmp_path), tmp_path / "run")
    train(toy, "loop.max_steps=40", "--stop-after", "10")
    mad = ["loop.max_steps=40", "optim.peak_lr=1e30", "optim.clip_norm=0", "loop.bf16=false"]
    assert "lower optim.peak_lr" in refused(capsys, toy, *mad)
    train(toy, "loop.max_steps=40", "optim.peak_lr=1e-3")
    assert read_state(list_checkpoints(toy.run)[-1])["step"] == 40
    assert read_run_recipe(toy.run).optim.peak_lr == 1e-3


def test_weights_that_are_not_finite_are_never_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = ToyRun(write_toy_recipe(tmp_path), tmp_path / "run")
    often = ["loop.max_steps=3", "loop.checkpoint_every=1", "loop.validate_every=1"]
    mad = ["optim.peak_lr=1e38", "optim.warmup_steps=1", "optim.clip_norm=0", "loop.bf16=false"]
    assert "no longer finite at step 1; lower optim.peak_lr" in refused(capsys, toy, *often, *mad)
    assert not list_checkpoints(toy.run)
    train(toy, *often)
    assert read_state(list_checkpoints(toy.run)[-1])["step"] == 3


def test_a_checkpoint_from_which_every_try_diverges_is_named(
    toy: ToyRun, capsys: pytest.CaptureFixture[str]
) -> None:
    last = list_checkpoints(toy.run)[-1]
    weights = load_file(last / "model.safetensors")
    save_file({name: 1e30 * value for name, value in weights.items()}, last / "model.safetensors")
    longer = ["loop.max_steps=22", "optim.peak_lr=1e-3"]
    assert f"delete {last}, with whose weights it begins" in refused(capsys, toy, *longer)
    shutil.rmtree(last)
    train(toy, *longer)
    assert read_state(list_checkpoints(toy.run)[-1])["step"] == 22


def test_a_vocabulary_left_by_a_start_that_failed_is_made_anew(
    finished: ToyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = ToyRun(write_toy_text(tmp_path, "sentencepiece"), tmp_path / "run")
    assert "validation needs two" in refused(capsys, toy, "data.batch_size=2000")
    train(toy, "model.vocab_size=310", "loop.max_steps=2")
    other = ToyRun(finished.recipe, tmp_path / "other")
    given = [f"tokenizer.file={path / 'tokenizer.model'}" for path in (toy.run, finished.run)]
    assert "has 310 entries" in refused(capsys, other, given[0])
    train(other, given[1], "loop.max_steps=2")


# A run that has begun


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("model.ffn_dim=64", "model.ffn_dim"),
        ("model.vocab_size=340", "model.vocab_size"),
        ("data.token_budget=64", "data.token_budget"),
        ("optim.optimizer=sgd", "optim.optimizer"),
        ("tokenizer.model_type=bpe", "tokenizer.model_type"),
        ("loop.seed=2", "loop.seed"),
    ],
)
def test_what_would_change_what_was_learnt_is_refused_by_name(
    toy: ToyRun, capsys: pytest.CaptureFixture[str], override: str, key: str
) -> None:
    before = contents(toy.run)
    assert f"was started with another '{key}'" in refused(capsys, toy, override)
    assert contents(toy.run) == before


@pytest.mark.parametrize(
    "override",
    [
        "optim.peak_lr=1e-4",
        "optim.schedule=constant",
        "optim.label_smoothing=0",
        "model.dropout=0.3",
        "data.attribution=someone",
        "loop.validate_every=5",
    ],
)
def test_what_cannot_change_what_was_learnt_may_change(toy: ToyRun, override: str) -> None:
    train(toy, override, "loop.max_steps=22")
    assert read_state(list_checkpoints(toy.run)[-1])["step"] == 22


def test_the_same_text_under_another_path_resumes(toy: ToyRun, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("toy.de", "toy.en"):
        shutil.copy(toy.recipe.parent / name, elsewhere / f"moved.{name}")
    files = f"{{source: {elsewhere}/moved.toy.de, target: {elsewhere}/moved.toy.en}}"
    train(toy, f"data.train=[{files}]", "loop.max_steps=22")
    assert [r["step"] for r in read_metrics(toy.run)][-1] == 22


def test_other_text_is_refused_and_changes_no_file(
    toy: ToyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = write_toy_corpus(tmp_path / "other", 300, seed=8)
    before = contents(toy.run)
    override = f"data.train=[{{source: {source}, target: {target}}}]"
    assert "training text is no longer the one" in refused(capsys, toy, override)
    assert contents(toy.run) == before


def test_other_validation_text_is_refused_and_changes_no_file(
    toy: ToyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    train_files = yaml.safe_load(toy.recipe.read_text())["data"]["train"][0]
    both = (
        ToyRun(toy.recipe, tmp_path / "own"),
        "data.held_out_pairs=0",
        f"data.train=[{{source: {train_files['source']}, target: {train_files['target']}}}]",
    )
    first, second = (write_toy_corpus(other / str(n), 9, seed=n) for n in (5, 6))

    def with_validation(files: tuple[Path, Path]) -> str:
        return f"data.validation={{source: {files[0]}, target: {files[1]}}}"

    train(both[0], *both[1:], with_validation(first), "loop.max_steps=4")
    before = contents(both[0].run)
    error = refused(capsys, both[0], *both[1:], with_validation(second), "loop.max_steps=6")
    assert "validation text is no longer the one" in error
    assert contents(both[0].run) == before


def test_blank_validation_text_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = ToyRun(write_toy_recipe(tmp_path), tmp_path / "run")
    for name in ("v.de", "v.en"):
        (tmp_path / name).write_text("\n  \n\n")
    override = f"data.validation={{source: {tmp_path}/v.de, target: {tmp_path}/v.en}}"
    assert "v.de: no pair of the validation text has words" in refused(capsys, toy, override)


# What a crash leaves behind


@pytest.mark.parametrize(
    "text", ["", "# name: toy\n", "- a\n- list\n", "a: [broken\n", "name: toy\n"]
)
def test_a_broken_config_is_one_line_whose_advice_works(
    toy: ToyRun, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    config = toy.run / "config.yaml"
    config.write_text(text)
    assert f"{config}: " in refused(capsys, toy, "loop.max_steps=22")
    config.unlink()
    assert "another 'model.ffn_dim'" in refused(capsys, toy, "model.ffn_dim=64")
    train(toy, "loop.max_steps=22")
    assert read_run_recipe(toy.run).loop.max_steps == 22


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("left", [0.0, 0.5])
def test_a_last_checkpoint_that_was_cut_off_gives_way_to_the_one_before(
    toy: ToyRun, caplog: pytest.LogCaptureFixture, name: str, left: float
) -> None:
    last = list_checkpoints(toy.run)[-1]
    content = (last / name).read_bytes()
    (last / name).write_bytes(content[: int(left * len(content))])
    train(toy)
    assert f"{last / name}: cannot be read" in caplog.text
    assert "the checkpoint before it is used" in caplog.text
    assert (last / name).read_bytes() == content  # written anew, the same to the bit


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("content", [None, b"\0" * 5000, b"{}"])
def test_so_does_one_that_lacks_something(
    toy: ToyRun, caplog: pytest.LogCaptureFixture, name: str, content: bytes | None
) -> None:
    last = list_checkpoints(toy.run)[-1]
    (last / name).unlink()
    if content is not None:
        (last / name).write_bytes(content)
    train(toy)
    assert f"{last}" in caplog.text
    assert "the checkpoint before it is used" in caplog.text
    load_trained(last)


def test_without_a_config_the_newest_state_that_has_a_recipe_counts(toy: ToyRun) -> None:
    (toy.run / "config.yaml").unlink()
    (list_checkpoints(toy.run)[-1] / "state.json").write_text("{}")
    assert read_run_recipe(toy.run).name == "toy"
    shutil.rmtree(toy.run / "best")
    for folder in list_checkpoints(toy.run):
        (folder / "state.json").write_text("{}")
    with pytest.raises(
        BrokenCheckpointError, match=r"state\.json: cannot be read: it has no recipe"
    ):
        read_run_recipe(toy.run)


def test_a_broken_checkpoint_displaces_no_whole_one(toy: ToyRun) -> None:
    first, last = list_checkpoints(toy.run)
    (last / "state.json").write_text("")
    train(toy, "loop.max_steps=15", "loop.checkpoint_every=5", "loop.keep_checkpoints=1")
    assert [path.name for path in list_checkpoints(toy.run)] == ["step_00000015", last.name]
    assert not first.exists()


def test_where_every_checkpoint_is_broken_nothing_is_trained_until_they_are_gone(
    toy: ToyRun, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in list_checkpoints(toy.run):
        (folder / "state.json").write_text("{")
    error = refused(capsys, toy)
    assert "state.json: cannot be read" in error
    assert f"delete {toy.run / 'checkpoints'}; the run then continues" in error
    shutil.rmtree(toy.run / "checkpoints")
    train(toy, "loop.max_steps=22")  # from the best
    assert [r["step"] for r in read_metrics(toy.run) if r["kind"] == "validation"] == [10, 20, 22]


# A process may write no file larger than this, which a model is not: as on a disk that is full.
FULL = """
import resource, sys
from training.__main__ import main

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_costs_nothing_that_was_saved(toy: ToyRun) -> None:
    before = contents(toy.run / "checkpoints")
    arguments = ["train", str(toy.recipe), "--run", str(toy.run), "loop.max_steps=30"]
    arguments += ["loop.validate_every=100", "--threads", "1"]
    done = subprocess.run(
        [sys.executable, "-c", FULL, "100000", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    error = done.stderr.splitlines()[-1]
    assert error.startswith("error: ")
    assert "cannot be written: " in error
    after = contents(toy.run / "checkpoints")
    assert {name: after[name] for name in before} == before
    assert not list(toy.run.rglob(".*"))
    train(toy, "loop.max_steps=30", "loop.validate_every=100")  # room has been made
    assert read_state(list_checkpoints(toy.run)[-1])["step"] == 30


def test_files_of_a_run_have_ordinary_modes(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        toy = train_toy(tmp_path / "toy")
    finally:
        os.umask(before)
    modes: dict[str, Any] = {
        str(path.relative_to(toy.run)): oct(stat.S_IMODE(path.stat().st_mode))
        for path in toy.run.rglob("*")
        if path.is_file()
    }
    assert modes
    assert set(modes.values()) == {"0o640"}
    load_weights(list_checkpoints(toy.run)[-1], load_trained(toy.run).model)
