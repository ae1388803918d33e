"""What the bench of verification counts."""

from __future__ import annotations

import pytest

from bench.errors import BenchError
from bench.runs.evaluation.verification import (
    VerificationPlan,
    measure_verification,
    verification_markdown,
)
from tests.unit.serving.echo import EchoTranslator

PLAN = VerificationPlan(sample=50, repetitions=2, seed=1, minutes=5)
PAIRS = [(f"Es sind {n} Hunde.", f"There are {n} dogs.") for n in range(40, 100)]
PLAIN = [("Guten Tag.", "Good day."), ("Ja.", "Yes.")]


def test_an_echo_is_right_before_and_after() -> None:
    told: list[str] = []

    found = measure_verification(EchoTranslator(), ("de", "en"), PAIRS + PLAIN, PLAN, told.append)

    assert (found.sentences, found.plain_sentences) == (50, 2)
    assert (found.wrong_before, found.wrong_after, found.references) == (0, 0, 0)
    assert found.changed == found.false_alarms == []
    assert told == ["de-en: 32 sentences", "de-en: 50 sentences", "de-en: 2 sentences"]
    assert "| de-en | 50 | 100.0 % | 100.0 % | 0, 0, 0 | 0 | 0 |" in verification_markdown([found])


def test_it_ends_after_its_minutes_with_what_it_has() -> None:
    plan = VerificationPlan(sample=50, repetitions=1, seed=1, minutes=0)

    found = measure_verification(EchoTranslator(), ("de", "en"), PAIRS + PLAIN, plan, print)

    assert found.sentences == 32


def test_sentences_of_one_sort_alone_are_refused() -> None:
    with pytest.raises(BenchError, match="without figures"):
        measure_verification(EchoTranslator(), ("de", "en"), PAIRS, PLAN, print)
