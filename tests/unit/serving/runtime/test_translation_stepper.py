"""Which sources are encoded together."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.runtime.translation_stepper import like_lengths

property_test = settings(max_examples=200, deadline=None, derandomize=True)
LENGTHS = st.lists(st.sampled_from(range(8, 257, 8)), min_size=1, max_size=40)


def test_another_length_is_apart_where_padding_costs_more_than_a_call() -> None:
    assert like_lengths([8]) == [[0]]
    assert like_lengths([16, 8, 16]) == [[0, 1, 2]]
    assert like_lengths([8, 8, 16, 8]) == [[2], [0, 1, 3]]
    assert like_lengths([8] * 9 + [200]) == [[9], list(range(9))]
    assert like_lengths([24, 16, 8, 8]) == [[0, 1], [2, 3]]


@property_test
@given(LENGTHS)
def test_every_source_is_in_one_group_and_no_group_is_padded_much(lengths: list[int]) -> None:
    groups = like_lengths(lengths)
    assert sorted(number for group in groups for number in group) == list(range(len(lengths)))
    assert max(lengths) in [lengths[number] for number in groups[0]]
    for group in groups:
        assert group == sorted(group)
        longest = max(lengths[number] for number in group)
        assert sum(longest - lengths[number] for number in group) <= 16
    for above, below in itertools.pairwise(groups):
        assert min(lengths[n] for n in above) > max(lengths[n] for n in below)
