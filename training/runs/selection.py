"""Chooses the best checkpoint: by validation loss, or by BLEU or chrF of decoded text."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.errors import BrokenCheckpointError, CheckpointError
from training.runs.checkpoint import list_checkpoints, read_state

logger = logging.getLogger(__name__)


def badness(by: str, values: Mapping[str, Any]) -> float:
    """The validation value `by`, negated if higher values are better."""
    return float(values[by]) if by == "loss" else -float(values[by])


class BestSoFar:
    """The best validation of a run, and the number of validations since then."""

    def __init__(self, by: str) -> None:
        self.by = by
        self.value: float | None = None
        self.stale = 0

    def improved(self, values: Mapping[str, Any]) -> bool:
        """Count a validation; returns whether it is the best one."""
        if self.value is None or badness(self.by, values) < badness(self.by, {self.by: self.value}):
            self.value, self.stale = float(values[self.by]), 0
            return True
        self.stale += 1
        return False

    def state(self) -> dict[str, Any]:
        """The state that a checkpoint stores, as a dictionary."""
        return {"best_by": self.by, "best_value": self.value, "stale": self.stale}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint's `state`; if that was kept by another value, start anew.

        States of earlier versions hold only their best loss. Raises KeyError if neither is there.
        """
        by = state.get("best_by", "loss")
        value = state["best_value"] if "best_by" in state else state["best_loss"]
        stale = state["stale"]
        if by == self.by:
            self.value, self.stale = value, stale
        else:
            logger.info(
                "the best checkpoint is chosen by %s from here on, no longer by %s", self.by, by
            )


def rank_checkpoints(run: Path, by: str) -> list[Path]:
    """The kept checkpoints that were validated at their own step, the best one first."""
    values: dict[Path, float] = {}
    for folder in list_checkpoints(run):
        try:
            validated = read_state(folder).get("validated") or {}
        except BrokenCheckpointError:
            continue
        if by in validated:
            values[folder] = badness(by, validated)
    return sorted(values, key=values.__getitem__)


def best_checkpoints(run: Path, count: int, by: str) -> list[Path]:
    """The best `count` kept checkpoints, or fewer if fewer were validated, in the order of their
    steps.

    Raises CheckpointError if none was validated.
    """
    best = rank_checkpoints(run, by)[:count]
    if not best:
        raise CheckpointError(
            f"{run}: no kept checkpoint has a validation {by} of its own; set loop.keep_best, "
            "which saves a checkpoint at every validation, and train further, or average --last"
        )
    return sorted(best)
