"""Marks of a reader beside the probabilities of a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.runs.evaluation.reading import (
    MARKS,
    ReadTranslation,
    measure_reading,
    read_marks,
    reading_markdown,
)
from tests.unit.serving.echo import EchoTranslator

ROOT = Path(__file__).resolve().parents[5]


def read(source: str, mark: str, translation: str | None = None) -> ReadTranslation:
    return ReadTranslation(("de", "en"), source, translation or source, mark)


def test_only_translations_that_the_model_writes_count() -> None:
    rows = [read("abc", "right"), read("abcd", "usable"), read("abcde", "wrong")]
    rows += [read("xyz", "wrong", "other"), ReadTranslation(("en", "de"), "a", "a", "wrong")]
    found = measure_reading(EchoTranslator(), rows, print)
    assert (found.sentences, found.changed) == (3, 1)
    assert found.right == pytest.approx(1 / 3)
    assert found.usable == pytest.approx(2 / 3)
    assert found.mean_probability is None
    assert 0 <= found.auc_right[1] <= found.auc_right[0] <= found.auc_right[2] <= 1
    assert "| `echo-de-en` | 3 (+ 1) | 33 % | 67 % | – |" in reading_markdown([found])
    with pytest.raises(BenchError, match="marks of every kind, got 1 of 1"):
        measure_reading(EchoTranslator(), rows[:1], print)


@pytest.mark.parametrize("line", ["", "de-en\ta\tb", "de-en\ta\tb\tgood", "de\ta\tb\tright"])
def test_a_line_of_another_form_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "marks.tsv").write_text(f"de-en\ta\tb\tright\n{line}\n")
    with pytest.raises(BenchError, match="line 2"):
        read_marks(tmp_path / "marks.tsv")


def test_the_sentences_that_were_read_are_of_every_served_direction() -> None:
    rows = read_marks(ROOT / "docs/hand-read.tsv")
    assert len(rows) > 150
    assert {row.mark for row in rows} == set(MARKS)
    assert len({(row.languages, row.source) for row in rows}) == len(rows)
    directions = {"-".join(row.languages) for row in rows}
    assert directions == {"de-en", "en-de", "fr-en", "en-fr", "es-en", "en-es"}
