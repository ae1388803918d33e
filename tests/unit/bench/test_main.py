"""A verb that is interrupted ends what it has started."""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Callable

import pytest

from bench.__main__ import main
from bench.commands import VERBS


def ctrl_c() -> None:
    """What Python makes of SIGINT, which a process in the background may ignore."""
    raise KeyboardInterrupt


def sigterm() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)


def ignore(*_: object) -> None:
    """Do nothing about a signal."""


@pytest.mark.parametrize("interrupt", [ctrl_c, sigterm])
def test_an_interrupted_verb_cleans_up(
    interrupt: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended = []

    def verb(_: argparse.Namespace) -> int:
        try:
            interrupt()
            return 0
        finally:
            ended.append(True)

    monkeypatch.setitem(VERBS, "tables", verb)
    # A signal that the verb does not handle must not end pytest.
    usual = signal.signal(signal.SIGTERM, ignore)
    try:
        assert main(["tables", "page.md"]) == 130
        assert signal.getsignal(signal.SIGTERM) == ignore
    finally:
        signal.signal(signal.SIGTERM, usual)
    assert ended == [True]
    assert capsys.readouterr().err == "interrupted\n"
