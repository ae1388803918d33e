"""Processes that a bench starts: JSON on stdin states the task, and stdout gives the result."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def start_child(
    module: str,
    asked: dict[str, Any],
    pass_fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start `python -m module`, by default in this process's environment; the caller reads its
    stdout."""
    child = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=pass_fds,
        env=env,
    )
    assert child.stdin is not None
    with child.stdin as stdin:
        stdin.write(json.dumps(asked))
    child.stdin = None  # `communicate` would flush it
    return child
