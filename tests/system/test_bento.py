"""`make bento`: what a Bento holds, and that it serves from its own folder, without a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml

from tests.system.server import ROOT, environment, running

BENTOML = Path(sys.executable).with_name("bentoml")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of BENTOML_HOME and of the server's log."""
    return tmp_path_factory.mktemp("bento")


@pytest.fixture(scope="module")
def sources(scratch: Path, shipped_kernels: Path) -> Path:
    """A copy of what a Bento is made of, with the kernels that `make bento` compiles into it."""
    copy = scratch / "sources"
    for folder in ("models", "serving"):
        ignored = shutil.ignore_patterns("__pycache__", "built")
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
    for file in ("bentofile.yaml", "LICENSE", "Makefile", "requirements/serve.txt"):
        (copy / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, copy / file)
    kernels = copy / "serving/native/built"
    kernels.mkdir()
    shutil.copy(shipped_kernels, kernels)
    return copy


@pytest.fixture(scope="module")
def bento(scratch: Path, sources: Path) -> Path:
    """The folder of a Bento."""
    done = subprocess.run(
        [BENTOML, "build", "--output", "tag"],
        cwd=sources,
        env=environment(ROOT / "models", scratch) | path_of_tools(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    tag = done.stdout.strip().removeprefix("__tag__:")
    return scratch / "bentoml/bentos" / tag.replace(":", "/")


def test_the_command_compiles_the_kernels_before_it_builds(sources: Path) -> None:
    done = subprocess.run(
        ["make", "--dry-run", "bento"], cwd=sources, capture_output=True, text=True, check=True
    )
    *_, cleared, compiled, built, cleared_again = done.stdout.splitlines()
    assert cleared == cleared_again == "rm -rf serving/native/built"
    assert compiled == ".venv/bin/python -m serving.runtime.kernels"
    assert built.endswith(" .venv/bin/bentoml build")


def bundles() -> list[Path]:
    return sorted(path for path in (ROOT / "models").iterdir() if path.is_dir())


def path_of_tools() -> dict[str, str]:
    """BentoML looks for uv on the PATH, and would install it where it is not there."""
    return {"PATH": f"{BENTOML.parent}{os.pathsep}{os.environ['PATH']}"}


def test_holds_what_is_served_and_nothing_else(bento: Path, sources: Path) -> None:
    source = bento / "src"
    assert {path.name for path in source.iterdir()} == {
        "bentofile.yaml",
        "LICENSE",
        "models",
        "requirements",
        "serving",
    }
    for folder in ("models", "serving"):
        held = {path.relative_to(source) for path in (source / folder).rglob("*") if path.is_file()}
        assert held == {
            path.relative_to(sources)
            for path in (sources / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
    assert [path.name for path in (source / "requirements").iterdir()] == ["serve.txt"]


def test_asks_for_the_versions_of_serve_txt(bento: Path) -> None:
    def pins(path: Path) -> set[str]:
        lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
        return {line for line in lines if line}

    assert pins(bento / "env/python/requirements.txt") == pins(ROOT / "requirements/serve.txt")


def test_its_image_has_the_python_of_the_requirements_and_sends_no_reports(bento: Path) -> None:
    dockerfile = (bento / "env/docker/Dockerfile").read_text()
    python = yaml.safe_load((ROOT / "bentofile.yaml").read_text())["docker"]["python_version"]
    assert f"FROM python:{python}-slim " in dockerfile
    assert "ARG BENTOML_DO_NOT_TRACK=True" in dockerfile


def test_serves_on_the_kernels_that_it_holds(
    bento: Path, scratch: Path, shipped_kernels: Path
) -> None:
    assert (bento / "src/serving/native/built" / shipped_kernels.name).is_file()
    tag = f"{bento.parent.name}:{bento.name}"
    # An empty setting counts as not set: the bundles are those in the Bento. There is no compiler.
    own = {"MACARON_BUNDLES": "", "MACARON_CACHE": str(scratch / "cache"), "CXX": "none"}
    with running(scratch, scratch, bento=tag, **own) as server:
        answer = server.ask("Kannst du mir bitte helfen?").json()
        assert answer["translatedText"] == "Can you help me, please?"
        served = httpx.get(f"{server.url}/models", timeout=60).json()["models"]
    assert "native kernels are not used" not in (scratch / "log.txt").read_text()
    assert {model["name"] for model in served} == {path.name for path in bundles()}
