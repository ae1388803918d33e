"""`python -m bench encoders` and `encoder-server` on a tiny encoder: the peers are made of it, and
agree; the server answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import main
from export.bundles.subject import Form
from export.importing.bundle import import_bundle
from export.importing.model import Declared
from export.texts.texts import Texts
from tests.conftest import TinyEncoders
from tests.toy.encoders import write_lines

ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("traced_once")]


def test_each_system_has_a_row_for_each_size_of_calls(
    tiny_encoders: TinyEncoders, tmp_path: Path
) -> None:
    """In a process of its own: here CTranslate2 may have been imported by other tests, and then it
    multiplies as it did for them. Of five times of a few milliseconds the median is taken, since
    other tests run beside this one."""
    text = write_lines(tmp_path)
    bundle = tiny_encoders.bundles / "tiny-embedder"
    command = ["encoders", "--bundle", str(bundle), "--source", str(tiny_encoders.embedder)]
    command += ["--texts", str(text), "--batch", "1,4", "--repetitions", "5", "--threads", "1"]
    program = [sys.executable, "-m", "bench", *command, "--busy"]
    done = subprocess.run(program, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")][2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row[0] for row in rows] == ["1"] * 4 + ["4"] * 4
    assert len({row[1] for row in rows}) == 4
    assert {row[3] for row in rows if row[1].startswith("this engine")} == {"1.00"}
    products = [row for row in rows if row[1].startswith("int8 products")]
    assert len(products) == 2
    assert all(float(row[3]) < 1.0 and row[4] == "" for row in products)
    assert all(float(row[4]) > 0.95 for row in rows if row not in products)


def test_a_server_is_timed_beside_its_engine(
    tiny_encoders: TinyEncoders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = write_lines(tmp_path)
    command = ["encoder-server", "--bundle", str(tiny_encoders.bundles / "tiny-embedder")]
    command += ["--texts", str(text), "--batch", "4", "--repetitions", "1", "--seconds", "1"]
    assert main([*command, "--threads", "1", "--busy"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row[0] for row in rows] == ["4"]
    assert all(float(row[1].replace(",", "")) > 0 for row in rows)
    assert all(cell.endswith("%)") and cell[0] != "0" for row in rows for cell in row[2:])


def test_a_bundle_of_another_encoder_is_refused(
    tiny_encoders: TinyEncoders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = write_lines(tmp_path)
    import_bundle(
        tiny_encoders.embedder,
        tmp_path / "cls",
        Form("fp32"),
        Texts(text=text),
        Declared(pooling="cls"),
    )
    command = ["encoders", "--bundle", str(tmp_path / "cls")]
    command += ["--source", str(tiny_encoders.embedder)]
    assert main([*command, "--texts", str(text), "--threads", "1", "--busy"]) == 1
    assert "pooling must be 'mean', got 'cls'" in capsys.readouterr().err
    (tmp_path / "empty").write_text("\n\n")
    assert main([*command, "--texts", str(tmp_path / "empty"), "--threads", "1", "--busy"]) == 1
    assert "it holds no text" in capsys.readouterr().err
