"""Metrics of a run: one line of JSON per record."""

from __future__ import annotations

import json
import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from training.errors import CheckpointError, reason_of
from training.runs.checkpoint import cannot_write, write_atomically

METRICS_FILE = "metrics.jsonl"


class MetricsLog:
    """Appends records to `metrics.jsonl`.

    A resumed run first drops records past its checkpoint, so a step is logged once.
    """

    def __init__(self, run: Path, resume_step: int) -> None:
        self._path = run / METRICS_FILE
        self.last_validation: dict[str, Any] = {}
        """Values of the last validation record, also of an earlier session; empty if there is
        none."""
        if self._path.exists():
            kept = [r for r in read_metrics(run) if r["step"] <= resume_step]
            for record in kept:
                if record["kind"] == "validation":
                    self.last_validation = record
            lines = "".join(json.dumps(record) + "\n" for record in kept)
            write_atomically(self._path, lines.encode())

    def log(self, kind: str, step: int, values: dict[str, float | str]) -> None:
        """Write one record."""
        record = {"kind": kind, "step": step, "time": round(time.time(), 3), **values}
        if kind == "validation":
            self.last_validation = record
        try:
            with self._path.open("a") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise cannot_write(self._path, error) from error


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The records of a run, oldest first; an incomplete last line, left by a killed process, is
    ignored.

    Raises CheckpointError if the folder has none, or if another line is no record.
    """
    try:
        text = (run / METRICS_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise CheckpointError(
            f"{run / METRICS_FILE}: cannot be read: {reason_of(error)}; give the folder of a run"
        ) from error
    whole, _, _ = text.rpartition("\n")
    lines = whole.split("\n") if whole else []
    return [_record(run, number, line) for number, line in enumerate(lines, 1)]


def _record(run: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        record = None
    if not (isinstance(record, dict) and "kind" in record):
        raise CheckpointError(
            f"{run / METRICS_FILE}:{number}: not a record of a run; remove that line, then run the "
            "same command again"
        )
    return record


def lowest_validation_loss(run: Path) -> float:
    """Lowest validation loss of a run, in nats per label.

    Raises CheckpointError if there was no validation yet.
    """
    losses = [r["loss"] for r in read_metrics(run) if r["kind"] == "validation"]
    if not losses:
        raise CheckpointError(f"{run / METRICS_FILE}: no validation yet; train the run further")
    return float(min(losses))


def training_seconds(run: Path) -> float:
    """The duration of a run in seconds: validations are included, breaks between two sessions are
    not.

    It is the sum of labels / labels_per_second over the records of training. The records do not
    hold their labels, but all updates have about as many: the median of labels_per_second * (time
    since the last record) / (updates since then), which only a break between two records raises.
    Time in which the process itself was stopped counts. Raises CheckpointError if there are fewer
    than two records.
    """
    records = [r for r in read_metrics(run) if r["kind"] == "train"]
    if len(records) < 2:
        raise CheckpointError(
            f"{run / METRICS_FILE}: the training time follows from two records of training at "
            f"least, got {len(records)}; train the run further"
        )
    labels = statistics.median(
        new["labels_per_second"] * (new["time"] - old["time"]) / (new["step"] - old["step"])
        for old, new in pairwise(records)
    )
    steps = [0, *(r["step"] for r in records)]
    return sum(
        labels * (new - old) / r["labels_per_second"]
        for (old, new), r in zip(pairwise(steps), records, strict=True)
    )
