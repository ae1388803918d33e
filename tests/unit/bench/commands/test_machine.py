"""What a bench does on a busy machine."""

from __future__ import annotations

import pytest

from bench.__main__ import main
from bench.commands import training
from bench.reports import report

ATTENTION = ["attention", "--length", "64", "--repetitions", "1", "--threads", "1"]


@pytest.mark.parametrize(("percent", "idle"), [(5.0, True), (60.0, False)])
def test_a_busy_machine_is_refused_unless_that_is_asked_for(
    percent: float, idle: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training, "time_attention", lambda *_: [])
    monkeypatch.setattr(report.psutil, "cpu_percent", lambda interval: percent)
    assert (main(ATTENTION) == 0) is idle
    output = capsys.readouterr()
    assert (output.out == "") is not idle
    assert ("--busy" in output.err) is not idle
    assert main([*ATTENTION, "--busy"]) == 0
    table = capsys.readouterr().out
    assert f"{percent:.0f}% in use before the run" in table
    assert ("not to be quoted" in table) is not idle


def test_a_machine_that_becomes_busy_spoils_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = iter([2.0, 40.0, 2.0, 40.0])
    monkeypatch.setattr(training, "time_attention", lambda *_: [])
    monkeypatch.setattr(report.psutil, "cpu_percent", lambda interval: next(looks))
    assert main(ATTENTION) == 1
    output = capsys.readouterr()
    assert "2% in use before the run, 40% after it" in output.out
    assert "(40% of its processors in use" in output.err
    assert main([*ATTENTION, "--busy"]) == 0
