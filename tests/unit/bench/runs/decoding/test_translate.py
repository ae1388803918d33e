"""What is concluded from whole processes, made by hand."""

from __future__ import annotations

import pytest

from bench.machine.stopwatch import ProcessUsage
from bench.reports.report import Machine
from bench.runs.decoding.translate import (
    Stage,
    TimedTranslation,
    fastest_batches,
    translate_markdown,
)
from bench.subjects.materials import DecodedModel
from bench.subjects.scenarios import OUR_INT8, PEER_INT8, Setting, System
from training.models import TransformerConfig, build_model

MACHINE = Machine(cpu="a CPU", cores=2, processors=2, memory_gib=4.0, others=0.01)
SOURCES = ["eins", "zwei", "drei", "vier"]
REFERENCES = ["one of them is here", "two of them are here", "three", "four"]


def translated(system: System, seconds: list[float], lines: list[str]) -> TimedTranslation:
    usages = [ProcessUsage(0.0, s, 2 * s, round(s * 2**20)) for s in seconds]
    stages = [
        [Stage("loaded", s / 4, s / 8, 2**20, 2**21), Stage("ended", s, s, None, 2**22)]
        for s in seconds
    ]
    batches = ("tokens", 1024) if system == PEER_INT8 else None
    return TimedTranslation(system, Setting(2, 1), batches, usages, lines, stages)


def test_processes_stand_beside_each_other() -> None:
    config = TransformerConfig(model_dim=16, num_heads=2, vocab_size=9)
    subject = DecodedModel("a run", build_model(config), SOURCES, REFERENCES, None)
    ours = translated(OUR_INT8, [5.0, 1.0, 2.0], REFERENCES)
    theirs = translated(PEER_INT8, [4.0], ["one of them was there", *REFERENCES[1:]])
    lines = translate_markdown("command", MACHINE, "a run.", subject, [ours, theirs]).splitlines()
    assert (lines[0], lines[2]) == ("`command`", "a run.")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    head, own, rival = rows[0], rows[2], rows[3]
    assert head == [
        "system",
        "workers x threads",
        "seconds (min-max)",
        "CPU seconds",
        "sentences/s",
        "peak RSS, MiB",
        "speed / CTranslate2 int8",
        "BLEU",
    ]
    assert own[:-1] == [OUR_INT8.name, "2 x 1", "2.00 (1.00-5.00)", "4.00", "2", "5", "2.00"]
    assert own[-1] == "100.00"
    assert rival[-2] == "1.00"
    assert 0 < float(rival[-1]) < 100
    (line,) = (line for line in lines if line.startswith("Same translations: 3 of 4; BLEU"))
    assert float(line.rpartition(": ")[2].split()[0]) == pytest.approx(
        100 - float(rival[-1]), abs=0.01
    )
    assert any(line.startswith(f"{PEER_INT8.name} has batches of 1024 tokens,") for line in lines)
    assert rows[-4] == [OUR_INT8.name, "loaded", "0.500", "0.250", "1", "2"]
    assert rows[-3] == [OUR_INT8.name, "ended", "2.000", "2.000", "", "4"]


def test_each_thread_setting_keeps_its_fastest_batches() -> None:
    one, two = Setting(1, 1), Setting(2, 1)
    tried = [TimedTranslation(OUR_INT8, one), TimedTranslation(PEER_INT8, one, ("examples", 32))]
    tried += [
        TimedTranslation(PEER_INT8, two, batches) for batches in (("examples", 32), ("tokens", 9))
    ]
    assert fastest_batches(tried, [9.0, 8.0, 3.0, 2.0]) == [tried[0], tried[1], tried[3]]
