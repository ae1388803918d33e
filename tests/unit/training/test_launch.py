"""Processes that begin and end together."""

from __future__ import annotations

import logging
import subprocess
import sys
import time

import pytest

from training import launch

WAITS = "import time; time.sleep(100)"
FAILS = "import sys; sys.exit(3)"
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def start(*codes: str) -> list[subprocess.Popen[bytes]]:
    return [subprocess.Popen([sys.executable, "-c", code]) for code in codes]


def test_all_end_well() -> None:
    assert launch._wait(start("", "")) == 0


@pytest.mark.parametrize(("code", "told"), [(FAILS, []), (KILLED, ["rank 1 was ended by SIGKILL"])])
def test_where_one_fails_the_others_are_ended_after_a_grace(
    code: str, told: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(launch, "_GRACE_SECONDS", 0.3)
    children = start(WAITS, code)
    begun = time.monotonic()
    with caplog.at_level(logging.ERROR):
        assert launch._wait(children) == 1
    assert time.monotonic() - begun < 60
    assert children[0].returncode != 0
    assert caplog.messages == told


def test_within_the_grace_the_others_may_end_by_themselves() -> None:
    children = start("import time; time.sleep(1)", FAILS)
    assert launch._wait(children) == 1
    assert children[0].returncode == 0
