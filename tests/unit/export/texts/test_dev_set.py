"""Texts as a model reads them: what stands before and behind a source, and where outputs begin."""

from __future__ import annotations

from typing import Any

import pytest

from export.texts.dev_set import DevSet
from export.texts.vocabulary import Vocabulary
from serving.search.ids import OWN_IDS, SpecialIds
from serving.search.options import SearchOptions


class Words:
    """A tokenizer of numbers that stand as text."""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[int(word) for word in text.split()] for text in texts]


WORDS: Any = Words()
OPTIONS = SearchOptions(beam_size=3)


def test_each_source_ends_as_the_project_s_own_models_read_it() -> None:
    made = DevSet(["7 8", "", "9"], None).sentences(Vocabulary.of(WORDS), OPTIONS)
    assert [list(each.source) for each in made] == [
        [7, 8, OWN_IDS.eos], [OWN_IDS.eos], [9, OWN_IDS.eos],
    ]  # fmt: skip
    assert {each.options for each in made} == {OPTIONS}
    assert {(each.start, tuple(each.ends)) for each in made} == {(OWN_IDS.bos, (OWN_IDS.eos,))}
    assert [list(each.target_prefix) for each in made] == [[], [], []]


def test_languages_are_given_before_sources_and_as_the_beginnings_of_outputs() -> None:
    text = DevSet(["7 8", "9"], None, prefixes=[[4], [5, 6]], target_prefixes=[[11], []])
    made = text.sentences(Vocabulary.of(WORDS), OPTIONS)
    assert [list(each.source) for each in made] == [[4, 7, 8, OWN_IDS.eos], [5, 6, 9, OWN_IDS.eos]]
    assert [list(each.target_prefix) for each in made] == [[11], []]


@pytest.mark.parametrize("source_end", [False, True])
def test_other_projects_ids_are_used_where_there_are_such(source_end: bool) -> None:
    ids = SpecialIds(pad=30, unk=31, bos=32, eos=33)
    vocabulary = Vocabulary(WORDS, WORDS, ids, source_end)
    (made,) = DevSet(["7"], None).sentences(vocabulary, OPTIONS)
    assert list(made.source) == ([7, 33] if source_end else [7])
    assert (made.start, tuple(made.ends)) == (32, (33,))


def test_a_prefix_for_each_source_is_needed() -> None:
    with pytest.raises(ValueError, match="zip"):
        DevSet(["7", "8"], None, prefixes=[[4]]).sentences(Vocabulary.of(WORDS), OPTIONS)
