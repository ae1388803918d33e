"""A run killed by SIGKILL and resumed repeats an unbroken one to the last bit."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.toy.recipe import write_toy_recipe
from training.__main__ import main
from training.runs.checkpoint import list_checkpoints
from training.runs.log import read_metrics

ROOT = Path(__file__).resolve().parents[3]

# Everything that draws random numbers or counts between checkpoints is on. Checkpoints (7) are
# out of step with records (3) and validations (5), and 32 updates pass two ends of an epoch.
OVERRIDES = [
    "model.dropout=0.2",
    "model.attention_dropout=0.1",
    "model.activation_dropout=0.1",
    "data.subword_alpha=0.2",
    "optim.accumulation=2",
    "optim.ema_decay=0.9",
    "loop.max_steps=32",
    "loop.log_every=3",
    "loop.validate_every=5",
    "loop.checkpoint_every=7",
    "loop.bleu_sentences=3",
]

# The process kills itself at a chosen point, as hard as the kernel would.
KILLED = """
import os, signal, sys
from pathlib import Path
import training.runs.checkpoint as checkpoint
from training.__main__ import main
from training.loop.trainer import Trainer

where, at, arguments = sys.argv[1], int(sys.argv[2]), sys.argv[3:]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

update, save_file, replace = Trainer.update, checkpoint.save_file, os.replace

def dying_update(trainer, batches):
    if where == "update" and trainer.step + 1 == at:
        die()
    return update(trainer, batches)

def dying_save(tensors, path):
    save_file(tensors, path)
    if where == "save" and path.parent.name == f".step_{at:08d}.tmp":
        die()

def dying_replace(source, target):
    replace(source, target)
    if where == "best" and Path(target).name == ".best.old":
        die()

Trainer.update, checkpoint.save_file, os.replace = dying_update, dying_save, dying_replace
main(arguments)
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_recipe(tmp_path_factory.mktemp("toy"), pairs=150)


def arguments(recipe: Path, run: Path) -> list[str]:
    return ["train", str(recipe), *OVERRIDES, "--run", str(run), "--threads", "1"]


@pytest.fixture(scope="module")
def unbroken(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("unbroken") / "run"
    before = torch.get_num_threads()
    assert main(arguments(recipe, run)) == 0
    torch.set_num_threads(before)
    return run


def figures(run: Path) -> list[dict[str, Any]]:
    """All that was measured but time."""
    timing = ("time", "labels_per_second", "memory_mb", "matrix_share")
    return [{k: v for k, v in r.items() if k not in timing} for r in read_metrics(run)]


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors") | load_file(folder / "optimizer.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "at", "resumed_at"),
    [
        ("update", 20, 14),  # between checkpoints, records past the checkpoint are written
        ("save", 14, 7),  # in the middle of writing a checkpoint
        ("best", 0, 7),  # between the two renames that replace the best checkpoint
    ],
)
def test_a_killed_run_repeats_the_unbroken_one(
    recipe: Path, unbroken: Path, tmp_path: Path, where: str, at: int, resumed_at: int
) -> None:
    run = tmp_path / "run"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, where, str(at), *arguments(recipe, run)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert list_checkpoints(run)[-1].name == f"step_{resumed_at:08d}"
    before = torch.get_num_threads()
    assert main(arguments(recipe, run)) == 0
    torch.set_num_threads(before)

    assert figures(run) == figures(unbroken)
    for place in ("checkpoints/step_00000032", "best"):
        expected, found = tensors(unbroken / place), tensors(run / place)
        assert expected.keys() == found.keys()
        for name, value in expected.items():
            assert torch.equal(found[name], value), f"{place}: {name}"
    names = [path.name for path in run.rglob("*") if path.name.startswith(".")]
    assert not [name for name in names if name.endswith(".old")]


def test_the_unbroken_run_has_something_to_repeat(unbroken: Path) -> None:
    records = figures(unbroken)
    trained = [r for r in records if r["kind"] == "train"]
    assert [r["step"] for r in trained] == [*range(3, 32, 3), 32]
    assert trained[-1]["epoch"] >= 2
    assert len({r["loss"] for r in records}) == len(records)
    assert [r["step"] for r in records if r["kind"] == "validation"] == [5, 10, 15, 20, 25, 30, 32]


def test_a_best_checkpoint_lost_between_two_renames_comes_back(
    recipe: Path, unbroken: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(unbroken, run)
    (run / "best").rename(run / ".best.old")
    before = torch.get_num_threads()
    assert main(arguments(recipe, run)) == 0  # which has nothing left to do
    torch.set_num_threads(before)
    assert tensors(run / "best").keys() == tensors(unbroken / "best").keys()


def test_stopping_on_purpose_and_resuming_changes_nothing(
    recipe: Path, unbroken: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    before = torch.get_num_threads()
    for step in (4, 17):
        assert main([*arguments(recipe, run), "--stop-after", str(step)]) == 0
        assert list_checkpoints(run)[-1].name == f"step_{step:08d}"
    assert main(arguments(recipe, run)) == 0
    torch.set_num_threads(before)
    assert figures(run) == figures(unbroken)


def test_a_run_of_the_first_version_goes_on(recipe: Path, tmp_path: Path) -> None:
    """Its config and its states lack what came later."""
    overrides = ["loop.max_steps=12", "loop.validate_every=4", "loop.checkpoint_every=6"]
    run, whole = tmp_path / "run", tmp_path / "whole"
    before = torch.get_num_threads()
    command = ["train", str(recipe), *overrides, "--threads", "1", "--run"]
    assert main([*command, str(whole)]) == 0
    assert main([*command, str(run), "--stop-after", "6"]) == 0
    for path in (run / "config.yaml", *run.rglob("state.json")):
        tree = yaml.safe_load(path.read_text())
        settings = tree.get("recipe", tree)
        del settings["optim"]["ema_decay"]
        for key in ("keep_best", "best_by"):
            del settings["loop"][key]
        if path.name == "state.json":
            assert tree.pop("best_by") == "loss"
            tree["best_loss"] = tree.pop("best_value")
            del tree["validated"]
        path.write_text(json.dumps(tree))
    assert main([*command, str(run)]) == 0
    torch.set_num_threads(before)
    assert figures(run) == figures(whole)
    last = "checkpoints/step_00000012"
    for name, value in tensors(whole / last).items():
        assert torch.equal(tensors(run / last)[name], value), name
