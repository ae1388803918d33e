"""The line that tells how a run goes."""

from __future__ import annotations

import logging

import pytest
import torch

from training.loop.progress import LiveLine, LogWindow, describe, memory_bytes

RECORD = {"loss": 3.29395, "labels_per_second": 782.4, "memory_mb": 1240}


def test_the_line_reports_loss_speed_bleu_memory_and_time() -> None:
    line = describe(RECORD, {"loss": 2.0, "bleu": 12.07}, 22323.4)
    assert line == "loss 3.294, 782 labels/s, BLEU 12.1, 1.2 GB, 6:12:03 left"


def test_speed_is_reported_as_a_share_of_the_machines_where_that_is_known() -> None:
    window = LogWindow(torch.device("cpu"))
    window.begin(1e-6)
    window.add({"loss": 1.0, "labels": 10, "lr": 0.1, "gradient_norm": 2.0})
    record = window.take(0)
    expected = record["labels_per_second"] * 1e-6
    assert record["matrix_share"] == pytest.approx(expected, abs=1e-3)
    line = describe({**RECORD, "matrix_share": 0.417}, {}, 1)
    assert "782 labels/s (42 % of matrix speed)" in line


def test_what_is_not_known_is_left_out() -> None:
    line = describe({**RECORD, "memory_mb": 0}, {}, 59.6)
    assert line == "loss 3.294, 782 labels/s, 0:01:00 left"


def test_outside_a_terminal_each_record_is_a_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    line = LiveLine(100, 300)
    with caplog.at_level(logging.INFO):
        line.show(200, RECORD, {"bleu": 1.0})
    line.close()
    (message,) = caplog.messages
    assert message.startswith("step 200 of 300: loss 3.294, 782 labels/s, BLEU 1.0")
    assert message.endswith("0:00:00 left")  # half is done, in no time


def test_the_time_left_is_that_of_this_session(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("training.loop.progress.time.perf_counter", lambda: now)
    line = LiveLine(100, 300)
    now += 60
    with caplog.at_level(logging.INFO):
        line.show(150, RECORD, {})  # 50 updates a minute, 150 updates to go
    assert caplog.messages[0].endswith("0:03:00 left")


def test_a_record_is_a_mean_over_labels_and_tells_memory() -> None:
    window = LogWindow(torch.device("cpu"))
    for loss, labels in ((30.0, 10), (10.0, 10)):
        window.add({"loss": loss, "labels": labels, "lr": 0.1, "gradient_norm": 2.0})
    record = window.take(3)
    assert (record["loss"], record["epoch"]) == (2.0, 3)
    assert record["memory_mb"] == pytest.approx(memory_bytes(torch.device("cpu")) / 1e6, rel=0.1)
    assert record["memory_mb"] > 50  # torch alone is more
    assert window.sums == {"loss": 0.0, "labels": 0}
