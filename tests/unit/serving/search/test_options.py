"""Search options: bounds, types, names and the score of a hypothesis."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.errors import InvalidOptionError
from serving.search.options import SearchOptions, parse_options

BOUNDS: dict[str, tuple[float, float]] = {
    "beam_size": (1, 64),
    "num_hypotheses": (1, 256),
    "length_penalty": (-10, 10),
    "coverage_penalty": (0, 10),
    "repetition_penalty": (0.01, 100),
    "no_repeat_ngram_size": (0, 64),
    "min_length": (0, 4096),
    "max_length": (1, 4096),
    "patience": (0.01, 16),
}
INTEGERS = {"beam_size", "num_hypotheses", "no_repeat_ngram_size", "min_length", "max_length"}
ROOM = {"num_hypotheses": {"beam_size": 64, "patience": 16.0}}
"""Other options that leave room for an extreme value."""


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_are_allowed_and_no_more(name: str) -> None:
    low, high = BOUNDS[name]
    for value in (low, high):
        assert getattr(parse_options(ROOM.get(name, {}) | {name: value}), name) == value
    step = 1 if name in INTEGERS else 1e-3
    for value in (low - step, high + step, -(10**30), 10**400):
        with pytest.raises(InvalidOptionError, match=rf"^{name} must be an? \w+ in \["):
            parse_options(ROOM.get(name, {}) | {name: value})


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("value", [True, False, "3", [3], {}, math.nan, math.inf, -math.inf, 1j])
def test_wrong_types(name: str, value: object) -> None:
    with pytest.raises(InvalidOptionError, match=rf"^{name} must be an? \w+ in \["):
        parse_options({name: value})


@pytest.mark.parametrize("name", sorted(INTEGERS))
@pytest.mark.parametrize("value", [2.0, 2.5])
def test_no_float_for_an_integer(name: str, value: float) -> None:
    with pytest.raises(InvalidOptionError, match=f"{name} must be an integer"):
        parse_options({name: value})


@pytest.mark.parametrize("name", sorted(BOUNDS.keys() - {"max_length"}))
def test_only_max_length_may_be_none(name: str) -> None:
    with pytest.raises(InvalidOptionError, match=name):
        parse_options({name: None})
    assert parse_options({"max_length": None}).max_length is None


@pytest.mark.parametrize("name", ["eos_in_length", "loop_guard"])
@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_switches_take_only_booleans(name: str, value: object) -> None:
    with pytest.raises(InvalidOptionError, match=f"{name} must be true or false"):
        parse_options({name: value})
    with pytest.raises(InvalidOptionError, match=f"{name} must be true or false"):
        SearchOptions(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["Power", None, 1, []])
def test_form_of_the_length_penalty(value: object) -> None:
    with pytest.raises(InvalidOptionError, match=r"one of \('power', 'gnmt'\)"):
        parse_options({"length_penalty_form": value})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("beamsize", "did you mean 'beam_size'?"),
        ("lenght_penalty", "did you mean 'length_penalty'?"),
        ("Patience", "did you mean 'patience'?"),
        ("n_best_of_all_the_things", "there are ["),
        ("", "there are ["),
    ],
)
def test_an_unknown_name_gets_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_options({"beam_size": 2, name: 3})
    assert f"unknown option {name!r}; {hint}" in str(caught.value)


def test_options_that_contradict_each_other() -> None:
    with pytest.raises(InvalidOptionError, match="min_length must be below max_length = 5, got 5"):
        parse_options({"min_length": 5, "max_length": 5})
    with pytest.raises(InvalidOptionError, match=r"num_hypotheses must be <= .* = 4, got 5"):
        parse_options({"beam_size": 4, "num_hypotheses": 5})
    assert parse_options({"beam_size": 4, "num_hypotheses": 6, "patience": 1.5}).max_finished == 6


@pytest.mark.parametrize(
    ("beam_size", "patience", "finished"),
    [
        (1, 0.01, 1),
        (1, 1.5, 2),
        (3, 0.5, 2),
        (5, 0.5, 3),
        (5, 0.49, 2),
        (5, 1.0, 5),
        (64, 16, 1024),
    ],
)
def test_patience_rounds_halves_up(beam_size: int, patience: float, finished: int) -> None:
    assert SearchOptions(beam_size=beam_size, patience=patience).max_finished == finished


@pytest.mark.parametrize(
    ("max_length", "source", "steps"),
    [(None, 4, 18), (None, 123, 256), (None, 9999, 256), (7, 99, 7)],
)
def test_max_steps(max_length: int | None, source: int, steps: int) -> None:
    assert SearchOptions(max_length=max_length).max_steps(source) == steps


@pytest.mark.parametrize(
    ("values", "length", "score"),
    [
        ({}, 4, -3.0),
        ({}, 0, -12.0),
        ({"length_penalty": 0.0}, 4, -12.0),
        ({"length_penalty": 0.5}, 4, -6.0),
        ({"length_penalty": -1.0}, 4, -48.0),
        ({"length_penalty_form": "gnmt"}, 7, -6.0),
        ({"length_penalty_form": "gnmt", "length_penalty": 2.0}, 1, -12.0),
        ({"coverage_penalty": 0.5}, 4, -4.0),
    ],
)
def test_score(values: dict[str, Any], length: int, score: float) -> None:
    without_eos = SearchOptions(**values, eos_in_length=False)
    found = without_eos.score(-12.0, length, ended=True, coverage=-2.0)
    assert found == pytest.approx(score)


@pytest.mark.parametrize(
    ("length", "ended", "score"), [(3, True, -3.0), (3, False, -4.0), (0, True, -12.0)]
)
def test_score_counts_eos_where_it_was_reached(length: int, ended: bool, score: float) -> None:
    assert SearchOptions().score(-12.0, length, ended=ended) == pytest.approx(score)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.dictionaries(
        st.sampled_from([*BOUNDS, "loop_guard", "length_penalty_form"]) | st.text(max_size=5),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.none()),
    )
)
def test_any_plain_data_gives_options_or_the_one_error(values: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidOptionError):
        assert parse_options(values) == SearchOptions(**values)
