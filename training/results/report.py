"""The curves of runs side by side: one HTML file that needs no other, and a picture."""

from __future__ import annotations

import io
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

from training.errors import CheckpointError
from training.results.page import page, table
from training.runs.checkpoint import write_atomically
from training.runs.log import read_metrics, training_seconds

# Title, kind of record, value.
_PANELS = (
    ("Training loss (nats a label)", "train", "loss"),
    ("Validation loss (nats a label)", "validation", "loss"),
    ("Validation BLEU", "validation", "bleu"),
    ("Validation perplexity", "validation", "perplexity"),
    ("Next sentences recognised (share)", "validation", "next_sentence_accuracy"),
    ("Validation accuracy", "validation", "accuracy"),
    ("Validation F1", "validation", "f1"),
    ("Validation Spearman", "validation", "spearman"),
    ("Learning rate", "train", "lr"),
    ("Labels per second", "train", "labels_per_second"),
)
_LEGEND_COLUMNS = 5
# Ten colours, then the same ones with other strokes.
_LINES = cycler(linestyle=["-", "--", ":", "-."]) * mpl.rcParamsDefault["axes.prop_cycle"]
PICTURE_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "macaron",
    "svg.fonttype": "none",
    "font.size": 9,
}
"""Settings of matplotlib: the same figures give the same picture, and text in it can be
searched."""


@dataclass(frozen=True)
class RunCurves:
    """The log of a run, under the name that the report gives to it."""

    name: str
    records: list[dict[str, Any]]
    seconds: float | None
    """Duration of the training; None if the log is too short."""

    def curve(self, kind: str, value: str) -> list[tuple[int, float]]:
        """Steps and values of a curve; empty if the run has none."""
        return [(r["step"], r[value]) for r in self.records if r["kind"] == kind and value in r]


def write_report(runs: Sequence[Path], file: Path) -> None:
    """Write the report of runs to `file`, and its curves as a picture to the .png beside it.

    Raises CheckpointError if a run has no metrics, StorageError if a file cannot be written.
    """
    curves = read_curves(runs)
    figure = draw(curves)
    with mpl.rc_context(PICTURE_STYLE):
        picture, drawing = io.BytesIO(), io.StringIO()
        figure.savefig(picture, format="png", dpi=120, metadata={"Software": None})
        figure.savefig(drawing, format="svg", metadata={"Date": None, "Creator": None})
    svg = drawing.getvalue()
    text = render(curves, svg[svg.index("<svg") :])
    write_atomically(file.with_suffix(".png"), picture.getvalue())
    write_atomically(file, text.encode())


def read_curves(runs: Sequence[Path]) -> list[RunCurves]:
    """The logs of runs, each named by its folder, or by its whole path if two folders have the same
    name."""
    names = [run.resolve().name for run in runs]
    found = []
    for run, name in zip(runs, names, strict=True):
        records = read_metrics(run)
        if not records:
            raise CheckpointError(f"{run}: its metrics hold no record yet; train it further")
        seconds: float | None = None
        if sum(record["kind"] == "train" for record in records) > 1:
            seconds = training_seconds(run)
        found.append(RunCurves(name if names.count(name) == 1 else str(run), records, seconds))
    return found


def draw(curves: Sequence[RunCurves]) -> Figure:
    """A panel for each value that a run has, with a line for each run."""
    panels = []
    for title, kind, value in _PANELS:
        lines = [(run.name, run.curve(kind, value)) for run in curves]
        if any(points for _, points in lines):
            panels.append((title, lines))
    with mpl.rc_context(PICTURE_STYLE | {"axes.prop_cycle": _LINES}):
        figure = Figure(figsize=(11, 3.2 * ((len(panels) + 1) // 2)), layout="constrained")
        for place, (title, lines) in enumerate(panels, start=1):
            axes = figure.add_subplot((len(panels) + 1) // 2, 2, place)
            for name, points in lines:
                steps, values = [p[0] for p in points], [p[1] for p in points]
                axes.plot(steps, values, label=name, marker="." if len(points) < 40 else "")
            axes.set_title(title)
            axes.set_xlabel("updates")
            axes.grid(alpha=0.3)
        if len(curves) > 1:  # one for all panels: over their lines it would hide them
            figure.legend(
                handles=figure.axes[0].get_lines(),
                loc="outside upper center",
                ncols=min(len(curves), _LEGEND_COLUMNS),
            )
    return figure


def render(curves: Sequence[RunCurves], drawing: str) -> str:
    """The page: a row of figures for each run, and the curves."""
    rows = [(run.name, *_summary(run).values()) for run in curves]
    figures = table(("run", *_summary(curves[0])), rows)
    return page("Training report", f"{figures}\n{drawing}")


def _summary(run: RunCurves) -> dict[str, str]:
    """Figures of a run by the heading of their column."""
    speeds = [speed for _, speed in run.curve("train", "labels_per_second")]
    losses = run.curve("train", "loss")
    return {
        "updates": f"{run.records[-1]['step']:,}",
        "training loss": f"{losses[-1][1]:.3f}" if losses else "–",
        "lowest validation loss": _best(run.curve("validation", "loss"), -1, ".3f"),
        "best BLEU": _best(run.curve("validation", "bleu"), 1, ".1f"),
        "best chrF": _best(run.curve("validation", "chrf"), 1, ".1f"),
        "labels/s (median)": f"{statistics.median(speeds):,.0f}" if speeds else "–",
        "hours": "–" if run.seconds is None else f"{run.seconds / 3600:.2f}",
    }


def _best(points: list[tuple[int, float]], sign: int, form: str) -> str:
    if not points:
        return "–"
    step, value = max(points, key=lambda point: sign * point[1])
    return f"{value:{form}} at {step:,}"
