"""Trackers: what they are told, and that none of them ends a run."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.toy.recipe import write_toy_recipe
from tests.toy.refusal import refusal
from training.__main__ import main
from training.errors import ConfigError
from training.runs.trackers import TensorBoard, Trackers, find_tracker


class Told:
    """Keeps what it is told; fails where it is asked to."""

    calls: ClassVar[list[tuple[Any, ...]]] = []
    fails: ClassVar[str] = ""

    def start(self, recipe: dict[str, Any], run: Path, step: int) -> None:
        self._tell("start", recipe["name"], run.name, step)

    def log(self, step: int, figures: dict[str, float]) -> None:
        self._tell("log", step, figures)

    def finish(self, status: str) -> None:
        self._tell("finish", status)

    def _tell(self, *call: Any) -> None:
        self.calls.append(call)
        if self.fails == call[0]:
            raise ConnectionError("no such\nserver")


@pytest.fixture(autouse=True)
def tracker(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of `Told`, which was told nothing yet."""
    monkeypatch.setitem(sys.modules, "toy_trackers", SimpleNamespace(Told=Told))  # type: ignore[arg-type]
    monkeypatch.setattr(Told, "calls", [])
    monkeypatch.setattr(Told, "fails", "")
    return "toy_trackers:Told"


@pytest.fixture
def command(tmp_path: Path, tracker: str) -> list[str]:
    recipe, run = str(write_toy_recipe(tmp_path, pairs=150)), str(tmp_path / "run")
    short = ["loop.max_steps=4", "loop.log_every=2", "loop.validate_every=4", "--threads", "1"]
    return ["train", recipe, "--run", run, f"loop.tracker={tracker}", *short]


def test_a_tracker_is_given_what_stands_in_the_log(command: list[str]) -> None:
    assert main([*command, "--stop-after", "2"]) == 0
    assert main(command) == 0
    start, log, finish, start_again, log_again, validation, finish_again = Told.calls
    assert start == ("start", "toy", "run", 0)
    assert log[:2] == ("log", 2)
    assert log[2].keys() >= {"train/loss", "train/lr", "train/labels_per_second"}
    assert finish == finish_again == ("finish", "finished")
    assert start_again == ("start", "toy", "run", 2)
    assert log_again[1] == 4
    assert validation[2].keys() >= {"validation/loss", "validation/bleu"}
    assert all(isinstance(value, int | float) for value in validation[2].values())


@pytest.mark.parametrize(("fails", "calls"), [("start", 1), ("log", 2), ("finish", 5)])
def test_a_tracker_that_fails_is_left_out_with_one_warning(
    command: list[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    fails: str,
    calls: int,
) -> None:
    monkeypatch.setattr(Told, "fails", fails)
    with caplog.at_level(logging.WARNING):
        assert main(command) == 0
    (warning,) = (line for line in caplog.messages if line.startswith("Told"))
    assert warning == (
        "Told failed and gets no more figures of this session: ConnectionError: no such server"
    )
    assert len(Told.calls) == calls


def test_a_run_that_fails_says_so(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ConfigError("for a reason of its own")

    monkeypatch.setattr("training.loop.trainer.Trainer.update", fail)
    assert main(command) == 1
    assert Told.calls[-1] == ("finish", "failed")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:Told", "ModuleNotFoundError: No module named 'nowhere'"),
        ("toy_trackers:Tell", "has no attribute 'Tell'"),
        ("json:JSONDecoder", "'json:JSONDecoder' has no method 'start'"),
        ("json", "'json' must be module:Class"),
    ],
)
def test_a_name_of_no_tracker_is_refused_before_the_work(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    error = refusal(capsys, *command, f"loop.tracker={name}")
    assert "loop.tracker: " in error
    assert message in error
    assert not (tmp_path / "run").exists()


def test_tensorboard_shows_no_figure_twice_when_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step, loss in ((0, 1.0), (10, 2.0)):
        # Files are read in the order of their names, which begin with the second of their making.
        clock = SimpleNamespace(time=lambda second=1_000_000_000 + step: second)
        monkeypatch.setattr("tensorboard.summary.writer.event_file_writer.time", clock)
        trackers = Trackers([TensorBoard])
        trackers.start({"name": "toy"}, tmp_path, step)
        for later in (5, 10, 15):
            if later > step:
                trackers.log(later, {"train/loss": loss})
        trackers.finish("finished")
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert events.Tags()["scalars"] == ["train/loss"]
    found = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert found == [(5, 1.0), (10, 1.0), (15, 2.0)]


def test_the_adapter_for_mlflow_tells_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Any, ...]] = []
    fake = SimpleNamespace(
        start_run=lambda run_name: calls.append(("start", run_name)),
        log_dict=lambda tree, file: calls.append(("recipe", tree["name"], file)),
        log_metrics=lambda figures, step: calls.append(("log", step, figures)),
        end_run=lambda status: calls.append(("end", status)),
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)  # type: ignore[arg-type]
    trackers = Trackers([find_tracker("training.runs.trackers:MLflow")])
    trackers.start({"name": "toy"}, tmp_path, 0)
    trackers.log(5, {"train/loss": 1.0})
    trackers.finish("stopped")
    assert calls == [
        ("start", "toy"),
        ("recipe", "toy", "recipe.json"),
        ("log", 5, {"train/loss": 1.0}),
        ("end", "KILLED"),
    ]
