"""Several processes train one model: what one would learn, whatever happens to one of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bench.systems.processes.http_server import free_port
from tests.toy.recipe import write_toy_recipe
from training.__main__ import main
from training.runs.checkpoint import list_checkpoints
from training.runs.log import read_metrics

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

EXACT = ["model.dropout=0", "loop.bf16=false", "loop.validate_every=4", "loop.checkpoint_every=6"]
DROPOUT = ["model.dropout=0.2", *EXACT[1:], "optim.ema_decay=0.9", "loop.log_every=3"]

# A rank that kills itself in the middle of an update.
KILLED = """
import os, signal, sys
from training.__main__ import main
from training.loop.trainer import Trainer

update = Trainer.update

def dying_update(trainer, batches):
    if trainer.step + 1 == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    return update(trainer, batches)

Trainer.update = dying_update
main(sys.argv[1:])
"""

# Rank 1 kills itself in the middle of an update (`lost`), or asks torchrun to end as a system does
# that takes the machine back (`asked`), and waits until torchrun has passed that on.
UNDER_TORCHRUN = """
import os, signal, sys, time
from training.__main__ import main
from training.loop.trainer import Trainer

what, update = sys.argv[1], Trainer.update

def update_at_which_it_ends(trainer, batches):
    if trainer.step + 1 == 8 and trainer.ranks.rank == 1:
        if what == "lost":
            os.kill(os.getpid(), signal.SIGKILL)
        passed_on, heed = [], signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda *given: (passed_on.append(given), heed(*given)))
        os.kill(os.getppid(), signal.SIGTERM)
        deadline = time.monotonic() + 60
        while not passed_on and time.monotonic() < deadline:
            time.sleep(0.05)
    return update(trainer, batches)

Trainer.update = update_at_which_it_ends
sys.exit(main(sys.argv[2:]))
"""
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


# A rank that tells which threads are left when it has parted from the others.
PARTED = """
import sys
from pathlib import Path
from training.__main__ import main

status = main(sys.argv[1:])
tasks = Path("/proc/self/task").iterdir()
print("threads:", *[(task / "comm").read_text().strip() for task in tasks], file=sys.stderr)
sys.exit(status)
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_recipe(tmp_path_factory.mktemp("toy"), pairs=150)


def words(recipe: Path, run: Path, *overrides: str) -> list[str]:
    return ["train", str(recipe), *overrides, "--run", str(run), "--threads", "1"]


def figures(run: Path) -> list[dict[str, Any]]:
    """All that was measured but time and memory."""
    timing = ("time", "labels_per_second", "memory_mb", "matrix_share")
    return [{k: v for k, v in r.items() if k not in timing} for r in read_metrics(run)]


def losses(run: Path) -> list[float]:
    return [record["loss"] for record in read_metrics(run)]


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors") | load_file(folder / "optimizer.safetensors")


def assert_same(one: Path, other: Path) -> None:
    expected, found = tensors(one), tensors(other)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def together(*commands: list[str], places: tuple[str, ...] = ()) -> list[tuple[int, str]]:
    """Run commands as the ranks of one run; returns the status and stderr of each."""
    port = str(free_port())
    ranks = []
    for rank, command in enumerate(commands):
        own = {"RANK": str(rank), "WORLD_SIZE": str(len(commands)), "MASTER_PORT": port}
        own |= {"MASTER_ADDR": "127.0.0.1", "TOY": places[rank] if places else ""}
        ranks.append(
            subprocess.Popen(
                [sys.executable, *command], cwd=ROOT, env={**os.environ, **own}, text=True,
                stderr=subprocess.PIPE,
            )
        )  # fmt: skip
    return [(rank.wait(timeout=300), rank.communicate()[1]) for rank in ranks]


def test_two_processes_compute_one_process_gradient(recipe: Path, tmp_path: Path) -> None:
    """After one update by SGD of rate 1 the change of the weights is the gradient."""
    sgd = ["optim.optimizer=sgd", "optim.peak_lr=1", "optim.warmup_steps=1", "optim.clip_norm=0"]
    short = [*EXACT, *sgd, "loop.max_steps=1", "loop.bleu_sentences=0"]
    runs = {"one": ["optim.accumulation=2"], "two": ["--processes", "2"]}
    for name, options in runs.items():
        assert main([*words(recipe, tmp_path / name, *short), *options]) == 0
    one, two = (load_file(tmp_path / name / "best" / "model.safetensors") for name in runs)
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-5, atol=1e-5)
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-5)


