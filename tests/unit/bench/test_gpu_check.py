"""The script for a machine with a GPU: a driver and a Python stand in that note what is asked."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from shutil import copy2, which

import pytest

ROOT = Path(__file__).resolve().parents[3]

SITE = "out/venv/lib/python3.99/site-packages"
PYTHON = """#!/bin/sh
echo "$*" >> {noted}
echo "$LD_LIBRARY_PATH" > {noted}.libraries
case "$*" in
  *"-m pytest"*) echo "1 failed" >&2; exit 1 ;;
  *"tensorrt-cu13"*) exit 1 ;;
  *"nvidia/"*) echo "/of/torch/nvidia/cu13/lib" ;;
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
    (folder / SITE).mkdir(parents=True)
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
    assert status == 2
    assert "tests: status 1 after" in told
    assert "memory: status 1 after" in told
    assert "1 failed" in told
    assert "tensorrt: cannot be installed here" in told
    assert "encoder: left out, as MATERIALS have none" in told
    assert told.count("a table\n") == 6
    for part in ("install", "base", "iwslt-joint-fast", "language", "training", "compiled"):
        assert f"{part}: status 0 after" in told
        assert (tmp_path / "out" / f"{part}.txt").read_text() == "a table\n"
    install, tensorrt = [line for line in asked if " pip install " in line]
    assert f"--no-index --find-links {tmp_path} " in install
    assert "onnxruntime-gpu==" in install
    assert ("torch==" in install) is installed
    assert f"--no-index --find-links {tmp_path} tensorrt-cu13" in tensorrt
    benches = [line for line in asked if "--device cuda" in line]
    assert len(benches) == 5
    assert f"--shape base --materials {tmp_path}/out/materials/base" in benches[0]


def test_materials_are_carried_or_made_elsewhere(tmp_path: Path) -> None:
    _, _, asked = check(tmp_path, "echo", "", str(tmp_path / "carried"))
    benches = [line for line in asked if "--shape" in line]
    assert all(f"--materials {tmp_path}/carried/" in line for line in benches)
    assert not [line for line in asked if "--no-index" in line]
    checkout = tmp_path / "checkout"
    (checkout / "bench").mkdir(parents=True)
    copy2(ROOT / "bench/gpu_check.sh", checkout / "bench")
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / ".venv/bin/python").symlink_to(tmp_path / "out/venv/bin/python")
    (tmp_path / "noted").unlink()
    command = ["bash", "bench/gpu_check.sh", "--prepare", str(tmp_path / "made")]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    for shape, asked_for in zip(
        ("base", "iwslt-joint-fast"), (tmp_path / "noted").read_text().splitlines(), strict=True
    ):
        materials = f"--materials {tmp_path}/made/{shape} --prepare"
        assert asked_for == f"-m bench engine --device cuda --shape {shape} {materials}"


def test_an_encoder_is_timed_where_the_materials_have_one(tmp_path: Path) -> None:
    (tmp_path / "carried/encoder").mkdir(parents=True)
    _, told, asked = check(tmp_path, "echo", str(tmp_path), str(tmp_path / "carried"))
    assert "encoder: status 0 after" in told
    (bench,) = [line for line in asked if "encoder-rivals" in line]
    encoder = tmp_path / "carried/encoder"
    assert f"--source {encoder}/source --bundle {encoder}/bundle" in bench
    assert f"--texts {encoder}/texts.txt" in bench
    (rival,) = [line for line in asked if "sentence-transformers" in line]
    installed = tmp_path / "out/installed.txt"
    assert f"--find-links {tmp_path} -c {installed} sentence-transformers" in rival
    assert asked.index(rival) > next(n for n, line in enumerate(asked) if "-m pytest" in line)


def test_the_materials_of_an_encoder_are_its_folder_texts_and_a_bundle(tmp_path: Path) -> None:
    checkout, given = tmp_path / "checkout", tmp_path / "given"
    for folder in (checkout / "bench", checkout / "docs", checkout / ".venv/bin", given):
        folder.mkdir(parents=True)
    for file in ("bench/gpu_check.sh", "docs/hand-read.tsv", "docs/phrases.tsv"):
        copy2(ROOT / file, checkout / file)
    python = checkout / ".venv/bin/python"
    python.write_text(PYTHON.format(noted=tmp_path / "noted", torch="echo"))
    python.chmod(0o755)
    (given / "config.json").touch()
    for _ in range(2):  # what an earlier call left is made anew
        command = ["bash", "bench/gpu_check.sh", "--prepare", str(tmp_path / "made"), str(given)]
        subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    made = tmp_path / "made/encoder"
    assert [file.name for file in (made / "source").iterdir()] == ["config.json"]
    texts = (made / "texts.txt").read_text(encoding="utf-8").splitlines()
    assert len(texts) > 256
    assert all(text and "\t" not in text for text in texts)
    asked = (tmp_path / "noted").read_text().splitlines()[-1]
    assert asked == f"-m export import {given} {made}/bundle --target cuda --precision fp16"


@pytest.mark.parametrize("encoder", ["nowhere/model", "empty", "made/encoder/source"])
def test_a_wrong_folder_of_an_encoder_is_said_before_anything_is_made(
    encoder: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    kept = tmp_path / "made/encoder/source/config.json"
    kept.parent.mkdir(parents=True)
    kept.touch()
    command = ["bash", "bench/gpu_check.sh", "--prepare", str(tmp_path / "made")]
    done = subprocess.run(
        [*command, str(tmp_path / encoder)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("ENCODER must ")
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["encoder"]
    assert kept.exists()


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


def test_what_the_machine_has_besides_is_not_in_the_way(tmp_path: Path) -> None:
    _, _, asked = check(tmp_path, "echo")
    first = (tmp_path / "noted.libraries").read_text().strip().split(":")[0]
    assert first == "/of/torch/nvidia/cu13/lib"
    tests, memory = [line for line in asked if "-m pytest" in line]
    for asks in (tests, memory):
        assert "-W default" in asks
        assert "tests/integration/gpu/test_gpu.py" in asks
    assert "-n 6" in tests
    assert "-n" not in memory.split()
    foreign = tmp_path / "foreign/tests/__init__.py"
    foreign.parent.mkdir(parents=True)
    foreign.touch()
    done = subprocess.run(
        [sys.executable, "-c", "import tests; print(*tests.__path__)"],
        cwd=ROOT,
        env={"PYTHONPATH": f"{tmp_path / SITE}:{foreign.parents[1]}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(ROOT / "tests")


def test_packages_of_a_virtual_environments_python_are_seen(tmp_path: Path) -> None:
    """Only the lines that make the environment are run: one of a python3 of another one."""
    script = (ROOT / "bench/gpu_check.sh").read_text()
    makes = script[script.index("python=$out") : script.index("from=(")]
    given = tmp_path / "given"
    venv.create(given, symlinks=True)
    subprocess.run(
        ["bash", "-c", makes.replace("-m venv", "-m venv --without-pip")],
        env={"PATH": f"{given / 'bin'}:/usr/bin:/bin", "out": str(tmp_path)},
        check=True,
    )
    (beside,) = given.glob("lib/python3*/site-packages")
    (beside / "only_there.py").touch()
    (beside / "further.pth").write_text(f"{tmp_path}\n")
    program = f"import only_there, sys; assert {str(tmp_path)!r} in sys.path"
    subprocess.run([tmp_path / "venv/bin/python", "-c", program], check=True)


def test_without_time_nothing_is_begun(tmp_path: Path) -> None:
    status, told, asked = check(tmp_path, "echo", seconds=0)
    assert status == told.count("no time left") == 8
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
