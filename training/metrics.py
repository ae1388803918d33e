"""Metrics of a run: a JSON line a record, TensorBoard beside it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from training.checkpoint import write_atomically


class MetricsLog:
    """Appends records to `metrics.jsonl` and scalars to `tensorboard/`.

    A resumed run first drops records past its checkpoint, so a step is logged once.
    """

    def __init__(self, run: Path, resume_step: int) -> None:
        self._path = run / "metrics.jsonl"
        if self._path.exists():
            kept = [r for r in read_metrics(run) if r["step"] <= resume_step]
            lines = "".join(json.dumps(record) + "\n" for record in kept)
            write_atomically(self._path, lines.encode())
        self._writer = SummaryWriter(str(run / "tensorboard"), purge_step=resume_step + 1)

    def log(self, kind: str, step: int, values: dict[str, float | str]) -> None:
        """Write one record; texts (signatures) go to the JSON line only."""
        record = {"kind": kind, "step": step, "time": round(time.time(), 3), **values}
        with self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        for name, value in values.items():
            if not isinstance(value, str):
                self._writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """Flush TensorBoard's events."""
        self._writer.close()


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The records of a run, oldest first; a last line that a kill cut short is left out."""
    text = (run / "metrics.jsonl").read_text()
    whole, _, _ = text.rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]
