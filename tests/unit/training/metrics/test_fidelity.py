"""Copies, loops, lost numbers and lost placeholders."""

from __future__ import annotations

import time

import pytest

from training.metrics.fidelity import measure_fidelity


def test_equal_to_the_source_but_for_white_space_is_a_copy() -> None:
    found = measure_fidelity(["Guten Tag", "Hallo", "a b", ""], ["Guten  Tag ", "Hello", "b a", ""])
    assert found.copied == pytest.approx(1 / 3)  # the blank source counts nowhere


@pytest.mark.parametrize(
    ("source", "translation", "looping"),
    [
        ("x", "the the the the end", True),
        ("x", "the the the end", False),
        ("x", "I said that, I said that, I said that, I said that, no", True),
        ("x", "The Bumumumumumner", True),
        ("x", "wait ........ 100000000000 ----------", False),
        ("ha ha ha ha", "ha ha ha ha", False),
        ("x", "", False),
    ],
)
def test_a_piece_four_times_in_a_row_is_a_loop_unless_the_source_has_one(
    source: str, translation: str, looping: bool
) -> None:
    assert measure_fidelity([source], [translation]).repeated == float(looping)


@pytest.mark.parametrize(
    ("source", "translation", "share"),
    [
        ("Ich habe 3.472,50 Euro", "I have 3,472.50 euros", 1.0),
        ("3 472 und 12", "3,472 and 13", 0.5),
        ("12 und 12", "12", 0.5),
        ("Zimmer 3 4 Leute", "room 3, 4 people", 1.0),
        ("ab 1999", "since 99", 0.0),
        ("{0} von https://a.de/7", "nothing", None),  # these are placeholders
        ("keine", "7", None),
    ],
)
def test_numbers_are_kept_however_they_are_grouped(
    source: str, translation: str, share: float | None
) -> None:
    assert measure_fidelity([source], [translation]).numbers_kept == share


@pytest.mark.parametrize(
    "placeholder",
    [
        "{name}", "{0}", "{{name}}", "${HOME}", "%s", "%(name)s", "%1$s", "%@", "%d",
        "https://example.org/a?b=c", "someone@example.org",
    ],
)  # fmt: skip
def test_placeholders_must_stand_as_they_are(placeholder: str) -> None:
    source = f"Öffne {placeholder}, bitte."
    assert measure_fidelity([source], [f"Open ({placeholder})."]).placeholders_kept == 1.0
    changed = placeholder.replace(placeholder[1], "_", 1)
    assert measure_fidelity([source], [f"Open {changed}."]).placeholders_kept == 0.0


def test_a_percentage_is_no_placeholder() -> None:
    found = measure_fidelity(["100%s und 5 %, 100 % sicher"], [""])
    assert found.placeholders_kept is None


def test_shares_are_over_all_lines() -> None:
    found = measure_fidelity(["1 {a}", "2 3", "{b} {c}"], ["1", "2 3", "{c} {b}"])
    assert found.numbers_kept == 1.0
    assert found.placeholders_kept == pytest.approx(2 / 3)


def test_a_long_line_takes_no_long_time() -> None:
    start = time.process_time()
    measure_fidelity(
        ["x"], ["ab" + "c" * 3 + "d" * 3 + " word" * 3 + "".join(map(chr, range(32, 5000)))]
    )
    assert time.process_time() - start < 2
