"""Processes that a bench starts: JSON on stdin says what to do, stdout what came of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from bench.processor import child_environment


def start_child(
    module: str, asked: dict[str, Any], pass_fds: Sequence[int] = ()
) -> subprocess.Popen[str]:
    """Start `python -m module`; its stdout is to be read."""
    child = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=pass_fds,
        env=child_environment(),
    )
    assert child.stdin is not None
    with child.stdin as stdin:
        stdin.write(json.dumps(asked))
    child.stdin = None  # `communicate` would flush it
    return child
