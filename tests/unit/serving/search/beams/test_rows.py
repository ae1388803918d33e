"""The rows of a running batch against a plain list of what each row holds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.search.beams.rows import Candidates, NextBeams, Rows
from serving.search.beams.sentence import Sentence
from serving.search.beams.sentence_search import SentenceSearch
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions
from tests.unit.serving.search.fake_stepper import FakeModel, FakeStepper

BEAMS = 3
STEPPER = FakeStepper(FakeModel(), repack_every=4)

property_test = settings(max_examples=150, deadline=None, derandomize=True)


class RowsAndList:
    """`Rows`, and beside them a list with a dict for each row."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.joined = 0
        self.rows, self.wanted = self.newcomers(1 + seed % 4)

    def newcomers(self, count: int) -> tuple[Rows, list[dict[str, Any]]]:
        searches, wanted = [], []
        for _ in range(count):
            length, size = self.generator.integers(1, 9), self.generator.integers(0, 4)
            prefix = self.generator.integers(4, 9, size).tolist()
            options = SearchOptions(
                beam_size=BEAMS,
                max_length=int(self.generator.integers(3, 40)),
                coverage_penalty=float(self.generator.choice([0.0, 0.1], p=[0.8, 0.2])),
                repetition_penalty=float(self.generator.choice([1.0, 1.5], p=[0.8, 0.2])),
            )
            sentence = Sentence([*[5] * int(length), EOS_ID], options, prefix, start=50)
            searches.append(SentenceSearch(self.joined, sentence))
            wanted.append(
                {
                    "index": self.joined,
                    "sentence": sentence,
                    "running": True,
                    "source_length": int(length) + 1,
                    "steps_left": sentence.max_steps,
                    "queries": 1,
                    "used": len(prefix),
                    "beams": [
                        {
                            "token": [50, *prefix][-1],
                            "position": len(prefix),
                            "score": 0.0 if beam == 0 else -math.inf,
                        }
                        for beam in range(BEAMS)
                    ],
                    "steps": [],
                }
            )
            self.joined += 1
        return Rows(searches, STEPPER), wanted

    def fill(self) -> None:
        others, wanted = self.newcomers(int(self.generator.integers(1, 5)))
        idle = self.rows.idle(len(wanted))
        places = [row for row, entry in enumerate(self.wanted) if not entry["running"]]
        assert idle.tolist() == places[: len(wanted)]
        for row in idle.tolist():
            self.wanted[row] = wanted.pop(0)
        self.wanted += wanted
        self.rows.fill(others, idle)

    def retire(self) -> None:
        live = [row for row, entry in enumerate(self.wanted) if entry["running"]]
        if not live:
            return
        row = int(self.generator.choice(live))
        self.rows.retire(row)
        self.wanted[row] |= {"running": False, "source_length": 0, "steps_left": 0, "queries": 0}
        self.wanted[row]["used"] = 0
        dead = {"token": 0, "position": 0, "score": -math.inf}
        self.wanted[row]["beams"] = [dict(dead) for _ in range(BEAMS)]

    def take(self) -> None:
        kept = np.flatnonzero(self.generator.random(len(self.wanted)) < 0.7)
        if kept.size:
            self.rows.take(kept)
            self.wanted = [self.wanted[row] for row in kept.tolist()]
            self.note_dropped_slots()

    def repack(self) -> None:
        idle = [row for row, entry in enumerate(self.wanted) if not entry["running"]]
        if len(idle) == len(self.wanted):
            return
        self.rows.repack()
        if len(idle) * 4 > len(self.wanted):
            self.wanted = [entry for entry in self.wanted if entry["running"]]
        self.note_dropped_slots()

    def note_dropped_slots(self) -> None:
        """Which slots die is the tree's own affair (test_prefix_tree.py): no row gets more."""
        for entry, used in zip(self.wanted, self.rows.tree.used.tolist(), strict=True):
            assert used <= entry["used"]
            entry["used"] = used

    def advance(self) -> None:
        """A step of random candidates, where some beams of some rows end, and a repack."""
        if not any(entry["running"] for entry in self.wanted):
            return
        count, shape = len(self.wanted), (len(self.wanted), 2 * BEAMS)
        scores_BN = -np.sort(self.generator.random(shape).astype(np.float32), axis=1)
        tokens_BN = self.generator.integers(4, 40, shape).astype(np.int32)
        queries_B1 = np.array([max(1, entry["queries"]) for entry in self.wanted])[:, None]
        parents_BN = (self.generator.integers(0, 99, shape) % queries_B1).astype(np.int32)
        candidates = Candidates(scores_BN, tokens_BN, parents_BN)
        by_row = list(map(candidates.of, range(count)))
        self.rows.inputs(BEAMS)
        beams = NextBeams.best(candidates, BEAMS)
        for row in range(count):
            entry = self.wanted[row]
            places = list(range(BEAMS))
            if entry["running"] and self.generator.random() < 0.4:
                places = self.generator.integers(-1, 2 * BEAMS, BEAMS).tolist()
                places[int(self.generator.integers(BEAMS))] = 4
                beams.choose(row, by_row[row], places)
            live = [beam for beam, place in enumerate(places) if place >= 0]
            scores, tokens, _ = by_row[row]
            entry["used"] += entry["queries"]
            if entry["running"]:
                entry["queries"] = live[-1] + 1
                entry["beams"] = [
                    {
                        "token": tokens[place] if place >= 0 else 0,
                        "position": old["position"] + 1,
                        "score": scores[place] if place >= 0 else -math.inf,
                    }
                    for place, old in zip(places, entry["beams"], strict=True)
                ]
                entry["steps"].append([beam["token"] for beam in entry["beams"]])
        self.rows.advance(beams)
        self.repack()

    def check(self) -> None:
        rows, wanted = self.rows, self.wanted
        live = [entry for entry in wanted if entry["running"]]
        numbers = [row for row, entry in enumerate(wanted) if entry["running"]]
        assert len(rows) == len(wanted)
        assert rows.num_live == len(live)
        assert rows.longest_source == max(e["source_length"] for e in live) if live else True
        columns = {
            "running": rows.running_B,
            "source_length": rows.source_lengths_B,
            "steps_left": rows.steps_left_B,
            "queries": rows.queries_B,
            "used": rows.tree.used,
        }
        for name, array_B in columns.items():
            assert array_B.tolist() == [entry[name] for entry in wanted], name
        for name, array_BK in (
            ("token", rows.tokens_BK),
            ("position", rows.positions_BK),
            ("score", rows.scores_BK),
        ):
            assert array_BK.tolist() == [[b[name] for b in e["beams"]] for e in wanted], name
        for search, entry in zip(rows.searches, wanted, strict=True):
            assert search.index == entry["index"]
            if entry["running"]:
                assert [step[0] for step in search.steps] == entry["steps"]
        assert rows.constrained() == [
            row for row in numbers if wanted[row]["sentence"].options.repetition_penalty != 1
        ]
        assert rows.attended() == [
            row for row in numbers if wanted[row]["sentence"].options.coverage_penalty
        ]


