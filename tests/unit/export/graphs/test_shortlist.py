"""The lexicon of a training text."""

from __future__ import annotations

from export.graphs.shortlist import BEST, COMMON, build_shortlist
from serving.search.ids import EOS_ID

HOUSE, OLD, HAUS, ALT, TAG = 10, 11, 20, 21, 30
PAIRS = [([HOUSE], [HAUS]), ([OLD], [ALT]), ([OLD, HOUSE], [ALT, HAUS])] * 20


def test_a_piece_may_become_what_it_was_translated_by_or_stay() -> None:
    found = build_shortlist(PAIRS, 200)
    assert HAUS in found.own(HOUSE)
    assert ALT in found.own(OLD)
    assert found.own(HOUSE).tolist()[0] == HOUSE
    assert found.own(99).tolist() == [99]


def test_any_source_may_end_and_become_what_is_frequent() -> None:
    assert build_shortlist(PAIRS, 200).of([]).tolist() == sorted([EOS_ID, HAUS, ALT])
    targets = [([5], [piece]) for piece in range(40, 40 + 2 * COMMON)]
    targets += targets[COMMON:]
    common = build_shortlist(targets, 400).of([]).tolist()
    assert common == [EOS_ID, *range(40 + COMMON, 40 + 2 * COMMON)]


def test_a_piece_has_few_translations() -> None:
    pairs = [([5], [piece]) for piece in range(40, 140)]
    own = build_shortlist(pairs, 400).own(5).tolist()
    assert len(own) == 1 + BEST


def test_a_tag_may_become_what_is_frequent_in_its_language() -> None:
    found = build_shortlist(PAIRS, 200, {TAG: PAIRS[:1]})
    assert found.own(TAG).tolist() == [HAUS, TAG]
    assert build_shortlist(PAIRS, 200).own(TAG).tolist() == [TAG]
