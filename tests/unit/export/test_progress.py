"""The time left of an import, from the pace so far."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from export import progress
from export.progress import STEPS, ImportProgress
from serving.progress import Transcript

READING, FITTING, GRAPHS, COMPARING = STEPS


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def made(clock: Clock) -> ImportProgress:
    return ImportProgress(io.StringIO(), live=False, now=clock)


def test_the_rest_takes_as_long_as_the_pace_so_far_lets_expect(
    made: ImportProgress, clock: Clock
) -> None:
    made.begin(READING)
    assert made.line() == "step 1 of 4, reading"
    clock.seconds += 100 * STEPS[READING]
    made.begin(FITTING)
    assert made.line() == "step 2 of 4, fitting: 6%, about 1 min 34 s left"
    clock.seconds += 10  # of which nothing was heard
    assert made.line() == "step 2 of 4, fitting: 16%, about 1 min 24 s left"
    made.part(3, 4)  # further than it was expected to be: 30 hundredths in 16 seconds
    assert made.line() == "step 2 of 4, fitting: 30%, about 37 s left"


def test_a_step_that_takes_longer_than_expected_does_not_reach_its_end(
    made: ImportProgress, clock: Clock
) -> None:
    made.begin(READING)
    clock.seconds += 1
    made.begin(FITTING)
    clock.seconds += 10_000
    assert made.line().startswith("step 2 of 4, fitting: 36%")
    made.begin(COMPARING)
    made.part(1, 1)
    assert made.line() == "step 4 of 4, comparing: 100%, about 0 s left"


def test_another_precision_begins_anew(made: ImportProgress, clock: Clock) -> None:
    made.begin(READING)
    clock.seconds += 1000
    made.begin(GRAPHS)
    made.begin(READING)
    clock.seconds += 100 * STEPS[READING]
    made.begin(FITTING)
    assert made.line() == "step 2 of 4, fitting: 6%, about 1 min 34 s left"


def test_without_a_terminal_each_step_is_a_line_of_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TQDM_POSITION", raising=False)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    caplog.set_level(logging.INFO, "export")
    with progress.shown():
        progress.begin(READING)
        progress.part(1, 2)
    progress.begin(FITTING)  # nobody looks any more
    assert caplog.messages == ["step 1 of 4, reading"]
    assert sys.stderr.getvalue() == ""


def test_a_live_line_makes_room_for_messages_and_is_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TQDM_POSITION", "-1")
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    handler = logging.StreamHandler(written)
    logger = logging.getLogger()
    logger.addHandler(handler)
    try:
        with progress.shown():
            progress.begin(READING)
            logger.warning("a message")
        logger.warning("another")
    finally:
        logger.removeHandler(handler)
    assert written.getvalue().startswith("\x1b[Kstep 1 of 4, reading\r")
    transcript = Transcript(10)
    transcript.feed(written.getvalue().encode())
    assert transcript.lines == ["a message", "another"]
    assert handler.filters == []
