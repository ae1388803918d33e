"""The tables of `bench quality`, from results made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.reports.report import Machine
from bench.runs.evaluation.quality import RunResult, SystemResult, parse_system
from bench.runs.evaluation.quality_report import quality_markdown, write_quality_record
from export.comparison.significance import BleuChange
from training.metrics.analysis import FrequencyBucket, LengthBucket
from training.metrics.bleu import CorpusScores

MACHINE = Machine(cpu="a CPU", cores=2, processors=1, memory_gib=4.0, others=0.01)


def make_run(bleu: float, hours: float = 1.0, checkpoint: str = "averaged") -> RunResult:
    return RunResult(
        run=f"runs/{bleu}",
        checkpoint=checkpoint,
        parameters=1_234_567,
        training_hours=hours,
        tokens_per_second=bleu * 10,
        quality=CorpusScores(bleu, "bleu-signature", bleu + 20, "chrf-signature", bleu / 30),
        lengths=[LengthBucket("1-5", 7, bleu, 0.0, 1.0), LengthBucket("6-10", 3, 1.0, 0.0, 1.0)],
        frequencies=[FrequencyBucket(">1000", 12, 11, 0.5, 0.5, bleu / 100)],
        translations=["Grüße"],
    )


RESULTS = [
    SystemResult("old", [make_run(30.0), make_run(33.0, hours=2.0)], None),
    SystemResult("new", [make_run(36.0, checkpoint="best")], BleuChange(6.0, -1.25, 7.5)),
]


def test_tables() -> None:
    text = quality_markdown("python -m bench quality", MACHINE, "test.de", RESULTS)
    lines = text.splitlines()
    assert lines[0] == "`python -m bench quality`"
    assert lines[2] == "test.de"
    assert lines.index("sacreBLEU: bleu-signature; chrF: chrf-signature.") < lines.index(
        "| old | 2 | 1.23 | 31.50 (30.00-33.00) | baseline | 51.50 (50.00-53.00) | 1.050 | 1.50 "
        "| 315 |"
    )
    assert "| new | 1 | 1.23 | 36.00 | +6.00 [-1.25, +7.50] | 56.00 | 1.200 | 1.00 | 360 |" in lines
    assert "| words | sentences | old | new |" in lines
    assert "| 1-5 | 7 | 31.50 | 36.00 |" in lines
    assert "| 6-10 | 3 | 1.00 | 1.00 |" in lines
    assert "| >1000 | 12 | 0.315 | 0.360 |" in lines
    assert "checkpoints: averaged, best." in text
    assert "not to be quoted" not in text


def test_record(tmp_path: Path) -> None:
    path = tmp_path / "new" / "record.json"
    write_quality_record(path, "command", MACHINE, "test.de", RESULTS)
    record = json.loads(path.read_text())
    assert [system["name"] for system in record["systems"]] == ["old", "new"]
    assert record["systems"][1]["change"] == {"mean": 6.0, "low": -1.25, "high": 7.5}
    assert record["systems"][0]["runs"][1]["quality"]["bleu"] == 33.0
    assert record["systems"][0]["runs"][0]["translations"] == ["Grüße"]


def test_systems_are_parsed() -> None:
    system = parse_system("a=runs/x,runs/y=2")
    assert system.name == "a"
    assert system.runs == [Path("runs/x"), Path("runs/y=2")]


@pytest.mark.parametrize("text", ["a", "=runs/x", "a=", "a=x,,y", ""])
def test_what_is_no_system(text: str) -> None:
    with pytest.raises(BenchError, match="--system must be NAME=RUN,RUN,"):
        parse_system(text)
