"""A shipped language model beside a stand-in for llama.cpp: whole runs, with it and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.reports.report import Machine
from bench.runs.rivals import turns
from bench.runs.rivals.language import (
    LONG,
    LanguageRivalsPlan,
    compare_language,
    equal_until,
    language_rivals_markdown,
)
from bench.systems.processes.rivals import ENGINE
from tests.unit.bench.stand_ins import install, llama_package

ROOT = Path(__file__).resolve().parents[5]
TEXT = "The film was released in the United Kingdom in nineteen ninety and shown in cinemas . " * 4


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LanguageRivalsPlan:
    monkeypatch.setattr(turns.time, "sleep", lambda _: None)
    monkeypatch.delenv("LLAMA_CPP_LIB_PATH", raising=False)
    file = tmp_path / "model.gguf"
    file.write_text("gguf")
    return LanguageRivalsPlan(
        file=file,
        bundle=ROOT / "models" / "lm-cascade",
        texts=[TEXT] * 24,
        pythons={},
        repetitions=1,
        threads=1,
        generated=3,
    )


def test_equal_outputs_end_at_the_first_difference() -> None:
    assert equal_until([[1, 2, 3], [1, 9, 3]], [[1, 2, 3], [1, 2, 3]]) == 2.0
    assert equal_until([[4], [1, 2]], [[5], [1, 2, 3]]) == 1.0


def test_without_llama_cpp_the_engine_is_measured_and_the_reason_printed(
    plan: LanguageRivalsPlan, tmp_path: Path
) -> None:
    found = compare_language(plan, tmp_path, lambda _: None)
    assert [each.system for each in found.systems] == [ENGINE]
    assert len(found.turns) == 3
    machine = Machine("a processor", 2, 1, 8.0, 0.0, others_after=0.0)
    text = language_rivals_markdown("command", machine, plan, found)
    missing = "ModuleNotFoundError: No module named 'llama_cpp'"
    assert f"llama.cpp, model.gguf is left out: {missing}." in text
    assert f"llama.cpp, Q4_0 and Q8_0 is left out: {missing}." in text
    assert "No rival could be loaded." in text


def test_llama_cpp_runs_the_file_and_what_it_makes_of_it(
    plan: LanguageRivalsPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", llama_package(), monkeypatch)
    found = compare_language(plan, tmp_path, lambda _: None)
    names = ["llama.cpp, model.gguf", "llama.cpp, Q4_0", "llama.cpp, Q8_0"]
    assert found.left_out == {}
    assert [each.system for each in found.systems] == [ENGINE, *names]
    assert {each.work.name for each in found.turns} == {
        "one stream",
        "8 streams",
        f"prompt of {LONG}",
    }
    ours, *theirs = found.systems
    assert ours.equal == 3.0  # with itself
    assert ours.bytes > 10**5
    assert ours.perplexity > 1
    for each in theirs:
        assert (each.bytes, each.perplexity) == (4, pytest.approx(theirs[0].perplexity))
        assert each.equal < 3.0


def test_too_few_texts_are_said(plan: LanguageRivalsPlan, tmp_path: Path) -> None:
    few = LanguageRivalsPlan(**{**vars(plan), "texts": [TEXT] * 7})
    with pytest.raises(BenchError, match="--texts must have 8 texts of at least 32 ids"):
        compare_language(few, tmp_path, lambda _: None)
