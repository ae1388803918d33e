"""A finished run of the toy recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.toy.recipe import write_toy_recipe
from training.__main__ import main


@dataclass(frozen=True)
class ToyRun:
    """A recipe and its run folder."""

    recipe: Path
    run: Path


def train_toy(folder: Path) -> ToyRun:
    """Write the toy recipe to `folder` and train it there by the command, on one thread."""
    toy = ToyRun(write_toy_recipe(folder), folder / "run")
    assert main(["train", str(toy.recipe), "--run", str(toy.run), "--threads", "1"]) == 0
    return toy
