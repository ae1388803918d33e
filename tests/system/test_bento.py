"""`bentoml build`: what a Bento holds, and that it serves from its own folder."""

from __future__ import annotations

import os
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
def bento(scratch: Path) -> Path:
    """The folder of a Bento, built from the working tree."""
    done = subprocess.run(
        [BENTOML, "build", "--output", "tag"],
        cwd=ROOT,
        env=environment(ROOT / "models", scratch) | path_of_tools(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    tag = done.stdout.strip().removeprefix("__tag__:")
    return scratch / "bentoml/bentos" / tag.replace(":", "/")


def bundles() -> list[Path]:
    return sorted(path for path in (ROOT / "models").iterdir() if path.is_dir())


def path_of_tools() -> dict[str, str]:
    """BentoML looks for uv on the PATH, and would install it where it is not there."""
    return {"PATH": f"{BENTOML.parent}{os.pathsep}{os.environ['PATH']}"}


def test_holds_what_is_served_and_nothing_else(bento: Path) -> None:
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
            path.relative_to(ROOT)
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
    assert [path.name for path in (source / "requirements").iterdir()] == ["serve.txt"]


def test_asks_for_the_versions_of_serve_txt(bento: Path) -> None:
    def pins(path: Path) -> set[str]:
        lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
        return {line for line in lines if line}

    assert pins(bento / "env/python/requirements.txt") == pins(ROOT / "requirements/serve.txt")


def test_its_image_has_a_compiler_and_sends_no_reports(bento: Path) -> None:
    dockerfile = (bento / "env/docker/Dockerfile").read_text()
    python = yaml.safe_load((ROOT / "bentofile.yaml").read_text())["docker"]["python_version"]
    assert f"FROM python:{python}-slim " in dockerfile
    assert "build-essential" in dockerfile  # for the native kernels
    assert "ARG BENTOML_DO_NOT_TRACK=True" in dockerfile


def test_serves(bento: Path, scratch: Path) -> None:
    tag = f"{bento.parent.name}:{bento.name}"
    # An empty setting counts as not set: the bundles are those in the Bento.
    with running(scratch, scratch, bento=tag, MACARON_BUNDLES="") as server:
        answer = server.ask("Kannst du mir bitte helfen?").json()
        assert answer["translatedText"] == "Can you help me, please?"
        served = httpx.get(f"{server.url}/models").json()["models"]
    assert {model["name"] for model in served} == {path.name for path in bundles()}
