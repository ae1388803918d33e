"""Results of sentences as the result of their text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serving.queue.ticket import RequestTiming
from serving.text.document import Document
from serving.translation.joining import join_hypotheses, join_timing, join_warnings
from serving.translation.results import TextHypothesis, Translation
from serving.translation.ticket import Completed


def completed(
    texts: dict[str, float],
    *warnings: str,
    timing: RequestTiming | None = None,
    finished: bool = True,
) -> Completed:
    """Hypotheses with their cumulative scores, a token for each word."""
    hypotheses = []
    for text, cumulative in texts.items():
        tokens = tuple(text.split())
        each = cumulative / (len(tokens) + 1)
        scores = (each,) * (len(tokens) + 1)
        hypotheses.append(TextHypothesis(text, each, cumulative, tokens, scores, finished))
    best = hypotheses[0].text if hypotheses else ""
    timing = timing or RequestTiming(0.0, 0.0, 0.0, 0)
    return Completed(Translation(best, tuple(hypotheses), warnings), timing)


def document(text: str) -> Document:
    found = Document(text, "text")
    found.divide("de", lambda _: True)
    return found


def test_hypotheses_are_joined_rank_by_rank() -> None:
    results = [completed({"a b": -3.0, "c d": -6.0}), completed({"e": -1.0, "f": -2.0})]
    best, second = join_hypotheses(document("Eins.\n Zwei."), results, alignments=False)
    assert (best.text, second.text) == ("a b\n e", "c d\n f")
    assert (best.cumulative, second.cumulative) == (-4.0, -8.0)
    assert best.tokens == ("a", "b", "e")
    assert best.token_scores == (-1.0, -1.0, -1.0, -0.5, -0.5)
    assert best.score == pytest.approx((3 * -1.0 + 2 * -0.5) / 5)
    assert second.score == pytest.approx((3 * -2.0 + 2 * -1.0) / 5)
    assert best.alignment is None


def test_probabilities_are_weighted_by_tokens() -> None:
    results = [completed({"a b": -3.0}), completed({"e": -1.0}), completed({"f": -1.0})]
    first, second = (result.translation.hypotheses[0] for result in results[:2])
    calibrated = [
        replace(results[0], translation=Translation("", (replace(first, probability=0.9),))),
        replace(results[1], translation=Translation("", (replace(second, probability=0.0),))),
        results[2],
    ]
    sentences = document("Eins. Zwei. Drei.")
    (hypothesis,) = join_hypotheses(sentences, calibrated, alignments=False)
    assert hypothesis.probability == pytest.approx((3 * 0.9 + 2 * 0.0) / 5)
    (hypothesis,) = join_hypotheses(sentences, [results[2]] * 3, alignments=False)
    assert hypothesis.probability is None
    (hypothesis,) = join_hypotheses(document("Eins."), calibrated[:1], alignments=False)
    assert hypothesis.probability == 0.9


def test_a_sentence_alone_keeps_its_scores() -> None:
    (hypothesis,) = join_hypotheses(document(" Eins.\n"), [completed({"a": -1.5})], alignments=True)
    assert (hypothesis.text, hypothesis.score, hypothesis.cumulative) == (" a\n", -0.75, -1.5)
    assert hypothesis.alignment == ()


def test_where_a_sentence_has_fewer_its_last_one_is_used() -> None:
    results = [completed({"a": -1.0}), completed({"e": -1.0, "f": -2.0}), completed({})]
    joined = join_hypotheses(document("Eins. Zwei. Drei."), results, alignments=False)
    assert [hypothesis.text for hypothesis in joined] == ["a e ", "a f "]


def test_one_unfinished_sentence_makes_the_text_unfinished() -> None:
    results = [completed({"a": -1.0}), completed({"b": -1.0}, finished=False)]
    (hypothesis,) = join_hypotheses(document("Eins. Zwei."), results, alignments=False)
    assert not hypothesis.finished


def test_every_warning_once() -> None:
    results = [
        completed({"a": -1.0}, "max_length"),
        completed({"a": -1.0}, "repetition", "max_length"),
    ]
    assert join_warnings(results) == ["max_length", "repetition"]


def test_time_runs_from_the_first_start_to_the_last_end() -> None:
    results = [
        completed({"a": -1.0}, timing=RequestTiming(0.2, 0.1, 0.4, 3)),
        completed({"b": -1.0}, timing=RequestTiming(0.1, 0.15, 0.05, 7)),
    ]
    timing = join_timing(results)
    assert (timing.queue_s, timing.batch_size) == (0.1, 7)
    assert timing.encode_s == 0.15
    assert timing.decode_s == pytest.approx(0.45)
    assert join_timing([]) == RequestTiming(0.0, 0.0, 0.0, 0)
