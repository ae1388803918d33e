"""The error message of a training command."""

from __future__ import annotations

import pytest

from training.__main__ import main


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must fail; returns the last line of stderr, which gives the reason."""
    capsys.readouterr()
    assert main(list(arguments)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    error = captured.err.splitlines()[-1]
    assert error.startswith("error: ")
    return error
