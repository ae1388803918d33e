"""The wheel, installed outside the repository: the command, the interface in Python, the server."""

from __future__ import annotations

import csv
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from serving.runtime import kernels
from tests.system.server import ROOT, environment, free_port, started
from tests.toy.recipe import write_toy_recipe

pytestmark = pytest.mark.slow

MODELS = ROOT / "models"
SOURCES = ("macaron", "serving", "training", "export", "bench")
LINES = "Guten Morgen!\n\nKannst du mir bitte helfen?\n"


class Installed:
    """An environment with the wheel in it, and a folder to work in."""

    def __init__(self, folder: Path) -> None:
        """Build the wheel of a copy of the sources and install it, without a network.

        What the package depends on is the tests' own: a path file leads to it.
        """
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        self.packages = Path(
            sysconfig.get_path("purelib", vars={"base": str(folder / "environment")})
        )
        self.python = folder / "environment" / "bin" / "python"
        sources = folder / "sources"
        ignore = shutil.ignore_patterns("__pycache__", "built")
        for name in SOURCES:
            shutil.copytree(ROOT / name, sources / name, ignore=ignore)
        for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, sources)
        self._pip("wheel", "--no-build-isolation", "--wheel-dir", str(folder), str(sources))
        (self.wheel,) = folder.glob("*.whl")
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(folder / "environment")], check=True
        )
        self._pip("--python", str(self.python), "install", f"{self.wheel}[serve]")
        (self.packages / "tests.pth").write_text(sysconfig.get_path("purelib"))

    def _pip(self, *words: str) -> None:
        place = words.index("wheel" if "wheel" in words else "install") + 1
        offline = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check"]
        subprocess.run(
            [sys.executable, "-m", "pip", *words[:place], *offline, *words[place:]],
            cwd=self.work,
            check=True,
        )

    def environment(self) -> dict[str, str]:
        """Without a way back to the repository."""
        own = environment(Path("bundles"), self.work)
        own.pop("PYTHONPATH", None)
        return own

    def run(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """A command of the environment, in the folder to work in."""
        return subprocess.run(
            [str(self.python.parent / words[0]), *words[1:]],
            cwd=self.work,
            env=self.environment(),
            input=text,
            capture_output=True,
            text=True,
            timeout=300,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"))


def test_one_package_and_one_command_are_installed(installed: Installed) -> None:
    found = {path.name for path in installed.packages.iterdir() if path.suffix != ".pth"}
    assert found == {"macaron", f"{installed.wheel.name.rpartition('-py3')[0]}.dist-info"}
    for name in ("serving", "training", "export", "bench", "serving.translator"):
        done = installed.run("python", "-c", f"import {name}")
        assert done.returncode == 1
        top = name.partition(".")[0]
        assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: No module named '{top}'"


def test_the_command_translates_and_generates_as_the_checkout_does(installed: Installed) -> None:
    for words, text in (
        (["translate", str(MODELS / "macaron-de-en")], LINES),
        (["generate", str(MODELS / "lm-cascade"), "--seed", "7"], "The film was\n"),
    ):
        wanted = subprocess.run(
            [sys.executable, "-m", "serving", *words],
            cwd=ROOT,
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        done = installed.run("macaron", *words, text=text)
        assert done.returncode == 0, done.stderr
        assert done.stdout == wanted.stdout
        assert done.stdout.strip()


def test_the_interface_in_python_is_macarons(installed: Installed) -> None:
    code = (
        "from macaron import Generator, Translator\n"
        f"print(Translator({str(MODELS / 'macaron-de-en')!r}).translate('Guten Morgen!')[0].text)\n"
        "print(Translator.__module__, Generator.__module__)"
    )
    done = installed.run("python", "-c", code)
    assert done.returncode == 0, done.stderr
    text, modules = done.stdout.splitlines()
    assert text == "Good morning!"
    assert all(name.startswith("macaron.serving.") for name in modules.split())


def test_type_checkers_see_what_is_wrong_with_a_call(installed: Installed) -> None:
    program = installed.work / "typed.py"
    program.write_text(
        "from macaron import Client\n"
        "from macaron.serving import Translator\n"
        "good: str = Client('http://127.0.0.1:3000').translate('Hallo', target='en').text\n"
        "Client(port=3000)\n"
        "Translator('models').translate(3)\n"
    )
    words = [sys.executable, "-m", "mypy", "--python-executable", installed.python, "typed.py"]
    done = subprocess.run(words, cwd=installed.work, capture_output=True, text=True, timeout=300)
    found = [line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line]
    assert found == ["4", "5"], done.stdout


def test_the_server_serves_with_decoding_processes_and_its_page(installed: Installed) -> None:
    bundles = installed.work / "bundles"
    shutil.copytree(MODELS / "macaron-de-en", bundles / "macaron-de-en")
    port = free_port()
    words = [str(installed.python.parent / "macaron"), "serve", "--port", str(port)]
    log = installed.work / "log.txt"
    with started(words, port, installed.work, installed.environment(), log) as server:
        assert server.ask("Guten Morgen!").json()["translatedText"] == "Good morning!"
        assert b"<!doctype html>" in server.send(b"GET / HTTP/1.0\r\n\r\n")
        server.process.terminate()
        assert server.process.wait(60) == 0
    assert "macaron.serving.server.http.access_log" in log.read_text()


def test_the_command_trains(installed: Installed) -> None:
    recipe = write_toy_recipe(installed.work)
    words = [recipe.name, "loop.max_steps=1", "--run", "run", "--threads", "1"]
    done = installed.run("macaron", "train", *words)
    assert done.returncode == 0, done.stderr
    assert (installed.work / "run" / "metrics.jsonl").is_file()


@pytest.mark.skipif(
    sys.platform != "linux"
    or platform.machine() != "x86_64"
    or kernels.find_compiler(os.environ) is None,
    reason="kernels are compiled on Linux on x86-64 with a C++ compiler",
)
def test_the_native_kernels_come_with_it(installed: Installed) -> None:
    assert installed.wheel.name.endswith("-py3-none-linux_x86_64.whl")
    code = "from macaron.serving.runtime.kernels import native_library; print(native_library())"
    found = Path(installed.run("python", "-c", code).stdout.strip())
    assert found.parent == installed.packages / "macaron/serving/native/built"
    done = installed.run("macaron", "doctor", str(MODELS / "macaron-de-en"))
    assert done.returncode == 0, done.stdout
    assert "native, came with the package" in done.stdout


def test_nothing_is_written_into_the_installed_package(installed: Installed) -> None:
    # Last: the tests above have used all of it.
    (record,) = installed.packages.glob("*.dist-info/RECORD")
    with record.open(newline="") as rows:
        listed = {row[0] for row in csv.reader(rows)}
    found = {
        os.path.relpath(path, installed.packages)
        for path in (installed.packages / "macaron").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert found <= listed
    assert {
        "macaron/export/passes/cuda_operators.json",
        "macaron/serving/native/operators.cpp",
        "macaron/serving/web/index.html",
        "macaron/training/recipes/lm-cascade.yaml",
    } <= found
