"""The metrics of a run, also of one that was killed."""

from __future__ import annotations

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from training.metrics import MetricsLog, read_metrics


def test_records_go_to_json_lines_and_tensorboard(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0)
    log.log("train", 5, {"loss": 0.1 + 0.2})
    log.log("validation", 5, {"bleu": 12.5, "bleu_signature": "nrefs:1"})
    log.close()
    train, validation = read_metrics(tmp_path)
    assert train.pop("time") > 0
    assert train == {"kind": "train", "step": 5, "loss": 0.1 + 0.2}
    assert validation["bleu_signature"] == "nrefs:1"
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert events.Tags()["scalars"] == ["train/loss", "validation/bleu"]
    (event,) = events.Scalars("validation/bleu")
    assert (event.step, event.value) == (5, 12.5)


def test_resuming_drops_records_past_the_checkpoint(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0)
    for step in (5, 10, 15):
        log.log("train", step, {"loss": 1.0})
    log.close()
    resumed = MetricsLog(tmp_path, 10)
    resumed.log("train", 15, {"loss": 2.0})
    resumed.close()
    found = [(record["step"], record["loss"]) for record in read_metrics(tmp_path)]
    assert found == [(5, 1.0), (10, 1.0), (15, 2.0)]
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.value for event in events.Scalars("train/loss")] == [1.0, 1.0, 2.0]


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0)
    log.log("train", 5, {"loss": 1.0})
    log.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    MetricsLog(tmp_path, 5).close()
    assert [record["step"] for record in read_metrics(tmp_path)] == [5]
    assert (tmp_path / "metrics.jsonl").read_text().endswith("\n")
