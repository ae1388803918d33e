"""From the toy corpus to an answer over HTTP: the model was trained and exported by this run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TinyModel
from tests.system.test_service import ROOT, environment, running
from training.metrics.bleu import measure_quality

pytestmark = pytest.mark.slow


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_copying_over_http_reaches_bleu_100_and_equals_the_command_line(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    source, target = (lines(tiny_model.run / f"validation.{s}") for s in ("source", "target"))
    bundles = tmp_path / "bundles"
    shutil.copytree(tiny_model.int8, bundles / "tiny-int8")
    with running(bundles, tmp_path) as server:
        answers = [server.ask(text).json()["translatedText"] for text in source]
        together = server.ask(source).json()["translatedText"]
    assert together == answers
    assert measure_quality(answers, target).bleu == pytest.approx(100.0)
    done = subprocess.run(
        [sys.executable, "-m", "serving", "translate", str(tiny_model.int8)],
        cwd=ROOT,
        env=environment(bundles, tmp_path),
        input="".join(f"{line}\n" for line in source),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout == "".join(f"{line}\n" for line in answers)
