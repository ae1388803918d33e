"""Metrics of a run: a JSON line a record, TensorBoard beside it."""

from __future__ import annotations

import json
import time
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter


class MetricsLog:
    """Appends records to `metrics.jsonl` and scalars to `tensorboard/`.

    A resumed run first drops records past its checkpoint, so a step is logged once.
    """

    def __init__(self, run: Path, resume_step: int) -> None:
        self._path = run / "metrics.jsonl"
        if self._path.exists():
            records = [json.loads(line) for line in self._path.read_text().splitlines()]
            kept = [r for r in records if r["step"] <= resume_step]
            self._path.write_text("".join(json.dumps(r) + "\n" for r in kept))
        self._writer = SummaryWriter(str(run / "tensorboard"), purge_step=resume_step + 1)

    def log(self, kind: str, step: int, values: dict[str, float]) -> None:
        """Write one record."""
        record = {"kind": kind, "step": step, "time": round(time.time(), 3), **values}
        with self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        for name, value in values.items():
            self._writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """Flush TensorBoard's events."""
        self._writer.close()