@property_test
@given(
    seed=st.integers(0, 10**6),
    acts=st.lists(
        st.sampled_from(["fill", "retire", "take", "repack", "advance", "advance"]), max_size=25
    ),
)
def test_rows_are_those_of_a_list_whatever_is_done_to_them(seed: int, acts: list[str]) -> None:
    both = RowsAndList(seed)
    both.check()
    for act in acts:
        getattr(both, act)()
        both.check()


def test_no_row_has_begun_before_the_first_step() -> None:
    both = RowsAndList(3)
    both.fill()
    assert not both.rows.begun
    both.advance()
    assert both.rows.begun


def test_a_step_is_given_the_first_queries_of_each_row_and_a_slot_for_each() -> None:
    both = RowsAndList(2)
    used_B = both.rows.tree.used.copy()
    inputs = both.rows.inputs(1)
    count = len(both.wanted)
    assert inputs.token_ids_BQ.tolist() == [[e["beams"][0]["token"]] for e in both.wanted]
    assert inputs.positions_BQ.shape == (count, 1)
    assert inputs.scores_BK.shape == (count, BEAMS)
    assert inputs.write_index_B.tolist() == used_B.tolist()
    for row, slot in enumerate(used_B.tolist()):
        assert inputs.visible_BQC[row, 0, slot] == 0
