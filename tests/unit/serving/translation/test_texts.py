"""What decoding a sentence may take is never less than what it takes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.search.beams.beam import BeamSearch
from serving.search.beams.sentence import Sentence
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions
from serving.translation.texts import demand
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
