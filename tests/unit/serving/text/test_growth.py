"""Texts that are twice as long take about twice the work, whatever repeats in them.

Work is counted in lines of Python that run, which no other process changes. What a search for a
pattern does is no line, so texts that could keep one busy are timed too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

import pytest

from serving.text.document import Document, Format
from tests.unit.serving.text.fakes import same, translated

TIMES = 4
PARTS: list[tuple[Format, str, str]] = [
    ("html", "{a}<b>hier</b>{b} ", ""),
    ("html", "<b>hier</b> {b} ", ""),
    ("html", "#<b>Wort</b> ", ""),
    ("html", "<b>{n}</b> <i>x</i>", ""),
    ("html", "[b]<i>x</i> ", "[/b]"),
    ("html", "{n, plural, other {<b>x</b>}}", ""),
    ("xml", "<![CDATA[ ]]>", ""),
    ("xml", "<![CDATA[a]]>", ""),
    ("xml", "<b><![CDATA[ ]]></b> ", ""),
    ("markdown", "[ab] ", ""),
    ("markdown", "$$\n", ""),
    ("markdown", "\\begin{a}\nx\n", ""),
    ("markdown", "!!! a\n    b\n", ""),
    ("text", "{ $a -> [x] y ", ""),
    ("text", "{{#if a}}x{{else}}", ""),
    ("text", "\\emph{a ", ""),
    ("text", "(1)[a];", ""),
    ("text", "\\'a ", ""),
    ("text", "12 345 € um 10:30 ", ""),
    ("markdown", "[ab][cd] ", ""),
    ("markdown", "{a}**hier**{b} ", ""),
    ("text", "[b]\u2068x\u2069[/b] ", ""),
    ("text", "{a}hier ", "hier{b} "),
]
TIMED: list[tuple[Format, str, int]] = [
    *(("text", part, 8000) for part in (" ", "\u00a0", "- ", "( ", "+ ", "/ ")),
    *(("html", part, 8000) for part in ("\n", "<", "&")),
    *(("markdown", part, 500) for part in ("![", "[[")),
]
"""Texts with a length at which reading them takes some milliseconds."""


def lines_run(source: str, format: Format) -> int:
    """How many lines of Python run as a text is read."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        del frame
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        Document(source, format)
    finally:
        sys.settrace(before)
    return count


def repeated(part: str, closing: str, times: int, format: Format) -> str:
    source = part * times + closing * times
    return f"<r>{source}</r>" if format == "xml" else source


@pytest.mark.parametrize(("format", "part", "closing"), PARTS)
def test_work_grows_with_the_length_of_a_text(format: Format, part: str, closing: str) -> None:
    lines_run(repeated(part, closing, 2, format), format)  # what is made once
    short, long = (lines_run(repeated(part, closing, n, format), format) for n in (75, 75 * TIMES))
    assert long < 1.25 * TIMES * short


def least_s(sources: Sequence[str], format: Format) -> list[float]:
    """Seconds of the processor that reading each text takes, without what another process adds: the
    least of twelve turns, as a busy moment may outlast one."""
    taken: list[list[float]] = [[] for _ in sources]
    for _ in range(12):
        for times, source in zip(taken, sources, strict=True):
            begin = time.thread_time()
            Document(source, format)
            times.append(time.thread_time() - begin)
    return [min(times) for times in taken]


@pytest.mark.parametrize(("format", "part", "length"), TIMED)
def test_time_grows_with_the_length_of_a_text(format: Format, part: str, length: int) -> None:
    texts = [part * (n // len(part)) for n in (length, 2 * length)]
    Document(texts[0], format)  # what is made once
    short, long = least_s(texts, format)
    assert long < 3 * short


def test_brackets_are_looked_through_once() -> None:
    plain, referring = (lines_run("[" * 2000 + f"ab]{end}", "markdown") for end in ("(c)", "[cd]"))
    assert referring < 1.5 * plain


@pytest.mark.parametrize("format", ["text", "html", "markdown", "xml"])
@pytest.mark.parametrize(
    ("opening", "closing"),
    [("[b]x ", "[/b]"), ("{a}hier ", "hier{b} "), ("%1$shier ", "hier%2$s "), ("[b]", "x[/b] ")],
)
def test_pairs_may_be_within_each_other_without_end(
    opening: str, closing: str, format: Format
) -> None:
    source = opening * 1500 + closing * 1500
    assert translated(source, same, format) == source
