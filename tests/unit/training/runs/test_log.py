"""The metrics of a run, also of one that was killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training.errors import CheckpointError
from training.runs.log import MetricsLog, lowest_validation_loss, read_metrics, training_seconds


def test_records_go_to_json_lines(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0)
    log.log("train", 5, {"loss": 0.1 + 0.2})
    log.log("validation", 5, {"bleu": 12.5, "bleu_signature": "nrefs:1"})
    train, validation = read_metrics(tmp_path)
    assert train.pop("time") > 0
    assert train == {"kind": "train", "step": 5, "loss": 0.1 + 0.2}
    assert validation["bleu_signature"] == "nrefs:1"


def test_resuming_drops_records_past_the_checkpoint(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0)
    for step in (5, 10, 15):
        log.log("train", step, {"loss": 1.0})
    resumed = MetricsLog(tmp_path, 10)
    resumed.log("train", 15, {"loss": 2.0})
    found = [(record["step"], record["loss"]) for record in read_metrics(tmp_path)]
    assert found == [(5, 1.0), (10, 1.0), (15, 2.0)]


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0)
    log.log("train", 5, {"loss": 1.0})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    MetricsLog(tmp_path, 5)
    assert [record["step"] for record in read_metrics(tmp_path)] == [5]
    assert (tmp_path / "metrics.jsonl").read_text().endswith("\n")


@pytest.mark.parametrize("line", ['{"kind": "train", "st', "[1]", '{"step": 3}', "", "\x00\x00"])
def test_a_line_in_the_middle_that_is_no_record_is_named(tmp_path: Path, line: str) -> None:
    MetricsLog(tmp_path, 0).log("train", 5, {"loss": 1.0})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(CheckpointError, match=r"jsonl:2: not a record .* remove that line"):
        MetricsLog(tmp_path, 5)


def write_records(run: Path, records: list[dict[str, Any]]) -> None:
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_training_time_leaves_breaks_out(tmp_path: Path) -> None:
    # 100 labels an update. The second window ran at half the speed; before the fourth lies a break
    # of an hour; the last window is of two updates only.
    windows = [(10, 10, 0), (20, 20, 0), (30, 10, 0), (40, 10, 3600), (42, 2, 0)]
    records, now, last = [], 1e9, 0
    for step, seconds, pause in windows:
        now += seconds + pause
        rate = 100 * (step - last) / seconds
        last = step
        records.append({"kind": "train", "step": step, "time": now, "labels_per_second": rate})
        records.append({"kind": "validation", "step": step, "time": now, "loss": 1.0})
    write_records(tmp_path, records)
    assert training_seconds(tmp_path) == pytest.approx(10 + 20 + 10 + 10 + 2)


def test_training_time_needs_two_records(tmp_path: Path) -> None:
    write_records(tmp_path, [{"kind": "train", "step": 5, "time": 1.0, "labels_per_second": 1.0}])
    with pytest.raises(CheckpointError, match="two records of training at least, got 1"):
        training_seconds(tmp_path)


def test_lowest_validation_loss(tmp_path: Path) -> None:
    losses = [("train", 0.1), ("validation", 2.0), ("validation", 1.5), ("validation", 1.7)]
    write_records(tmp_path, [{"kind": kind, "loss": loss} for kind, loss in losses])
    assert lowest_validation_loss(tmp_path) == 1.5
    write_records(tmp_path, [{"kind": "train", "loss": 0.1}])
    with pytest.raises(CheckpointError, match="no validation yet"):
        lowest_validation_loss(tmp_path)


def test_a_folder_without_metrics_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl: cannot be read"):
        read_metrics(tmp_path)
