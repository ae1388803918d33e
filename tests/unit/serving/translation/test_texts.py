"""What decoding a sentence may take is never less than what it takes, and what it may not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.errors import TooLongError
from serving.search.beams.beam import BeamSearch
from serving.search.beams.sentence import Finished, Hypothesis, Sentence
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions
from serving.text.memory.segments import Draft
from serving.text.terms import Terms
from serving.translation.results import Again, Done
from serving.translation.texts import TextProcessor, demand
from serving.translation.ticket import Request
from tests.unit.serving.echo import ByteTokenizer, echo_manifest
from tests.unit.serving.search.fake_stepper import FakeModel, FakeStepper

property_test = settings(max_examples=200, deadline=None, derandomize=True)


@property_test
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
    st.integers(1, 5),
    st.integers(0, 5),
    st.sampled_from([1, 2, 8]),
    st.integers(0, 1000),
)
def test_no_sentence_ever_outgrows_its_demand(
    lengths: list[int], beam_size: int, prefix: int, repack_every: int, seed: int
) -> None:
    stepper = FakeStepper(FakeModel(seed=seed, eos_bias=-3.0), repack_every)
    options = SearchOptions(beam_size=beam_size, max_length=17)
    sentences = [
        Sentence([*[4] * length, EOS_ID], options, [5] * (prefix % (length + 1)))
        for length in lengths
    ]
    search = BeamSearch(stepper, sentences)
    highest = max(demand(sentence, stepper).slots for sentence in sentences)
    while search.live:
        search.step()
        assert stepper.states[0].cache_BC2.shape[1] <= highest


class ScoredTokenizer(ByteTokenizer):
    """Bytes, with a score for one word."""

    def score(self, word: str) -> float | None:
        return -8.0 if word == "prix" else None


def texts_of(max_positions: int | None, tokenizer: ByteTokenizer | None = None) -> TextProcessor:
    manifest = echo_manifest()
    sizes = manifest.sizes.model_copy(update={"max_positions": max_positions})
    manifest = manifest.model_copy(update={"sizes": sizes})
    tokenizer = tokenizer or ByteTokenizer()
    return TextProcessor(manifest, tokenizer, tokenizer, FakeStepper(FakeModel()), 2**30)


def steps(texts: TextProcessor, request: Request) -> int:
    """The most tokens that are generated for it."""
    sentence = texts.prepare(request)
    assert sentence is not None
    texts.demand(sentence)
    return sentence.max_steps


@pytest.mark.parametrize("prefix", ["", "b" * 10])
def test_an_output_has_no_more_pieces_than_the_model_has_positions(prefix: str) -> None:
    request = Request(text="a" * 30, target_prefix=prefix)
    assert steps(texts_of(None), request) == 2 * 31 + 10
    texts, room = texts_of(40), 40 - len(prefix)
    assert steps(texts, request) == room
    assert steps(texts, replace(request, text="a")) == min(2 * 2 + 10, room)
    longest = replace(request, options=SearchOptions(max_length=room))
    assert steps(texts, longest) == room
    longer = replace(request, options=SearchOptions(max_length=room + 1))
    with pytest.raises(TooLongError, match=rf"at most 40 pieces, got {len(prefix)} in its prefix"):
        steps(texts, longer)
    assert steps(texts_of(None), longer) == room + 1


class Unread(tuple[Hypothesis, ...]):
    """Hypotheses that nobody may ask for."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Hypothesis]:
        pytest.fail("they were asked for")


def test_a_right_translation_stays_and_no_other_hypothesis_is_read() -> None:
    texts = texts_of(None)
    sentence = texts.prepare(Request(text="2 Hunde", source="de", target="en"))
    assert sentence is not None
    assert sentence.original is not None
    assert sentence.original.noteworthy
    best = Hypothesis(tuple(texts.target.encode("two dogs")), -1.0, -1.0, (), end=EOS_ID)

    outcome = texts.complete(sentence, Finished(0, (best,), Unread()))

    assert isinstance(outcome, Done)
    assert outcome.translation.text == "two dogs"
    assert outcome.translation.warnings == outcome.translation.repaired == ()


def test_a_draft_that_leaves_no_positions_for_the_output_is_not_used() -> None:
    for length, used in ((20, True), (35, False)):
        draft = Draft("a new house", "b" * length)
        request = Request(text="a small house", draft=draft, options=SearchOptions(max_length=15))
        sentence = texts_of(40).prepare(request)
        assert sentence is not None
        assert (sentence.draft_of is not None) is used


LABEL = Request(text="Prix", source="fr", target="en", stream=True)


@pytest.mark.parametrize(
    ("translation", "copied"), [("Prix", True), ("the príx", True), ("Price", False)]
)
def test_a_label_that_is_copied_is_decoded_with_a_small_letter(
    translation: str, copied: bool
) -> None:
    texts = texts_of(None, ScoredTokenizer())
    sentence = texts.prepare(replace(LABEL, alignments=True))
    assert sentence is not None
    assert not sentence.streamed
    best = Hypothesis(tuple(texts.target.encode(translation)), -1.0, -1.0, (), end=EOS_ID)
    outcome = texts.complete(sentence, Finished(0, (best,), ()))

    if not copied:
        assert isinstance(outcome, Done)
        return
    assert isinstance(outcome, Again)
    assert outcome.sentence.text == "prix"
    assert outcome.sentence.source == texts.encode_source("prix")
    last = texts.complete(outcome.sentence, Finished(0, (best,), ()))
    assert isinstance(last, Done)  # once is enough
    assert last.translation.text == translation


@pytest.mark.parametrize(
    "request_",
    [
        replace(LABEL, options=SearchOptions(verify=False)),
        replace(LABEL, target_prefix="P"),
        replace(LABEL, terms=Terms(required=("cost",))),
        replace(LABEL, source="de"),
        replace(LABEL, text="Prix."),
    ],
)
def test_other_texts_are_decoded_once(request_: Request) -> None:
    sentence = texts_of(None, ScoredTokenizer()).prepare(request_)
    assert sentence is not None
    assert sentence.if_copied is None
    plain = texts_of(None).prepare(LABEL)
    assert plain is not None
    assert plain.if_copied is None
