"""Word links from attention, and the attention that the search hands out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.search.beams.beam import BeamSearch, decode
from serving.search.beams.sentence import Hypothesis, Sentence
from serving.search.ids import BOS_ID, EOS_ID
from serving.search.options import SearchOptions
from serving.text.alignment import MIN_PROBABILITY, word_links, word_spans
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Request
from serving.translation.translator import Wishes
from tests.unit.serving.echo import EchoTranslator
from tests.unit.serving.search.fake_stepper import FakeModel, FakeStepper

property_test = settings(max_examples=60, deadline=None, derandomize=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Das ist's, 3-mal!", ["Das", "ist's", ",", "3-mal", "!"]),
        (" »e\u0301te\u0301« ", ["»", "e\u0301te\u0301", "«"]),
        ("- a --b", ["-", "a", "-", "-", "b"]),
        ("", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert [text[begin:end] for begin, end in word_spans(text)] == words


def test_links_go_to_the_word_with_most_attention() -> None:
    attention = np.array([[0.1, 0.3, 0.3, 0.2, 0.1], [0.6, 0.1, 0.1, 0.1, 0.1]], np.float32)
    source_pieces = [(0, 3), (3, 6), (6, 8), (8, 9)]  # the last column is that of eos
    links = word_links(
        attention, [(0, 3), (4, 8), (8, 9)], source_pieces, [(0, 2), (3, 5)], [(0, 2), (2, 5)]
    )
    assert [(link.source, link.target) for link in links] == [((4, 8), (0, 2)), ((0, 3), (3, 5))]
    assert [link.probability for link in links] == pytest.approx([0.6, 0.6])
    weak = word_links(attention / 4, [(0, 3)], source_pieces, [(0, 2), (3, 5)], [(0, 2), (2, 5)])
    assert weak == ()
    assert word_links(attention, [], [], [(0, 2)], [(0, 2)]) == ()


spans = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=6)


@property_test
@given(spans, spans, spans, spans, st.integers(0, 10**6))
def test_links_equal_sums_by_hand(
    source_pieces: list[tuple[int, int]],
    source_words: list[tuple[int, int]],
    target_pieces: list[tuple[int, int]],
    target_words: list[tuple[int, int]],
    seed: int,
) -> None:
    sp, sw, tp, tw = (
        chain(parts) for parts in (source_pieces, source_words, target_pieces, target_words)
    )
    rows = np.random.default_rng(seed).dirichlet(np.ones(len(sp) + 1), len(tp) + 1)
    links = {link.target: link for link in word_links(rows.astype(np.float32), sw, sp, tw, tp)}

    def share(piece: tuple[int, int], word: tuple[int, int], words: list[tuple[int, int]]) -> float:
        characters = set(range(piece[0], max(piece[1], piece[0] + 1)))
        inside = [len(characters & set(range(*other))) for other in words]
        return len(characters & set(range(*word))) / sum(inside) if sum(inside) else 0.0

    for word in tw:
        weight = [share(piece, word, tw) for piece in tp]
        totals = [
            sum(
                weight[t] * float(rows[t, s]) * share(sp[s], other, sw)
                for t in range(len(tp))
                for s in range(len(sp))
            )
            / max(sum(weight), 1e-9)
            for other in sw
        ]
        if max(totals) < MIN_PROBABILITY - 1e-6:
            assert word not in links
        elif max(totals) > MIN_PROBABILITY + 1e-6:
            assert links[word].probability == pytest.approx(max(totals), abs=1e-5)
            assert totals[sw.index(links[word].source)] == pytest.approx(max(totals), abs=1e-5)


def chain(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans of one character at least, with gaps between."""
    found, end = [], 0
    for length, gap in parts:
        found.append((end + gap, end + gap + length + 1))
        end = found[-1][1]
    return found


def sentences_of(generator: np.random.Generator, count: int, beam_size: int) -> list[Sentence]:
    """Some of which want their attention."""
    found = []
    for number in range(count):
        options = SearchOptions(
            beam_size=beam_size,
            num_hypotheses=beam_size,
            max_length=int(generator.integers(2, 14)),
            coverage_penalty=float(generator.choice([0.0, 0.0, 0.3])),
        )
        source = [*generator.integers(4, 9, 1 + number % 5).tolist(), EOS_ID]
        prefix = generator.integers(4, 9, int(generator.choice([0, 0, 3, 11]))).tolist()
        text = "a text" if generator.random() < 0.5 else None
        found.append(Sentence(source, options, prefix, text=text))
    return found


def check_attention(model: FakeModel, sentence: Sentence, hypothesis: Hypothesis) -> None:
    """The rows are the model's for each history."""
    if sentence.text is None:
        assert hypothesis.attention_TS is None
        return
    history = [BOS_ID, *hypothesis.tokens]
    length = len(history) if hypothesis.finished else len(history) - 1
    wanted = [
        model.attention(tuple(sentence.source), tuple(enumerate(history[: n + 1])))
        for n in range(length)
    ]
    assert hypothesis.attention_TS is not None
    np.testing.assert_array_equal(hypothesis.attention_TS, np.stack(wanted))


@property_test
@given(seed=st.integers(0, 10**6), count=st.integers(2, 8), beam_size=st.sampled_from([1, 3]))
def test_attention_is_that_of_each_query_and_changes_nothing(
    seed: int, count: int, beam_size: int
) -> None:
    generator, model = np.random.default_rng(seed), FakeModel(vocab_size=9, seed=seed)
    sentences = sentences_of(generator, count, beam_size)
    search, waiting = BeamSearch(FakeStepper(model), sentences[:1]), sentences[1:]
    found = {}
    while search.live or waiting:
        if waiting and (not search.live or generator.random() < 0.3):
            search.add(waiting[:1])
            del waiting[:1]
        found |= {finished.index: finished for finished in search.step()}
    for number, sentence in enumerate(sentences):
        plain = dataclasses.replace(sentence, text=None)
        (alone,) = decode(FakeStepper(model), [plain])
        assert found[number].hypotheses == alone.hypotheses  # but for the attention
        for hypothesis in found[number].hypotheses:
            check_attention(model, sentence, hypothesis)


def test_requests_with_and_without_links_are_not_taken_for_one_another() -> None:
    translator = EchoTranslator()
    scheduler = TranslationScheduler(translator)
    translator.stepper.gate.clear()
    requests = [
        Request(text="ab cd", options=SearchOptions(beam_size=2), alignments=alignments)
        for alignments in (False, True, True)
    ]
    tickets = scheduler.submit_all([*requests, dataclasses.replace(requests[1], text=" ab cd")])
    assert scheduler.queue_depth <= 3
    translator.stepper.gate.set()
    plain, first, second, moved = (t.result(30).translation.hypotheses[0] for t in tickets)
    assert (plain.text, first.text) == ("ab cd", "ab cd")
    assert plain.alignment is None
    assert first.alignment == second.alignment
    assert first.alignment is not None
    assert moved.alignment is not None
    for link, same in zip(first.alignment, moved.alignment, strict=True):
        assert moved.text[slice(*same.target)] == first.text[slice(*link.target)]
        assert tuple(place - 1 for place in same.source) == link.source
    (offline,) = translator.translate_sentences(
        "ab cd", requests[1].options, wishes=Wishes(alignments=True)
    )
    assert offline.hypotheses[0].alignment == first.alignment
    scheduler.close(30)
