"""The wheel, installed outside the repository: the command, the interface in Python, the server."""

from __future__ import annotations

import csv
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from bench.systems.processes.http_server import free_port
from serving.runtime import kernels
from tests.system.server import ROOT, environment, started
from tests.toy.recipe import write_toy_recipe

pytestmark = pytest.mark.slow

MODELS = ROOT / "models"
SOURCES = ("macaron", "serving", "training", "export", "bench")
LINES = "Guten Morgen!\n\nKannst du mir bitte helfen?\n"


class Installed:
    """An environment with the wheel in it, and a folder to work in."""

    def __init__(self, folder: Path, kernels_switch: str = "on") -> None:
        """Build the wheel of a copy of the sources and install it, without a network.

        What the package depends on is the tests' own: a path file leads to it. With
        `kernels_switch` off the wheel is the pure one, for any machine.
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
        words = ("--no-build-isolation", "--wheel-dir", str(folder), str(sources))
        self.pip("wheel", *words, environment={kernels.SWITCH: kernels_switch})
        (self.wheel,) = folder.glob("*.whl")
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(folder / "environment")], check=True
        )
        self.pip("--python", str(self.python), "install", f"{self.wheel}[serve]")
        (self.packages / "tests.pth").write_text(sysconfig.get_path("purelib"))

    def pip(self, *words: str, environment: dict[str, str] | None = None) -> None:
        """A command of pip, which must not fail."""
        place = words.index("wheel" if "wheel" in words else "install") + 1
        offline = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check"]
        subprocess.run(
            [sys.executable, "-m", "pip", *words[:place], *offline, *words[place:]],
            cwd=self.work,
            env={**os.environ, **(environment or {})},
            check=True,
        )

    def environment(self) -> dict[str, str]:
        """Without a way back to the repository."""
        own = environment(Path("bundles"), self.work)
        own.pop("PYTHONPATH", None)
        return own

    def run(self, *words: str, text: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        """A command of the environment, in the folder to work in."""
        return subprocess.run(
            [str(self.python.parent / words[0]), *words[1:]],
            cwd=self.work,
            env=self.environment() | more,
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


@pytest.mark.parametrize("program", ["macaron", "bentoml"])
def test_the_server_serves_with_decoding_processes_and_its_page(
    installed: Installed, program: str
) -> None:
    """What it keeps lies where it was started."""
    bundles, here = installed.work / "bundles", installed.work / program
    shutil.copytree(MODELS / "macaron-de-en", bundles / "macaron-de-en", dirs_exist_ok=True)
    here.mkdir()
    port, scripts = free_port(), installed.python.parent
    words = [str(scripts / "macaron"), "serve", "--port", str(port)]
    if program == "bentoml":
        words = [str(installed.python), "-m", "bentoml", "serve", "--port", str(port)]
        words += ["--host", "127.0.0.1", "macaron.serving.service:MacaronService"]
    kept = {"MACARON_STORE": "sqlite:///kept.db", "MACARON_DOCUMENTS": "papers"}
    settings = installed.environment() | kept | {"MACARON_BUNDLES": "../bundles"}
    log = installed.work / f"{program}.txt"
    with started(words, port, here, settings, log) as server:
        assert server.ask("Guten Morgen!").json()["translatedText"] == "Good morning!"
        assert b"<!doctype html>" in server.send(b"GET / HTTP/1.0\r\n\r\n")
        server.process.terminate()
        assert server.process.wait(60) == 0
    assert "macaron.serving.server.http.access_log" in log.read_text()
    assert {"kept.db", "papers"} <= {path.name for path in here.iterdir()}


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


@pytest.mark.skipif(
    sys.platform != "linux" or kernels.find_compiler(os.environ) is None,
    reason="kernels are compiled on Linux with a C++ compiler",
)
def test_its_tag_can_become_one_of_manylinux(installed: Installed, tmp_path: Path) -> None:
    binaries = Path(sys.executable).parent
    subprocess.run(
        [binaries / "auditwheel", "repair", "--wheel-dir", tmp_path, installed.wheel],
        env={**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"},
        check=True,
        capture_output=True,
    )
    (repaired,) = tmp_path.glob("*.whl")
    tag = rf"-py3-none-manylinux_2_\d+_{platform.machine()}\.whl"
    assert re.search(tag, repaired.name), repaired.name
    installed.pip("install", "--dry-run", str(repaired))  # refuses a tag that is not for here
    before, after = (contents(wheel) for wheel in (installed.wheel, repaired))
    assert {name for name in before if before[name] != after.get(name)} <= {"RECORD", "WHEEL"}


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel; those about the package without their folder."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name.rpartition(".dist-info/")[2]: archive.read(name) for name in archive.namelist()
        }


def test_a_pure_wheel_translates_on_standard_operators(tmp_path: Path) -> None:
    pure = Installed(tmp_path, "off")
    assert pure.wheel.name.endswith("-py3-none-any.whl")
    code = (
        "from macaron import Translator\n"
        "from macaron.serving.runtime.kernels import native_library\n"
        f"found = Translator({str(MODELS / 'macaron-de-en')!r}).translate('Guten Morgen!')\n"
        "print(found[0].text, native_library())"
    )
    done = pure.run("python", "-c", code, CXX="none")  # a system without a compiler
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Good morning! None\n"


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
