"""Progress of a run: sums between two log records, and the status line."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from tqdm import tqdm

from serving.resident import resident_bytes
from training.errors import EndedError
from training.loop.ranks import TrainingRanks
from training.recipe.config import Recipe, recipe_to_dict
from training.runs.log import MetricsLog
from training.runs.trackers import TensorBoard, Tracker, Trackers, find_tracker

logger = logging.getLogger(__name__)


def memory_bytes(device: torch.device) -> int:
    """Memory of the process on a device in bytes; on a CPU, in the machine's memory."""
    if device.type == "cuda":
        return torch.cuda.memory_reserved(device)
    return resident_bytes()


class LogWindow:
    """Sums between two log records; checkpoints store them."""

    def __init__(self, device: torch.device) -> None:
        self.sums: dict[str, float] = {"loss": 0.0, "labels": 0}
        self._device = device
        self.begun = False
        self.seconds_per_label: float | None = None
        """Seconds per label at the speed of matrix products alone, once measured."""
        self._start, self._new_labels = time.perf_counter(), 0
        self._last: dict[str, float] = {}

    def begin(self, seconds_per_label: float | None) -> None:
        """Start the clock; earlier time was not spent on training."""
        self.begun, self.seconds_per_label = True, seconds_per_label
        self._start = time.perf_counter()

    def add(self, values: dict[str, float]) -> None:
        """Add an update: summed loss, labels, learning rate and gradient norm."""
        self.sums["loss"] += values["loss"]
        self.sums["labels"] += values["labels"]
        self._new_labels += int(values["labels"])
        self._last = values

    def take(self, epoch: int) -> dict[str, float]:
        """The record since the last one, per label."""
        seconds = time.perf_counter() - self._start
        speed = self._new_labels / seconds
        record = {
            "loss": self.sums["loss"] / self.sums["labels"],
            "lr": self._last["lr"],
            "gradient_norm": self._last["gradient_norm"],
            "epoch": epoch,
            "labels_per_second": round(speed, 1),
            "memory_mb": round(memory_bytes(self._device) / 1e6),
        }
        if self.seconds_per_label is not None:
            record["matrix_share"] = round(speed * self.seconds_per_label, 4)
        self.sums = {"loss": 0.0, "labels": 0}
        self._start, self._new_labels = time.perf_counter(), 0
        return record


class LiveLine:
    """A status line: redrawn in a terminal, logged elsewhere."""

    def __init__(self, step: int, max_steps: int) -> None:
        self._first, self._max_steps = step, max_steps
        self._start = time.perf_counter()
        self._bar = tqdm(
            total=max_steps,
            initial=step,
            disable=not sys.stderr.isatty(),
            bar_format="{percentage:3.0f}%|{bar:20}| {n_fmt}/{total_fmt} {desc}",
        )

    def advance(self) -> None:
        """Count an update."""
        self._bar.update()

    def show(self, step: int, record: Mapping[str, float], validation: Mapping[str, Any]) -> None:
        """Show the training record at `step`, with the last validation, which may be empty."""
        spent = time.perf_counter() - self._start
        left = spent / max(1, step - self._first) * (self._max_steps - step)
        line = describe(record, validation, left)
        if self._bar.disable:
            logger.info("step %d of %d: %s", step, self._max_steps, line)
        self._bar.set_description_str(line)

    def say(self, text: str) -> None:
        """Show another message, above a redrawn line."""
        if self._bar.disable:
            logger.info(text)
        else:
            self._bar.write(text, file=sys.stderr)

    def close(self) -> None:
        """End the line."""
        self._bar.close()


class Reporter:
    """Reports a training session within its block: to the log, the user and trackers. Of several
    processes only rank 0 reports.

    Raises ConfigError if the recipe names an unknown tracker.
    """

    def __init__(self, recipe: Recipe, run: Path, step: int, ranks: TrainingRanks) -> None:
        self._recipe, self._run, self._step = recipe, run, step
        self._log = MetricsLog(run, step) if ranks.is_first else None
        self._line = LiveLine(step, recipe.loop.max_steps) if ranks.is_first else None
        kinds: list[type[Tracker]] = [TensorBoard]
        if recipe.loop.tracker is not None:
            kinds.append(find_tracker(recipe.loop.tracker))
        self._trackers = Trackers(kinds if ranks.is_first else [])

    def __enter__(self) -> Reporter:
        self._trackers.start(recipe_to_dict(self._recipe), self._run, self._step)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._line is not None:
            self._line.close()
        stopped = isinstance(error, EndedError | KeyboardInterrupt)
        self._trackers.finish("finished" if error is None else "stopped" if stopped else "failed")

    def advance(self) -> None:
        """Count an update."""
        if self._line is not None:
            self._line.advance()

    def record(self, step: int, record: dict[str, float]) -> None:
        """Report the training record at `step`."""
        if self._log is not None and self._line is not None:
            self._log.log("train", step, {**record})
            self._track("train", step, record)
            self._line.show(step, record, self._log.last_validation)

    def validation(self, step: int, values: dict[str, float | str]) -> None:
        """Report validation figures at `step`; texts (signatures) go to the log only."""
        if self._log is not None and self._line is not None:
            self._log.log("validation", step, values)
            figures = {name: value for name, value in values.items() if not isinstance(value, str)}
            self._track("validation", step, figures)
            shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
            self._line.say(f"step {step}: {shown}")

    def _track(self, kind: str, step: int, figures: Mapping[str, float]) -> None:
        self._trackers.log(step, {f"{kind}/{name}": value for name, value in figures.items()})


def describe(
    record: Mapping[str, float], validation: Mapping[str, Any], seconds_left: float
) -> str:
    """Loss, speed, BLEU of the last validation if it has one, memory and remaining time."""
    speed = f"{record['labels_per_second']:.0f} labels/s"
    if "matrix_share" in record:
        speed += f" ({100 * record['matrix_share']:.0f} % of matrix speed)"
    parts = [f"loss {record['loss']:.3f}", speed]
    if "bleu" in validation:
        parts.append(f"BLEU {validation['bleu']:.1f}")
    if record["memory_mb"]:
        parts.append(f"{record['memory_mb'] / 1000:.1f} GB")
    return ", ".join([*parts, f"{timedelta(seconds=round(seconds_left))} left"])
