"""Processes that begin and end together."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from training.errors import ConfigError
from training.loop import launch

WAITS = "import time; time.sleep(100)"
FAILS = "import sys; sys.exit(3)"
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def start(*codes: str) -> list[subprocess.Popen[bytes]]:
    return [subprocess.Popen([sys.executable, "-c", code]) for code in codes]


def test_all_end_well() -> None:
    assert launch.accompany(start("", "")) == 0


@pytest.mark.parametrize(("code", "told"), [(FAILS, []), (KILLED, ["rank 1 was ended by SIGKILL"])])
def test_where_one_fails_the_others_are_ended_after_a_grace(
    code: str, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    children = start(WAITS, code)
    begun = time.monotonic()
    with caplog.at_level(logging.ERROR):
        assert launch.accompany(children, grace=0.3) == 1
    assert time.monotonic() - begun < 60
    assert children[0].returncode != 0
    assert caplog.messages == told


def test_within_the_grace_the_others_may_end_by_themselves() -> None:
    children = start("import time; time.sleep(1)", FAILS)
    assert launch.accompany(children) == 1
    assert children[0].returncode == 0


def test_where_this_process_is_asked_to_end_the_others_are_and_may_save(tmp_path: Path) -> None:
    saves = """
import pathlib, signal, sys, time
def save(number, frame):
    time.sleep(0.5)
    sys.exit(5)
signal.signal(signal.SIGTERM, save)
pathlib.Path(sys.argv[1]).touch()
time.sleep(100)
"""
    ready = [tmp_path / "0", tmp_path / "1"]
    children = [subprocess.Popen([sys.executable, "-c", saves, str(path)]) for path in ready]

    def ask() -> None:
        while not all(path.exists() for path in ready):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Timer(0.5, ask)
    asking.start()
    with pytest.raises(SystemExit, match=str(128 + signal.SIGTERM)):
        launch.accompany(children)
    asking.join()
    assert [child.returncode for child in children] == [5, 5]


def test_one_that_heeds_no_sigterm_is_killed_after_the_grace() -> None:
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"
    children = start(deaf, FAILS)
    assert launch.accompany(children, grace=2.0) == 1
    assert children[0].returncode == -signal.SIGKILL


@pytest.mark.parametrize(("found", "wanted", "told"), [(0, 2, True), (2, 3, True), (2, 2, False)])
def test_each_process_needs_a_gpu_of_its_own(
    found: int, wanted: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found)
    told_so = pytest.raises(ConfigError, match=f"--processes = {wanted} .* machine has {found} ")
    with told_so if told else nullcontext():
        launch.check_devices("cuda", wanted)


def test_a_device_that_is_none_is_reported_before_the_processes_start() -> None:
    launch.check_devices("cpu", 2)
    with pytest.raises(ConfigError, match="device 'abacus' cannot be used"):
        launch.check_devices("abacus", 2)