def test_a_run_goes_on_with_another_number_of_processes(recipe: Path, tmp_path: Path) -> None:
    overrides = [*EXACT, "loop.max_steps=12"]
    one, changed = tmp_path / "one", tmp_path / "changed"
    assert main(words(recipe, one, *overrides, "optim.accumulation=2")) == 0
    two = [*words(recipe, changed, *overrides), "--processes", "2"]
    assert main([*two, "--stop-after", "5"]) == 0
    assert main(words(recipe, changed, *overrides, "optim.accumulation=2")) == 0
    assert len(losses(changed)) == len(losses(one))
    assert losses(changed) == pytest.approx(losses(one), rel=1e-5)


def test_where_a_process_is_killed_nothing_is_lost(recipe: Path, tmp_path: Path) -> None:
    overrides = [*DROPOUT, "loop.max_steps=12"]
    unbroken, run = tmp_path / "unbroken", tmp_path / "run"
    assert main([*words(recipe, unbroken, *overrides), "--processes", "2"]) == 0
    command = words(recipe, run, *overrides)
    (first, told), (second, _) = together(["-m", "training", *command], ["-c", KILLED, *command])
    assert (first, second) == (1, -signal.SIGKILL)
    assert list_checkpoints(run)[-1].name == "step_00000007"
    last = told.splitlines()[-1]
    assert last.startswith("error: another process of this run has ended")
    assert "step_00000007 holds its state: start the same command to go on" in last
    assert "Traceback" not in told
    assert main([*command, "--processes", "2"]) == 0
    assert figures(run) == figures(unbroken)
    assert_same(unbroken / "checkpoints/step_00000012", run / "checkpoints/step_00000012")


def test_no_thread_of_the_others_outlives_a_run(recipe: Path, tmp_path: Path) -> None:
    command = ["-c", PARTED, *words(recipe, tmp_path / "run", *DROPOUT, "loop.max_steps=3")]
    for status, told in together(command, command):
        assert status == 0
        assert "threads: python" in told
        assert "gloo" not in told.split("threads:")[1]


def test_torchrun_starts_the_processes_too(recipe: Path, tmp_path: Path) -> None:
    overrides = [*DROPOUT, "loop.max_steps=3"]
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    assert main([*words(recipe, ours, *overrides), "--processes", "2"]) == 0
    subprocess.run(
        [sys.executable, *TORCHRUN, "-m", "--", "training", *words(recipe, theirs, *overrides)],
        cwd=ROOT, check=True, timeout=300,
    )  # fmt: skip
    assert_same(ours / "checkpoints/step_00000003", theirs / "checkpoints/step_00000003")


@pytest.mark.parametrize(
    ("what", "saved", "told"),
    [
        ("lost", "step_00000007", "error: another process of this run has ended"),
        ("asked", "step_00000008", "error: SIGTERM ended this run. "),
    ],
)
def test_where_torchrun_ends_the_processes_rank_0_saves(
    recipe: Path, tmp_path: Path, what: str, saved: str, told: str
) -> None:
    script, run = tmp_path / "script.py", tmp_path / "run"
    script.write_text(UNDER_TORCHRUN)
    command = words(recipe, run, *DROPOUT, "loop.max_steps=12")
    done = subprocess.run(
        [sys.executable, *TORCHRUN, "--", str(script), what, *command],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode != 0
    assert list_checkpoints(run)[-1].name == saved, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "error: " in line and "holds" in line]
    assert line.startswith(told)
    assert f"{saved} holds its state: start the same command to go on" in line


def test_a_process_that_sees_other_text_is_reported_before_the_work(tmp_path: Path) -> None:
    recipe = write_toy_recipe(tmp_path / "a", pairs=150)
    write_toy_recipe(tmp_path / "b", pairs=150, seed=2)
    recipe.write_text(recipe.read_text().replace(str(tmp_path / "a"), "${TOY}"))
    command = ["-m", "training", *words(recipe, tmp_path / "run")]
    places = (str(tmp_path / "a"), str(tmp_path / "b"))
    (first, told), (second, other) = together(command, command, places=places)
    assert (first, second) == (1, 1)
    assert "error: rank 1 has another text than rank 0" in told
    assert "error" not in other
    assert not list_checkpoints(tmp_path / "run")


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("data.held_out_pairs=1000", "held_out_pairs = 1000"),
        ("model.block=nowhere:block", "block 'nowhere:block' cannot be imported"),
        ("loop.device=abacus", "device 'abacus' cannot be used"),
    ],
)
def test_what_is_wrong_with_a_recipe_is_reported_once(
    recipe: Path, tmp_path: Path, override: str, told: str
) -> None:
    command = [*words(recipe, tmp_path / "run", override), "--processes", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "training", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.count("error: ") == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr
