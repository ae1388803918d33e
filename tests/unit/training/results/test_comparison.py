"""Several systems' translations side by side."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.toy.corpus import toy_pairs
from training.__main__ import main
from training.metrics.bleu import measure_edit_rate, measure_quality
from training.results.comparison import compare_systems

PAIRS = toy_pairs(60, seed=1)
SOURCES, REFERENCES = ([pair[side] for pair in PAIRS] for side in (0, 1))


def spoilt(every: int) -> list[str]:
    """The references with a wrong word in every so many lines."""
    return [
        text.replace("the", "<what>", 1) + " indeed" if row % every == 0 else text
        for row, text in enumerate(REFERENCES)
    ]


def test_scores_are_those_of_each_system_alone_and_differences_are_tested() -> None:
    outputs = {"base": spoilt(3), "same": spoilt(3), "worse": spoilt(1)}
    compared = compare_systems(SOURCES, REFERENCES, outputs)
    base, same, worse = compared["systems"]
    for system, translations in zip((base, worse), (spoilt(3), spoilt(1)), strict=True):
        quality = measure_quality(translations, REFERENCES)
        assert system["BLEU"]["score"] == round(quality.bleu, 2)
        assert system["chrF2"]["score"] == round(quality.chrf, 2)
        assert system["TER"]["score"] == round(measure_edit_rate(translations, REFERENCES).ter, 2)
        assert system["BLEU"]["low"] < system["BLEU"]["score"] < system["BLEU"]["high"]
    assert base["BLEU"]["p"] is None
    assert same["BLEU"]["p"] == 1.0
    assert worse["BLEU"]["p"] < 0.01
    assert worse["BLEU"]["score"] < base["BLEU"]["score"]
    assert compared["sentences"] == 60
    assert "seed:12345" in compared["signatures"]["BLEU"]
    assert "bs:1000" in compared["signatures"]["TER"]
    assert base["copied"] == 0.0
    again = compare_systems(SOURCES, REFERENCES, outputs)
    assert again == compared


def write(path: Path, lines: list[str]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def test_the_page_shows_the_worst_sentences_of_any_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = list(REFERENCES), list(REFERENCES)
    one[7], two[31], two[40] = "<b>nothing</b>", "none of it", REFERENCES[40] + " too"
    files = [
        write(tmp_path / name, lines)
        for name, lines in (("s", SOURCES), ("r", REFERENCES), ("one", one), ("two", two))
    ]
    page = tmp_path / "page.html"
    command = ["compare", *files, "--page", str(page), "--worst", "3"]
    assert main(command) == 0
    compared = json.loads(capsys.readouterr().out)
    assert [system["name"] for system in compared["systems"]] == ["one", "two"]
    text = page.read_text()
    lines = [int(line) for line in re.findall(r"<h3>Line (\d+)</h3>", text)]
    assert set(lines[:2]) == {8, 32}
    assert lines[2] == 41
    assert "&lt;b&gt;nothing&lt;/b&gt;" in text
    assert "<b>nothing" not in text
    assert f"<td>two</td><td>100</td><td>{REFERENCES[7]}</td>" in text
    assert main(command) == 1
    assert "page.html exists already; give --force" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0


def test_what_cannot_be_compared_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, reference = write(tmp_path / "s", SOURCES), write(tmp_path / "r", REFERENCES)
    short = write(tmp_path / "short", REFERENCES[:5])
    for outputs, message in (
        ([reference], "needs two or more different OUTPUT files"),
        ([reference, reference], "needs two or more different OUTPUT files"),
        ([reference, short], "short:6: line missing"),
        ([reference, source, "--page", "x.txt"], "must end in .html"),
    ):
        assert main(["compare", source, reference, *outputs]) == 1
        captured = capsys.readouterr()
        assert message in captured.err
        assert captured.err.count("\n") == 1


def test_files_of_one_name_are_distinguished_by_their_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [
        write(tmp_path / name, lines)
        for name, lines in (
            ("s", SOURCES),
            ("r", REFERENCES),
            ("a/o", spoilt(2)),
            ("b/o", spoilt(3)),
        )
    ]
    assert main(["compare", *files]) == 0
    names = [system["name"] for system in json.loads(capsys.readouterr().out)["systems"]]
    assert names == files[2:]
