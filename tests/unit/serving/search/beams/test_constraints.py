"""Required and forbidden terms against an exhaustive search, and as text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.bundle.fast_vocabulary import FastVocabulary
from serving.bundle.tokenizer import Tokenizer
from serving.errors import InvalidOptionError
from serving.search.beams.beam import decode
from serving.search.beams.constraints import Constraints
from serving.search.beams.sentence import Sentence
from serving.search.ids import EOS_ID, SpecialIds
from serving.search.options import SearchOptions
from serving.text.terms import TermReader, Terms
from serving.translation.ticket import Request
from serving.translation.translator import Wishes
from tests.toy.language_checkpoints import ROWS, write_tokenizer
from tests.unit.serving.echo import ByteTokenizer, EchoTranslator
from tests.unit.serving.search.fake_stepper import FakeModel, FakeStepper
from tests.unit.serving.search.reference_search import enumerate_all

SOURCE = (5, 9, 4, EOS_ID)
MODEL = Path(__file__).resolve().parents[5] / "models/macaron-de-en/tokenizer.model"
property_test = settings(max_examples=60, deadline=None, derandomize=True)
words = st.lists(st.sampled_from([1, 4]), min_size=1, max_size=3).map(tuple)


def holds(tokens: tuple[int, ...], term: tuple[int, ...]) -> bool:
    return "".join(f"<{t}>" for t in term) in "".join(f"<{t}>" for t in tokens)


@property_test
@given(
    seed=st.integers(0, 10**6),
    required=st.lists(words, max_size=2).map(tuple),
    forbidden=st.lists(words, max_size=2).map(tuple),
    prefix=st.lists(st.sampled_from([1, 4]), max_size=2),
)
def test_a_wide_beam_finds_the_best_of_those_that_meet_the_terms(
    seed: int,
    required: tuple[tuple[int, ...], ...],
    forbidden: tuple[tuple[int, ...], ...],
    prefix: list[int],
) -> None:
    """Two words and eos: no beam is ever lost."""
    model = FakeModel(vocab_size=5, seed=seed, forbidden=(0, 2))
    options = SearchOptions(beam_size=64, num_hypotheses=63, max_length=5)
    sentence = Sentence(SOURCE, options, prefix, constraints=Constraints(required, forbidden))
    found = decode(FakeStepper(model), [sentence])[0].hypotheses
    wanted = [
        result
        for result in enumerate_all(model, SOURCE, options, prefix)
        if all(holds(result.tokens, term) for term in required)
        and not any(
            holds((*prefix, *result.tokens[len(prefix) :])[start:], term)
            for term in forbidden
            for start in range(max(0, len(prefix) - len(term) + 1), len(result.tokens))
        )
    ]
    met = [hypothesis for hypothesis in found if not hypothesis.missing]
    assert met == list(found[: len(met)])  # they come first
    assert [h.score for h in met] == pytest.approx([w.score for w in wanted], abs=1e-4)
    assert {h.tokens for h in met} == {w.tokens for w in wanted}


@property_test
@given(seed=st.integers(0, 10**6), beam_size=st.integers(2, 6), count=st.integers(1, 2))
def test_terms_are_held_by_a_narrow_beam_too_and_neighbours_are_left_alone(
    seed: int, beam_size: int, count: int
) -> None:
    generator = np.random.default_rng(seed)
    model = FakeModel(vocab_size=30, seed=seed, eos_bias=0.5)
    options = SearchOptions(beam_size=beam_size, num_hypotheses=beam_size, max_length=24)
    terms = tuple(tuple(generator.integers(10, 30, 2).tolist()) for _ in range(count))
    others = [Sentence((*generator.integers(4, 30, 5).tolist(), EOS_ID), options) for _ in range(3)]
    wish = Sentence(SOURCE, options, constraints=Constraints(terms, ((7,), (8, 9))))
    alone = [decode(FakeStepper(model), [s])[0].hypotheses for s in [*others, wish]]
    together = [f.hypotheses for f in decode(FakeStepper(model), [*others, wish])]
    assert together == alone
    for hypothesis in alone[-1]:
        assert all(holds(hypothesis.tokens, term) for term in terms)
        assert not hypothesis.missing
        assert not holds(hypothesis.tokens, (7,))
        assert not holds(hypothesis.tokens, (8, 9))


def test_what_there_is_no_room_for_is_a_warning() -> None:
    translator = EchoTranslator()
    options = SearchOptions(beam_size=3, max_length=4, loop_guard=False)
    (short,) = translator.translate_sentences(
        "abcdef", options, wishes=Wishes(terms=Terms(required=("uvwxyz",)))
    )
    assert short.warnings == ("max_length", "constraints")
    (long,) = translator.translate_sentences(
        "abc", replace(options, max_length=20), wishes=Wishes(terms=Terms(("xyz",)))
    )
    assert "xyz" in long.text
    assert long.warnings == ()
    (without,) = translator.translate_sentences(
        "abc", options, wishes=Wishes(terms=Terms(forbidden=("b",)))
    )
    assert "b" not in without.text
    assert (
        translator.translate_sentences("abc", options, wishes=Wishes(terms=Terms()))[0].text
        == "abc"
    )
    assert (
        translator.texts.prepare(Request(text="abc", options=options, terms=Terms())).constraints
        is None
    )


@pytest.mark.parametrize(
    ("text", "held"), [("a Cat.", True), ("cats", False), ("tomcat", False), ("cat", True)]
)
def test_a_glossary_entry_counts_where_its_source_occurs(text: str, held: bool) -> None:
    translator = EchoTranslator()
    terms = Terms(glossary=(("cat", "QQ"), ("dog", "WW")))
    (result,) = translator.translate_sentences(
        text, SearchOptions(beam_size=4), wishes=Wishes(terms=terms)
    )
    assert ("QQ" in result.text) == held
    assert "WW" not in result.text


def test_terms_as_pieces() -> None:
    tokenizer = Tokenizer(MODEL)
    reader = TermReader(tokenizer)
    constraints = reader.constraints("", Terms(("red house",), ("house",)))
    assert constraints is not None
    assert constraints.required == (tuple(tokenizer.encode("red house")),)
    texts = [tokenizer.pieces(list(ids)) for ids in constraints.forbidden]
    assert len(texts) > 5
    assert {"".join(pieces) for pieces in texts} == {"▁house"}
    after = ["".join(tokenizer.pieces(list(ids))) for ids in constraints.forbidden_after]
    assert set(after) == {"house"}
    for term in ("", "  "):
        with pytest.raises(InvalidOptionError, match="text that the model can write"):
            reader.constraints("", Terms(required=(term,)))


def test_a_space_that_is_part_of_a_piece_is_part_of_a_term(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, begins=False)
    tokenizer = FastVocabulary(tmp_path / "tokenizer.json", ROWS, SpecialIds(0, 0, 0, 2))
    reader = TermReader(tokenizer)
    constraints = reader.constraints("", Terms(("red house",), ("house",)))
    assert constraints is not None
    written = [constraints.required, constraints.forbidden, constraints.forbidden_after]
    texts = [[tokenizer.decode(list(ids)) for ids in terms] for terms in written]
    assert texts == [[" red house"], [" house"], ["house"]]
    with pytest.raises(InvalidOptionError, match="text that the model can write"):
        reader.constraints("", Terms(required=("  ",)))


@pytest.mark.parametrize(
    ("before", "blocked"), [("", True), ("The", False), ("The (", True), ("a lit", False)]
)
def test_a_term_without_a_space_is_ruled_out_after_signs_only(before: str, blocked: bool) -> None:
    tokenizer = Tokenizer(MODEL)
    constraints = TermReader(tokenizer).constraints("", Terms(forbidden=("house",)))
    assert constraints is not None
    for ids in constraints.forbidden_after:
        log_probs = np.zeros(tokenizer.vocab_size, dtype=np.float32)
        constraints.restrict(log_probs, [*tokenizer.encode(before), *ids[:-1]], [EOS_ID])
        assert (log_probs[ids[-1]] == -np.inf) == blocked


def test_very_many_forbidden_terms_are_not_looked_through_one_by_one() -> None:
    """What is ruled out is what a loop over all terms finds."""

    class History(list[int]):
        """Counts how often it is asked for a part."""

        asked = 0

        def __getitem__(self, place: Any) -> Any:
            History.asked += 1
            return super().__getitem__(place)

    rng = np.random.default_rng(3)
    terms, after = (
        tuple({tuple(rng.integers(4, 9, rng.integers(1, 5)).tolist()) for _ in range(2000)})
        for _ in range(2)
    )
    constraints = Constraints(forbidden=terms, forbidden_after=after, signs=frozenset({4, 5}))
    for length in (0, 1, 2, 3, 9):
        history = History(rng.integers(4, 9, length).tolist())
        plain = list(history)
        shifted = [*plain, 0]
        wanted = {term[-1] for term in terms if shifted[-len(term) : -1] == [*term[:-1]]}
        wanted |= {
            term[-1]
            for term in after
            if shifted[-len(term) : -1] == [*term[:-1]]
            and (len(term) > length or plain[-len(term)] in (4, 5))
        }
        History.asked = 0
        log_probs = np.zeros(9, np.float32)
        constraints.restrict(log_probs, history, (EOS_ID,))
        assert set(np.flatnonzero(log_probs == -np.inf).tolist()) == wanted
        assert History.asked <= 20


def test_ways_to_write_forbidden_terms_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = ByteTokenizer()
    asked: list[str] = []

    def segmentations(text: str) -> list[list[int]]:
        asked.append(text)
        return [tokenizer.encode(text)]

    monkeypatch.setattr(tokenizer, "segmentations", segmentations)
    reader, terms = TermReader(tokenizer), Terms(forbidden=("abc", "de"))
    found = [reader.constraints(text, terms) for text in ("one", "two", "three")]
    assert found[0] == found[1] == found[2]
    assert len(asked) == 2 * 2  # as a word of its own, and after a sign
    with pytest.raises(InvalidOptionError):
        reader.constraints("one", Terms(forbidden=(" ",)))
