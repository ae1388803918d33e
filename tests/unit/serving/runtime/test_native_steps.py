"""Steps by native code against the search in NumPy: equal to the bit, whatever happens."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from serving.errors import DecodingError
from serving.runtime.cpu_graphs import BoundProgram
from serving.runtime.kernels import native_library
from serving.runtime.native_steps import NativeSteps, native_steps
from serving.search.beams.beam import BeamSearch, decode
from serving.search.beams.sentence import Finished, Sentence
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions
from serving.search.stepper import BeamArrays, StepInputs
from tests.unit.serving.search.fake_stepper import FakeModel, FakeState, FakeStepper

pytestmark = pytest.mark.skipif(native_library() is None, reason="needs the native kernels")
property_test = settings(
    max_examples=60, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate]
)


SEARCHES: dict[str, Any] = {
    "seed": st.integers(0, 10**6),
    "count": st.integers(1, 9),
    "beam_size": st.sampled_from([1, 2, 5]),
    "eos_bias": st.sampled_from([-4.0, -1.0, 1.0]),
    "spare_slots": st.sampled_from([0, 48]),
    "broken": st.booleans(),
}
"""Sizes and tendencies of a search."""


@dataclass
class FakeBinding:
    """Arrays of a step graph; a run computes what the `FakeStepper` does."""

    inputs: dict[str, Any]
    outputs: dict[str, Any]
    caches: list[Any]
    run: Callable[[], None]


class CalledBack(BoundProgram):
    """A program whose graph is a function in Python, which native code calls."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.errors: list[Exception] = []

        def called(*_: object) -> bool:
            try:
                run()
            except Exception as error:
                self.errors.append(error)
            return bool(self.errors)

        self._callback = ctypes.CFUNCTYPE(ctypes.c_bool, *(ctypes.c_void_p,) * 3)(called)
        address = ctypes.cast(self._callback, ctypes.c_void_p).value
        assert address is not None
        self.addresses = (address, 0, 0, 0)

    def fail(self) -> NoReturn:
        raise self.errors.pop()


class BoundStepper(FakeStepper):
    """Counts the steps that went through bound arrays."""

    def __init__(self, model: FakeModel, spare_slots: int, *, in_a_row: bool = False) -> None:
        """`in_a_row` is whether native code calls the graph, for several steps."""
        super().__init__(model)
        self.spare_slots, self.bound_calls, self._in_a_row = spare_slots, 0, in_a_row
        self.parent_offset = 0

    def bind(self, state: FakeState, beams: BeamArrays) -> NativeSteps | None:
        rows, count, slots = beams.visible_BKC.shape
        state.resize(slots)
        cache = state.cache_BC2
        inputs: dict[str, Any] = {
            "token": np.zeros((rows, count), np.int64),
            "position": np.zeros((rows, count), np.int64),
            "write_index": np.zeros(rows, np.int64),
            "visible": np.zeros((rows, 1, count, slots), np.float32),
            "score": np.zeros((rows, count), np.float32),
            "ancestor": np.zeros((rows, count, self.lookback), np.int64),
            "slot_position": np.zeros((rows, slots), np.int64),
        }
        outputs: dict[str, Any] = {
            "candidate_score": np.zeros((rows, 2 * count), np.float32),
            "candidate_token": np.zeros((rows, 2 * count), np.int32),
            "candidate_parent": np.zeros((rows, 2 * count), np.int32),
        }

        def run() -> None:
            given = StepInputs(
                token_ids_BQ=inputs["token"],
                positions_BQ=inputs["position"],
                write_index_B=inputs["write_index"],
                visible_BQC=inputs["visible"][:, 0],
                scores_BK=inputs["score"],
                slot_positions_BC=inputs["slot_position"],
                ancestors_BQW=inputs["ancestor"],
            )
            self.bound_calls += 1
            found = self.step(state, given, want_logits=False)
            assert state.cache_BC2 is cache
            for array, values in zip(outputs.values(), found[:3], strict=True):
                array[:] = values
            outputs["candidate_parent"] += self.parent_offset

        # Positions and tokens of slots lie beside each other, as numbers of a cache tensor do.
        called = CalledBack(run) if self._in_a_row else run
        binding: Any = FakeBinding(inputs, outputs, [cache], called)
        return native_steps(beams, binding, lambda: state.cache_BC2 is cache)


def random_sentences(rng: np.random.Generator, count: int, beam_size: int) -> list[Sentence]:
    """Sentences of mixed lengths, ends and prefixes; few have options that need NumPy."""
    sentences = []
    for _ in range(count):
        source = (*rng.integers(4, 30, rng.integers(1, 20)).tolist(), EOS_ID)
        options = SearchOptions(
            beam_size=beam_size,
            num_hypotheses=int(rng.integers(1, beam_size + 1)),
            max_length=int(rng.integers(6, 90)),
            min_length=int(rng.choice([0, 0, 0, 0, 0, 5])),
            coverage_penalty=float(rng.choice([0.0, 0.0, 0.0, 0.0, 0.0, 0.2])),
            length_penalty=float(rng.choice([0.0, 0.6])),
            patience=float(rng.choice([1.0, 1.0, 2.0])),
        )
        prefix = rng.integers(4, 30, int(rng.choice([0, 0, 1, 3, 9]))).tolist()
        ends = (EOS_ID, 7) if rng.random() < 0.2 else (EOS_ID,)
        sentences.append(Sentence(source, options, prefix, ends=ends))
    return sentences


