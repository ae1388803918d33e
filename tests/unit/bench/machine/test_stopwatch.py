"""What is measured of a whole process."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.machine.memory import peak_rss
from bench.machine.stopwatch import time_process

_COPY = """
import sys, time
held = bytearray(b"x" * 40_000_000)
time.sleep(0.2)
sys.stdout.write(sys.stdin.read().upper())
"""


def test_time_and_memory_are_those_of_the_process_alone(tmp_path: Path) -> None:
    source, output = tmp_path / "source", tmp_path / "output"
    source.write_text("one\ntwo\n")
    output.write_text("of an earlier run, and longer")
    before = time.monotonic()
    usage = time_process("copy", [sys.executable, "-c", _COPY], source, output)
    assert output.read_text() == "ONE\nTWO\n"
    assert 0.2 < usage.seconds < time.monotonic() - before
    assert before < usage.started
    assert 0 < usage.cpu_seconds < usage.seconds  # asleep it uses no processor
    held = bytearray(b"x" * 200_000_000)  # which must not be counted
    usage = time_process("copy", [sys.executable, "-c", _COPY], source, output)
    assert 40_000_000 < usage.peak_rss < len(held) < peak_rss()


def test_a_failure_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "source").touch()
    code = "import sys; print('first', file=sys.stderr); sys.exit('the reason')"
    command = [sys.executable, "-c", code]
    with pytest.raises(BenchError, match=r"^the process of a peer ended with status 1: the reason"):
        time_process("a peer", command, tmp_path / "source", tmp_path / "output")
