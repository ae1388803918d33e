"""A translation memory of a few hundred segments: what is looked up, what is found, the table."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.errors import BenchError
from bench.reports.report import Machine
from bench.runs.decoding.remembering import (
    CHANGED,
    OTHER,
    SAME,
    RecallPlan,
    measure_recall,
    recall_markdown,
)
from serving.text.memory.index import SegmentIndex

WORDS = ["river", "window", "garden", "teacher", "morning", "station", "letter", "engine"]
TEXTS = [" ".join(words) for words in itertools.permutations(WORDS, 5)][::20]
PLAN = RecallPlan(segments=300, lookups=20, threshold=75.0, seed=3)
MACHINE = Machine(cpu="a CPU", cores=2, processors=1, memory_gib=4.0, others=0.01)


def test_what_is_in_the_memory_is_found_and_the_best_of_what_is_alike() -> None:
    found = measure_recall([*TEXTS, *TEXTS, " ", ""], PLAN, lambda _: None)
    assert [times.kind for times in found.times] == [SAME, CHANGED, OTHER]
    same, changed, _ = found.times
    assert (same.best, same.existing) == (20, 20)
    assert 0 < changed.best <= changed.existing <= 20
    for times in found.times:
        assert len(times.processor_ms) == len(times.wall_ms) == 20
        assert min(times.wall_ms) > 0
    assert found.characters == pytest.approx(sum(map(len, TEXTS)) / len(TEXTS), rel=0.1)
    assert found.index_bytes == pytest.approx(SegmentIndex(TEXTS[:300]).num_bytes, rel=0.2)


def test_an_index_that_misses_the_best_is_told_from_one_that_finds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SegmentIndex, "exact", lambda *_: [])
    monkeypatch.setattr(SegmentIndex, "similar", lambda *_: [])
    found = measure_recall(TEXTS, PLAN, lambda _: None).times
    assert all(times.existing > 0 for times in found)
    assert [times.best for times in found] == [0, 0, 0]


def test_the_table_has_a_row_for_each_kind_of_sentence() -> None:
    found = measure_recall(TEXTS, PLAN, lambda _: None)
    lines = recall_markdown("command", MACHINE, PLAN, found).splitlines()
    assert lines[0] == "`command`"
    assert lines[2].startswith("300 segments of 3")
    assert "20 lookups of each kind, from 75 % on" in lines[2]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    assert {len(row) for row in rows} == {8}
    assert [row[0] for row in rows[2:]] == [SAME, CHANGED, OTHER]
    assert rows[2][-1] == "20 of 20"
    assert all(float(cell) > 0 for row in rows[2:] for cell in row[1:7])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (TEXTS[:310], r"320 different lines \(--segments and --lookups\), got 310"),
        ([f"word {number}" for number in range(400)], "at least 4 words, got none"),
    ],
)
def test_too_few_texts_are_said(texts: list[str], message: str) -> None:
    with pytest.raises(BenchError, match=message):
        measure_recall(texts, PLAN, lambda _: None)


@pytest.mark.slow
def test_the_verb_reads_several_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_text("\n".join(TEXTS[:200]), encoding="utf-8")
    (tmp_path / "b.gz").write_bytes(gzip.compress("\n".join(TEXTS[200:]).encode()))
    words = ["translation-memory", "--segments", "300", "--lookups", "10", "--busy"]
    words += ["--texts", str(tmp_path / "a"), "--texts", str(tmp_path / "b.gz")]
    assert main(words) == 0
    assert "| 10 of 10 |" in capsys.readouterr().out
    assert main([*words, "--threshold", "0"]) == 1
    assert "--threshold must be a percentage from 1 to 100, got 0" in capsys.readouterr().err
