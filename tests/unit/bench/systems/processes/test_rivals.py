"""A rival's process: loaded in an environment of its own, or left out with the reason."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.systems import rivals
from bench.systems.processes.rivals import (
    ENGINE,
    Rival,
    RivalProcess,
    all_started,
    started,
)
from tests.unit.bench.stand_ins import fx_package, install, student_folder

FX = Rival("fx", "fxtranslate", "students", "FxTranslate", {"folder": "nowhere"})


def fx(folder: Path) -> Rival:
    return Rival("fx", "fxtranslate", "students", "FxTranslate", {"folder": str(folder)})


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rival:
    """fxtranslate, and a student's folder."""
    install(tmp_path / "site", fx_package(), monkeypatch)
    return fx(student_folder(tmp_path))


def test_a_rival_answers_with_what_it_gives_and_what_that_takes(stand_in: Rival) -> None:
    with started(stand_in, None, 1) as process:
        assert process.version == "fxtranslate 9.9 (stand-in)"
        answer = process.ask("translate", texts=["one", "two"], together=False)
        assert answer.result == ["ONE", "TWO"]
        assert answer.seconds > 0
        assert 0 <= answer.cpu_seconds < 10
        together = process.ask("translate", texts=["one", "two"], together=True)
        assert together.result == ["ONE", "TWO"]
        assert 2**20 < process.peak_memory < 2**30


def test_what_a_library_prints_does_not_disturb_the_answers(stand_in: Rival) -> None:
    with started(stand_in, None, 1) as process:
        assert process.ask("translate", texts=["noise"], together=False).result == ["NOISE"]
        assert process.ask("translate", texts=["a"], together=False).result == ["A"]


def test_an_error_of_a_rival_has_its_name_and_the_next_request_is_answered(
    stand_in: Rival,
) -> None:
    with started(stand_in, None, 1) as process:
        with pytest.raises(BenchError, match=r"^fx: ValueError: no text$"):
            process.ask("translate", texts=[""], together=False)
        assert process.ask("translate", texts=["a"], together=False).result == ["A"]


def test_a_rival_that_dies_is_named(stand_in: Rival) -> None:
    with started(stand_in, None, 1) as process:
        os.kill(process._conversation.pid, signal.SIGKILL)
        with pytest.raises(BenchError, match="the process of fx ended with status -9"):
            process.ask("translate", texts=["a"], together=False)


def test_rivals_that_cannot_be_loaded_are_left_out_with_the_reason(
    stand_in: Rival, tmp_path: Path
) -> None:
    missing = Rival("none", "bergamot", "students", "Bergamot", {"folder": "", "config": ""})
    empty = Rival("empty", "fxtranslate", "students", "FxTranslate", {"folder": str(tmp_path)})
    far = Rival("far", "elsewhere", "students", "FxTranslate")
    left_out: dict[str, str] = {}
    pythons = {"elsewhere": tmp_path / "bin" / "python"}
    with all_started([stand_in, missing, empty, far], pythons, 1, left_out) as processes:
        assert list(processes) == ["fx"]
    assert left_out["none"].startswith("ModuleNotFoundError: No module named 'bergamot'")
    assert left_out["empty"] == f"FileNotFoundError: {tmp_path} has no *.spm"
    assert left_out["far"] == f"there is no program {tmp_path}/bin/python"


def test_an_engine_that_cannot_be_loaded_ends_the_run(tmp_path: Path) -> None:
    ours = Rival(
        ENGINE, ENGINE, "engine", "EngineLanguage", {"bundle": str(tmp_path), "threads": 1}
    )
    with pytest.raises(BenchError, match=f"^{ENGINE}: "), all_started([ours], {}, 1, {}):
        raise AssertionError("nothing was loaded")


def test_a_rival_gets_its_threads_and_nothing_of_this_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        "import os, sys",
        "assert os.environ['OMP_NUM_THREADS'] == '3'",
        "assert os.environ['RAYON_NUM_THREADS'] == '3'",
        "assert os.environ['TOKENIZERS_PARALLELISM'] == 'true'",
        "found = {name for name in ('bench', 'serving', 'numpy') if name in sys.modules}",
        "assert not found, found",
        "assert not any(path.endswith('rivals') for path in sys.path), sys.path",
    ]
    package = {**fx_package(), "fxtranslate/__init__.py": "\n".join(lines) + "\n"}
    package["fxtranslate/__init__.py"] += fx_package()["fxtranslate/__init__.py"]
    install(tmp_path / "site", package, monkeypatch)
    RivalProcess(fx(student_folder(tmp_path)), Path(sys.executable), 3).close()


def test_what_runs_in_an_environment_of_a_rival_imports_nothing_of_this_project() -> None:
    """But `engine`, which runs in this one."""
    folder = Path(str(rivals.__file__)).parent
    modules = sorted(path.stem for path in folder.glob("*.py") if path.stem not in ("engine",))
    assert {"__main__", "embedders", "languages", "students"} <= set(modules)
    code = (
        "import runpy, sys\n"
        f"for name in {[m for m in modules if not m.startswith('__')]}:\n"
        f"    runpy.run_path(f'{folder}/{{name}}.py')\n"
        "own = {name.partition('.')[0] for name in sys.modules}\n"
        "print(*sorted(own & {'bench', 'serving', 'training', 'export', 'numpy'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd="/", capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.split(), done.returncode) == ([], 0), done.stderr
