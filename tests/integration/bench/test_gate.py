"""`python -m bench gate` on models too small to tell anything of speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import main
from bench.commands import gate as command
from bench.runs.gate.rows import GatePlan

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("traced_once")]


def test_each_kind_of_model_has_its_rows_and_the_next_look_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def tiny(repetitions: int, cores: int) -> GatePlan:
        return GatePlan(
            repetitions,
            cores,
            shapes=("tiny",),
            joint="joint-tiny",
            language="lm_tiny",
            batches=(1, 3),
            others=False,
        )

    monkeypatch.setattr(command, "GatePlan", tiny)
    arguments = f"gate --records {tmp_path} --repetitions 2 --threads 1 --busy".split()
    main(arguments)
    out = capsys.readouterr().out
    rows = [line.split(" | ")[0].strip("| ") for line in out.splitlines() if "batch" in line]
    assert rows == [
        "tiny, batch 1, beam 5",
        "tiny, batch 3, beam 5",
        "tiny, batch 3, beam 5, shortlists",
        "joint-tiny, batch 1, beam 5",
        "lm_tiny, batch 1, top 1",
        "lm_tiny, batch 1, top 10",
        "lm_tiny, batch 3, top 1",
        "lm_tiny, batch 3, top 10",
    ]
    assert len(list(tmp_path.glob("*.json"))) == 1
