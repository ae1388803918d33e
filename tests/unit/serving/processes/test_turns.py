"""Whose turn it is: shares of time, nobody starves, and how long the quick wait beside the slow."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

from serving.processes.turns import FairTurns


def turns_of(costs: dict[str, float], seconds: float) -> Counter[str]:
    """How many turns each gets that always wants one, of turns that take so long."""
    turns: FairTurns[str] = FairTurns()
    for key in costs:
        turns.begin(key)
    found: Counter[str] = Counter()
    spent = 0.0
    while spent < seconds:
        key = turns.choose(costs)
        turns.charge(key, costs[key])
        found[key] += 1
        spent += costs[key]
    return found


@pytest.mark.parametrize("costs", [{"a": 1.0, "b": 7.0}, {"a": 0.3, "b": 2.0, "c": 5.0}])
def test_whoever_always_wants_turns_gets_an_equal_share_of_time(costs: dict[str, float]) -> None:
    found = turns_of(costs, 6000.0)
    for key, cost in costs.items():
        assert found[key] * cost == pytest.approx(6000.0 / len(costs), abs=2 * max(costs.values()))


def test_time_in_which_nothing_was_wanted_is_not_made_up_for() -> None:
    turns: FairTurns[str] = FairTurns()
    turns.begin("old")
    for _ in range(100):
        turns.choose(["old"])
        turns.charge("old", 1.0)
    turns.begin("new")
    taken = []
    for _ in range(20):
        key = turns.choose(["old", "new"])
        turns.charge(key, 1.0)
        taken.append(key)
    assert taken.count("new") <= 11


def test_the_rest_of_a_long_turn_is_made_up_for() -> None:
    turns: FairTurns[str] = FairTurns()
    turns.begin("slow")
    for _ in range(3):
        turns.choose(["slow"])
        turns.charge("slow", 50.0)
    turns.begin("quick")  # while the last of these went on
    for _ in range(25):
        assert turns.choose(["slow", "quick"]) == "quick"
        turns.charge("quick", 2.0)


def test_who_is_forgotten_begins_anew() -> None:
    turns: FairTurns[str] = FairTurns()
    for key in "ab":
        turns.begin(key)
    turns.choose("ab")
    turns.charge("a", 9.0)
    turns.forget("a")
    turns.begin("a")
    assert turns.choose("ab") == "a"


@dataclass
class Arrival:
    time: float
    steps: int


def arrivals(seed: int, load: float, step_s: float) -> list[Arrival]:
    """Sentences of a quick model, at random times, that want so much of a processor."""
    rng = random.Random(seed)
    now, found = 0.0, []
    for _ in range(3000):
        steps = rng.randint(10, 40)
        now += rng.expovariate(load / (25 * step_s))
        found.append(Arrival(now, steps))
    return found


def p95_by_turns(coming: list[Arrival], quick_s: float, slow_s: float) -> float:
    """Of the quick model's sentences, decoded one after the other beside a model that always wants
    turns."""
    turns: FairTurns[str] = FairTurns()
    turns.begin("slow")
    waiting: list[Arrival] = []
    now, next_one, left, found = 0.0, 0, 0, []
    while len(found) < len(coming):
        while next_one < len(coming) and coming[next_one].time <= now:
            if not waiting:
                turns.begin("quick")
                left = coming[next_one].steps
            waiting.append(coming[next_one])
            next_one += 1
        key = turns.choose(["slow", "quick"] if waiting else ["slow"])
        seconds = quick_s if key == "quick" else slow_s
        turns.charge(key, seconds)
        now += seconds
        if key == "quick":
            left -= 1
            if not left:
                found.append(now - waiting.pop(0).time)
                left = waiting[0].steps if waiting else 0
    return float(np.percentile(found, 95))


def p95_of_two_processes(coming: list[Arrival], quick_s: float, slice_s: float) -> float:
    """The same where the system shares a processor between two processes in slices, and lets one
    that wakes begin with the next slice."""
    now, next_one, left, found = 0.0, 0, 0.0, []
    waiting: list[Arrival] = []
    quick_next = True
    while len(found) < len(coming):
        while next_one < len(coming) and coming[next_one].time <= now:
            if not waiting:
                left, quick_next = coming[next_one].steps * quick_s, True
            waiting.append(coming[next_one])
            next_one += 1
        if not (waiting and quick_next):
            now, quick_next = now + slice_s, True
            continue
        ran = min(slice_s, left)
        now, left, quick_next = now + ran, left - ran, False
        if left <= 1e-12:
            found.append(now - waiting.pop(0).time)
            left = waiting[0].steps * quick_s if waiting else 0.0
    return float(np.percentile(found, 95))


@pytest.mark.parametrize("load", [0.05, 0.2])
@pytest.mark.parametrize("slow_s", [0.004, 0.012, 0.05])
def test_a_slow_model_costs_a_quick_one_little_more_than_another_process_would(
    load: float, slow_s: float
) -> None:
    quick_s = 0.002
    coming = arrivals(1, load, quick_s)
    ours = p95_by_turns(coming, quick_s, slow_s)
    assert ours <= 1.3 * p95_of_two_processes(coming, quick_s, 0.003)
