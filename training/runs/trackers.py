"""Trackers, which show a run's figures beside its own log: TensorBoard, and one of the user's
choice.

`loop.tracker: module:Class` names a class that is made without arguments and has the three methods
of `Tracker`. A tracker that fails gets nothing more, and one warning is logged: no run ends because
of a tracker.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from training.errors import ConfigError

logger = logging.getLogger(__name__)


class Tracker(Protocol):
    """The interface of a tracker, to which a run reports; only rank 0 calls it."""

    def start(self, recipe: dict[str, Any], run: Path, step: int) -> None:
        """A session begins after this step, which is not 0 if it continues a run. `recipe` is plain
        data, with the `name` of the run."""
        ...

    def log(self, step: int, figures: dict[str, float]) -> None:
        """Take the figures at a step, by names like `train/loss` and `validation/bleu`."""
        ...

    def finish(self, status: str) -> None:
        """The session ends: `finished`, `stopped` by its user or the system, or `failed`."""
        ...


class TensorBoard:
    """Event files in the run's folder."""

    def start(self, recipe: dict[str, Any], run: Path, step: int) -> None:
        """Open TensorBoard's log; figures that an earlier session has written for later steps are
        hidden."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run / "tensorboard"), purge_step=step + 1)

    def log(self, step: int, figures: dict[str, float]) -> None:
        """A point of each curve."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def finish(self, status: str) -> None:
        """Write all figures that are still buffered."""
        self._writer.close()


class MLflow:
    """A run of the MLflow experiment that MLflow's own variables name (MLFLOW_TRACKING_URI,
    MLFLOW_EXPERIMENT_NAME); a session that continues a run is another MLflow run of the same
    name."""

    def start(self, recipe: dict[str, Any], run: Path, step: int) -> None:
        """The recipe is kept as a file of the run."""
        self._mlflow = importlib.import_module("mlflow")
        self._mlflow.start_run(run_name=recipe["name"])
        self._mlflow.log_dict(recipe, "recipe.json")

    def log(self, step: int, figures: dict[str, float]) -> None:
        """A point of each curve."""
        self._mlflow.log_metrics(figures, step=step)

    def finish(self, status: str) -> None:
        """End the run."""
        states = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
        self._mlflow.end_run(states[status])


def find_tracker(name: str) -> type[Tracker]:
    """The class `module:Class`.

    Raises ConfigError if there is none of that name, or it lacks a method.
    """
    module, _, kind = name.partition(":")
    try:
        found: type[Tracker] = getattr(importlib.import_module(module), kind)
    except Exception as error:  # whatever a user's module raises
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(
            f"loop.tracker: {name!r} must be module:Class, of a module that can be imported; "
            f"{reason}"
        ) from error
    for method in ("start", "log", "finish"):
        if not callable(getattr(found, method, None)):
            raise ConfigError(f"loop.tracker: {name!r} has no method {method!r}")
    return found


class Trackers:
    """Several trackers; an error in one of them does not end the run."""

    def __init__(self, kinds: Sequence[type[Tracker]]) -> None:
        self._kinds = kinds
        self._left: list[Tracker] = []

    def start(self, recipe: dict[str, Any], run: Path, step: int) -> None:
        """Make each tracker and start it."""
        for kind in self._kinds:
            with _harmless(kind):
                tracker = kind()
                tracker.start(recipe, run, step)
                self._left.append(tracker)

    def log(self, step: int, figures: dict[str, float]) -> None:
        """Pass the figures of a step on to each tracker."""
        self._each(lambda tracker: tracker.log(step, figures))

    def finish(self, status: str) -> None:
        """Tell each tracker that the run has ended, and how."""
        self._each(lambda tracker: tracker.finish(status))

    def _each(self, act: Callable[[Tracker], None]) -> None:
        trackers, self._left = self._left, []
        for tracker in trackers:
            with _harmless(type(tracker)):
                act(tracker)
                self._left.append(tracker)


@contextmanager
def _harmless(kind: type[Tracker]) -> Iterator[None]:
    """Turn whatever the block raises into a warning."""
    try:
        yield
    except Exception as error:  # a tracker's own, which no list would hold
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        logger.warning(
            "%s failed and gets no more figures of this session: %s", kind.__name__, reason
        )
