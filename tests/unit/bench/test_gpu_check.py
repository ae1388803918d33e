"""The script for a machine with a GPU: a driver and a Python stand in that note what is asked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from shutil import which

import pytest

ROOT = Path(__file__).resolve().parents[3]

PYTHON = """#!/bin/sh
echo "$*" >> {noted}
case "$*" in
  *"-m pytest"*) echo "1 failed" >&2; exit 1 ;;
  *"tensorrt-cu13"*) exit 1 ;;
  *"import torch"*) {torch} ;;
  *) echo "a table" ;;
esac
"""


def check(folder: Path, torch: str, *wheels: str, seconds: int = 60) -> tuple[int, str, list[str]]:
    """Run the script; returns its status, what it tells, and what Python was asked to do."""
    noted = folder / "noted"
    for place, text in (
        (folder / "bin/nvidia-smi", "#!/bin/sh\necho A GPU\n"),
        (folder / "out/venv/bin/python", PYTHON.format(noted=noted, torch=torch)),
    ):
        place.parent.mkdir(parents=True)
        place.write_text(text)
        place.chmod(0o755)
    path = f"{folder / 'bin'}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "bench/gpu_check.sh", str(folder / "out"), *wheels],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "GPU_CHECK_SECONDS": str(seconds)},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, noted.read_text().splitlines() if noted.exists() else []


@pytest.mark.parametrize(("torch", "installed"), [("echo", False), ("echo torch", True)])
def test_parts_go_on_after_one_that_fails(torch: str, installed: bool, tmp_path: Path) -> None:
    status, told, asked = check(tmp_path, torch, str(tmp_path))
    assert status == 1
    assert "tests: status 1 after" in told
    assert "1 failed" in told
    assert "tensorrt: cannot be installed here" in told
    for part in ("install", "engine", "joint", "training", "compiled"):
        assert f"{part}: status 0 after" in told
        assert (tmp_path / "out" / f"{part}.txt").read_text() == "a table\n"
    install, tensorrt = [line for line in asked if " pip install " in line]
    assert f"--no-index --find-links {tmp_path} " in install
    assert "onnxruntime-gpu==" in install
    assert ("torch==" in install) is installed
    assert f"--no-index --find-links {tmp_path} tensorrt-cu13" in tensorrt
    assert len([line for line in asked if "--device cuda" in line]) == 4


def test_its_requirements_are_the_pinned_ones_with_the_gpus_runtime(tmp_path: Path) -> None:
    check(tmp_path, "echo")
    serve, dev = (
        {line for line in (tmp_path / "out" / name).read_text().splitlines() if "==" in line}
        for name in ("serve.txt", "dev.txt")
    )
    pinned = [
        {line for line in (ROOT / "requirements" / name).read_text().splitlines() if "==" in line}
        for name in ("serve.txt", "dev.txt")
    ]
    assert {line.split("==")[0] for line in pinned[0] - serve} == {"onnxruntime"}
    assert {line.split("==")[0] for line in pinned[1] - dev} == {"torch"}
    whole = (tmp_path / "out" / "dev.txt").read_text()
    assert f"-r {tmp_path}/out/serve.txt" in whole
    assert f"-c {ROOT}/requirements/cuda-constraints.txt" in whole


def test_without_time_nothing_is_begun(tmp_path: Path) -> None:
    status, told, asked = check(tmp_path, "echo", seconds=0)
    assert status == told.count("no time left") == 6
    assert not [line for line in asked if "-m" in line]


@pytest.mark.skipif(which("nvidia-smi", path="/usr/bin:/bin") is not None, reason="there is one")
def test_without_a_gpu_it_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/bash", "bench/gpu_check.sh", str(tmp_path / "out")],
        cwd=ROOT, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    assert not (tmp_path / "out").exists()
    assert done.returncode == 1
    assert "there is no GPU with its driver here" in done.stdout