def searched(stepper: FakeStepper, seed: int, count: int, beam_size: int) -> list[Any]:
    """All that a search says of sentences that join and are cancelled as it goes."""
    rng = np.random.default_rng(seed)
    search = BeamSearch(stepper, random_sentences(rng, count, beam_size))
    said: list[Any] = []
    live = set(range(count))
    while search.live:
        done: list[Finished] = search.step()
        said.append([(f.index, f.hypotheses, str(f.error), f.peak_slots) for f in done])
        live -= {finished.index for finished in done}
        if rng.random() < 0.05 and search.live:
            live |= set(search.add(random_sentences(rng, int(rng.integers(1, 4)), beam_size)))
        if rng.random() < 0.05 and live:
            search.cancel(victim := int(rng.choice(sorted(live))))
            live.discard(victim)
        if rng.random() < 0.2:
            said.append({index: search.agreed(index) for index in sorted(live)})
            said.append(search.peak_slots)
    return said


@property_test
@given(**SEARCHES, scale=st.sampled_from([2.0, 0.0]))
def test_a_search_says_the_same_as_in_numpy(
    seed: int,
    count: int,
    beam_size: int,
    eos_bias: float,
    spare_slots: int,
    scale: float,
    broken: bool,
) -> None:
    """With a scale of 0 all tokens but the end are ties."""
    model = FakeModel(vocab_size=30, seed=seed, eos_bias=eos_bias, scale=scale)
    if broken:
        model.broken = lambda source, slots: source[0] % 5 == 0 and slots[-1][0] >= 6
    bound, plain = BoundStepper(model, spare_slots), FakeStepper(model)
    plain.spare_slots = spare_slots
    assert searched(bound, seed, count, beam_size) == searched(plain, seed, count, beam_size)


@property_test
@given(**SEARCHES)
def test_steps_in_a_row_are_the_same_as_one_by_one(
    seed: int, count: int, beam_size: int, eos_bias: float, spare_slots: int, broken: bool
) -> None:
    model = FakeModel(vocab_size=30, seed=seed, eos_bias=eos_bias)
    if broken:
        model.broken = lambda source, slots: source[0] % 5 == 0 and slots[-1][0] >= 6
    found = []
    for stepper in (BoundStepper(model, spare_slots, in_a_row=True), FakeStepper(model)):
        stepper.spare_slots = spare_slots
        rng = np.random.default_rng(seed)
        done = decode(stepper, random_sentences(rng, count, beam_size))
        found.append([(f.index, f.hypotheses, str(f.error), f.peak_slots) for f in done])
    assert found[0] == found[1]


def test_few_calls_take_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the next repack, unless time is up."""
    options = SearchOptions(beam_size=5, max_length=200)

    def calls() -> int:
        stepper = BoundStepper(FakeModel(vocab_size=40, eos_bias=-50.0), 0, in_a_row=True)
        search, count = BeamSearch(stepper, [Sentence((5, EOS_ID), options)]), 0
        while search.live:
            search.step()
            count += 1
        assert stepper.bound_calls == 200
        return count

    monkeypatch.setattr("serving.runtime.native_steps._STRETCH_NS", 10**12)
    assert calls() <= 200 // FakeStepper(FakeModel()).repack_every + 2
    monkeypatch.setattr("serving.runtime.native_steps._STRETCH_NS", 0)
    assert calls() == 200


def test_a_graph_that_fails_between_steps_is_reported() -> None:
    def broken(source: object, slots: object) -> bool:
        raise RuntimeError("no such graph")

    model = FakeModel()
    model.broken = broken
    stepper = BoundStepper(model, 0, in_a_row=True)
    search = BeamSearch(stepper, [Sentence((5, EOS_ID), SearchOptions(beam_size=2))])
    with pytest.raises(RuntimeError, match="no such graph"):
        search.step()


def test_a_candidate_of_no_beam_is_refused() -> None:
    stepper = BoundStepper(FakeModel(), 0)
    stepper.parent_offset = 9
    search = BeamSearch(stepper, [Sentence((5, EOS_ID), SearchOptions(beam_size=2))])
    with pytest.raises(DecodingError, match="continues no hypothesis"):
        search.step()


@pytest.mark.parametrize("beam_size", [1, 5])
def test_every_step_of_a_plain_search_is_bound(beam_size: int) -> None:
    stepper = BoundStepper(FakeModel(vocab_size=40, eos_bias=-50.0), 0)
    options = SearchOptions(beam_size=beam_size, max_length=200)
    search = BeamSearch(stepper, [Sentence((5, EOS_ID), options)])
    while search.live:
        search.step()
    assert stepper.bound_calls == stepper.calls == 200


def test_arrays_of_other_numbers_are_refused() -> None:
    stepper = BoundStepper(FakeModel(), 0)
    search = BeamSearch(stepper, [Sentence((5, EOS_ID), SearchOptions(beam_size=2))])
    search._rows.scores_BK = search._rows.scores_BK.astype(np.float64)
    with pytest.raises(TypeError, match="scores must be float32 in one piece, got float64"):
        search.step()
