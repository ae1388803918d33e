"""LibreTranslate is looked for without being imported, and served without a download."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ctranslate2
import pytest

from bench.errors import BenchError
from bench.systems.processes.rivals import Rival, started
from bench.systems.rivals import servers
from tests.unit.bench.stand_ins import install, libretranslate_packages

LIBRE = Rival("LibreTranslate", "libretranslate", "servers", "LibreTranslate")


def test_the_version_is_known_without_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = libretranslate_packages()
    for module in ("libretranslate", "argostranslate"):
        files[f"{module}/__init__.py"] = "raise SystemExit('it was imported')\n"
    install(tmp_path, files, monkeypatch)
    with started(LIBRE, None, 1) as process:
        beside = f"argos-translate-lt 9.4, ctranslate2 {ctranslate2.__version__}"
        assert process.version == f"libretranslate 9.3 ({beside})"


@pytest.mark.parametrize("missing", ["libretranslate", "argostranslate"])
def test_a_module_that_is_missing_is_the_reason(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = libretranslate_packages()
    kept = {name: text for name, text in files.items() if not name.startswith(f"{missing}/")}
    install(tmp_path, kept, monkeypatch)
    message = f"^LibreTranslate: ModuleNotFoundError: No module named '{missing}'$"
    with pytest.raises(BenchError, match=message), started(LIBRE, None, 1):
        raise AssertionError("nothing was loaded")


def test_its_command_runs_without_what_would_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = libretranslate_packages()
    files["libretranslate/main.py"] = """\
import sys
import argostranslate.translate
from libretranslate.init import boot


def main():
    boot("de", False, False)
    splitter = argostranslate.translate.MiniSBDSentencizer("a package")
    print(splitter.split_sentences("One. Two."), sys.argv[1:])
    assert not any(path.endswith("systems/rivals") for path in sys.path), sys.path
"""
    install(tmp_path, files, monkeypatch)
    done = subprocess.run(
        [sys.executable, str(servers.__file__), "--port", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.returncode) == ("['One. Two.'] ['--port', '1']\n", 0), done.stderr
