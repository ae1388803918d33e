"""Memory of a process with its descendants."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.machine.memory import pss_of_tree

pytestmark = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc")
HOLDING = "held = bytearray(b'x') * {size}; print(len(held), flush=True); input()"
PARENT = """\
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
child.stdout.readline()
print("ready", flush=True)
input()
"""


def test_what_a_child_holds_counts_and_what_has_ended_does_not() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, HOLDING.format(size=64 * 2**20)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    assert 64 * 2**20 < pss_of_tree(process.pid) < 192 * 2**20
    process.communicate(b"\n")
    assert pss_of_tree(process.pid) == 0
