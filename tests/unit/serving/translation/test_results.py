"""Results of sentences as the result of their text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serving.queue.ticket import RequestTiming
from serving.text.document import Document
from serving.translation.results import TextHypothesis, Translation, join_timings, join_translations


def translation(texts: dict[str, float], *warnings: str, finished: bool = True) -> Translation:
    """Hypotheses with their cumulative scores, a token for each word."""
    hypotheses = []
    for text, cumulative in texts.items():
        tokens = tuple(text.split())
        each = cumulative / (len(tokens) + 1)
        scores = (each,) * (len(tokens) + 1)
        hypotheses.append(TextHypothesis(text, each, cumulative, tokens, scores, finished))
    best = hypotheses[0].text if hypotheses else ""
    return Translation(best, tuple(hypotheses), warnings)


def document(text: str) -> Document:
    found = Document(text, "text")
    found.divide("de", lambda _: True)
    return found


def test_hypotheses_are_joined_rank_by_rank() -> None:
    results = [translation({"a b": -3.0, "c d": -6.0}), translation({"e": -1.0, "f": -2.0})]
    best, second = join_translations(
        document("Eins.\n Zwei."), results, alignments=False
    ).hypotheses
    assert (best.text, second.text) == ("a b\n e", "c d\n f")
    assert (best.cumulative, second.cumulative) == (-4.0, -8.0)
    assert best.tokens == ("a", "b", "e")
    assert best.token_scores == (-1.0, -1.0, -1.0, -0.5, -0.5)
    assert best.score == pytest.approx((3 * -1.0 + 2 * -0.5) / 5)
    assert second.score == pytest.approx((3 * -2.0 + 2 * -1.0) / 5)
    assert best.alignment is None


def test_probabilities_are_weighted_by_tokens() -> None:
    results = [translation({"a b": -3.0}), translation({"e": -1.0}), translation({"f": -1.0})]
    first, second = (result.hypotheses[0] for result in results[:2])
    calibrated = [
        Translation("", (replace(first, probability=0.9),)),
        Translation("", (replace(second, probability=0.0),)),
        results[2],
    ]
    sentences = document("Eins. Zwei. Drei.")
    (hypothesis,) = join_translations(sentences, calibrated, alignments=False).hypotheses
    assert hypothesis.probability == pytest.approx((3 * 0.9 + 2 * 0.0) / 5)
    (hypothesis,) = join_translations(sentences, [results[2]] * 3, alignments=False).hypotheses
    assert hypothesis.probability is None
    (hypothesis,) = join_translations(
        document("Eins."), calibrated[:1], alignments=False
    ).hypotheses
    assert hypothesis.probability == 0.9


def test_a_sentence_alone_keeps_its_scores() -> None:
    (hypothesis,) = join_translations(
        document(" Eins.\n"), [translation({"a": -1.5})], alignments=True
    ).hypotheses
    assert (hypothesis.text, hypothesis.score, hypothesis.cumulative) == (" a\n", -0.75, -1.5)
    assert hypothesis.alignment == ()


def test_where_a_sentence_has_fewer_its_last_one_is_used() -> None:
    results = [translation({"a": -1.0}), translation({"e": -1.0, "f": -2.0}), translation({})]
    joined = join_translations(document("Eins. Zwei. Drei."), results, alignments=False).hypotheses
    assert [hypothesis.text for hypothesis in joined] == ["a e ", "a f "]


def test_one_unfinished_sentence_makes_the_text_unfinished() -> None:
    results = [translation({"a": -1.0}), translation({"b": -1.0}, finished=False)]
    (hypothesis,) = join_translations(document("Eins. Zwei."), results, alignments=False).hypotheses
    assert not hypothesis.finished


def test_every_warning_once() -> None:
    results = [
        translation({"a": -1.0}, "max_length"),
        translation({"a": -1.0}, "repetition", "max_length"),
    ]
    joined = join_translations(document("Eins. Zwei."), results, alignments=False)
    assert joined.warnings == ("max_length", "repetition")


def test_no_text_comes_twice() -> None:
    results = [translation({"a": -1.0, "b": -2.0}), translation({"c": -1.0, "d": -2.0})]
    results[0] = replace(results[0], hypotheses=(results[0].hypotheses[0],) * 2)
    results[1] = replace(results[1], hypotheses=(*results[1].hypotheses[:1] * 2,))
    joined = join_translations(document("Eins. Zwei."), results, alignments=False)
    assert [hypothesis.text for hypothesis in joined.hypotheses] == ["a c"]


def test_a_text_without_sentences_stays_as_it_is() -> None:
    joined = join_translations(document(" 07:45 "), [], alignments=False)
    assert joined == Translation(" 07:45 ")


def test_time_runs_from_the_first_start_to_the_last_end() -> None:
    timings = [RequestTiming(0.2, 0.1, 0.4, 3), RequestTiming(0.1, 0.15, 0.05, 7)]
    timing = join_timings(timings)
    assert (timing.queue_s, timing.batch_size) == (0.1, 7)
    assert timing.encode_s == 0.15
    assert timing.decode_s == pytest.approx(0.45)
    assert join_timings([]) == RequestTiming(0.0, 0.0, 0.0, 0)
