"""What a process wrote, as a terminal shows it."""

from __future__ import annotations

import pytest

from serving.progress import Transcript


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("one\ntwo", ["one", "two"]),
        ("\r1 %\r2 %\rall\nthen", ["all", "then"]),
        ("first: 0\n\rsecond: 0\x1b[A\rfirst: 1\n\rsecond: 1\n", ["first: 1", "second: 1"]),
        ("\x1b[31mred\x1b[0m\n\n", ["red"]),
        ("bar\r\x1b[K\r", []),
        ("bar\r\x1b[K\rmessage\n\x1b[Kbar\r", ["message", "bar"]),
        ("1\n2\n3\n4\n5", ["3", "4", "5"]),
    ],
)
def test_bars_are_written_over_and_lines_stay(written: str, shown: list[str]) -> None:
    whole, bytewise = Transcript(3), Transcript(3)
    whole.feed(written.encode())
    for byte in written.encode():
        bytewise.feed(bytes([byte]))
    assert whole.lines == bytewise.lines == shown
