"""`python -m bench batches` on a server of a real bundle, for a second each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import main

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_clients_are_measured_beside_batches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, record = tmp_path / "texts", tmp_path / "found.json"
    texts.write_text("".join(f"Das Haus Nummer {number} ist rot.\n" for number in range(40)))
    command = ["batches", "--bundle", str(ROOT / "models/macaron-de-en"), "--languages", "de-en"]
    options = ["--seconds", "2", "--repetitions", "1", "--line-texts", "1,64", "--threads", "1"]
    given = ["--texts", str(texts), "--batch-texts", "3000", "--busy", "--json", str(record)]
    assert main([*command, *options, *given]) == 0
    table = capsys.readouterr().out
    assert "| without a batch |" in table
    assert "| ratio of the pairs, beside lines of 64 texts |" in table
    found = json.loads(record.read_text())
    assert list(found["beside"]) == ["beside lines of 1 text", "beside lines of 64 texts"]
    for [load] in (found["alone"], *found["beside"].values()):
        assert load["latencies_ms"]
        assert load["failed"] == 0


@pytest.mark.slow
def test_a_batch_that_ends_before_the_load_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = tmp_path / "texts"
    texts.write_text("Ja.\nNein.\n")
    command = ["batches", "--bundle", str(ROOT / "models/macaron-de-en"), "--languages", "de-en"]
    options = ["--seconds", "4", "--repetitions", "1", "--line-texts", "1", "--threads", "1"]
    assert main([*command, *options, "--texts", str(texts), "--batch-texts", "3", "--busy"]) == 1
    assert "more --batch-texts" in capsys.readouterr().err
