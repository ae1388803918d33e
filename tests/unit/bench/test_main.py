"""A verb that is interrupted ends what it has started."""

from __future__ import annotations

import argparse
import os
import signal
import time

import pytest

from bench.__main__ import main
from bench.commands import VERBS


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_verb_cleans_up(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = []

    def verb(_: argparse.Namespace) -> int:
        try:
            os.kill(os.getpid(), number)
            time.sleep(20)
            return 0
        finally:
            ended.append(True)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setitem(VERBS, "tables", verb)
    assert main(["tables", "page.md"]) == 130
    assert ended == [True]
    assert capsys.readouterr().err == "interrupted\n"
    assert signal.getsignal(signal.SIGTERM) == before
