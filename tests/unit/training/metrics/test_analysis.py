"""The analyses against cases counted by hand."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from training.metrics.analysis import (
    FrequencyBucket,
    PositionBucket,
    count_words,
    f1_by_frequency,
    matches_by_position,
    quality_by_length,
)
from training.metrics.bleu import measure_quality


def test_words_are_those_that_bleu_counts() -> None:
    counts = count_words(["The dog, the dog.", "a dog &amp; 3,5"])
    assert counts == {"The": 1, "dog": 3, ",": 1, "the": 1, ".": 1, "a": 1, "&": 1, "3,5": 1}


def test_length_buckets_hold_their_own_sentences() -> None:
    sources = ["", "w", "w " * 5, " ".join("w" * 6), "w " * 30, "w " * 31, "w " * 500]
    texts = [f"this is sentence number {i}" for i in range(len(sources))]
    worse = [*texts[:3], "this is text number 3", *texts[4:]]
    found = quality_by_length(sources, texts, worse)
    assert [(b.words, b.sentences) for b in found] == [
        ("0", 1), ("1-5", 2), ("6-10", 1), ("21-30", 1), ("31+", 2),
    ]  # fmt: skip
    quality = measure_quality([worse[3]], [texts[3]])
    assert astuple(found[2])[2:] == (quality.bleu, quality.chrf, quality.length_ratio)
    assert found[2].bleu < 50
    for bucket in (*found[:2], *found[3:]):
        assert bucket.bleu == pytest.approx(100)


def test_a_single_bucket_scores_as_the_whole() -> None:
    references, translations = ["a b c d e", "f g h i"], ["a b c d", "f g h i j"]
    (bucket,) = quality_by_length(["one two", "three"], references, translations)
    quality = measure_quality(translations, references)
    assert astuple(bucket) == ("1-5", 2, quality.bleu, quality.chrf, quality.length_ratio)


def test_positions_of_ten_words() -> None:
    # Two words a fifth; c, g, h, i and j are missing.
    found = matches_by_position(["a b c d e f g h i j"], ["f e d b a x"])
    assert found == [
        PositionBucket("0-20 %", 2, 1.0),
        PositionBucket("20-40 %", 2, 0.5),
        PositionBucket("40-60 %", 2, 1.0),
        PositionBucket("60-80 %", 2, 0.0),
        PositionBucket("80-100 %", 2, 0.0),
    ]


def test_short_references_lie_symmetrically() -> None:
    # Middles: one word 1/2; two words 1/4 and 3/4; three words 1/6, 1/2 and 5/6.
    found = matches_by_position(["a", "a b", "a b c", ""], ["a", "b", "c", "z"])
    assert found == [
        PositionBucket("0-20 %", 1, 0.0),
        PositionBucket("20-40 %", 1, 0.0),
        PositionBucket("40-60 %", 2, 0.5),
        PositionBucket("60-80 %", 1, 1.0),
        PositionBucket("80-100 %", 1, 1.0),
    ]
    assert [bucket.part for bucket in matches_by_position(["a"], ["a"])] == ["40-60 %"]
    assert matches_by_position([""], ["a"]) == []


def test_a_word_matches_as_often_as_it_was_translated() -> None:
    # One of two: neither place is favoured. More than wanted do not count.
    found = matches_by_position(["a b c d a"], ["a b b b"])
    assert [bucket.matched for bucket in found] == [0.5, 1.0, 0.0, 0.0, 0.5]


def test_f1_by_frequency() -> None:
    counts = {"the": 1001, "cat": 1000, "sat": 5, "dog": 1}
    # Matched: the (once of two), cat, new. "dog" and "old" are the translation's own.
    found = f1_by_frequency(["the cat sat the new"], ["the cat dog old new"], counts)
    assert found == [
        FrequencyBucket("0", 1, 2, 0.5, 1.0, pytest.approx(2 / 3)),
        FrequencyBucket("2-5", 1, 0, 0.0, 0.0, 0.0),
        FrequencyBucket("101-1000", 1, 1, 1.0, 1.0, 1.0),
        FrequencyBucket(">1000", 2, 1, 1.0, 0.5, pytest.approx(2 / 3)),
    ]


def test_words_match_within_their_sentence_only() -> None:
    (bucket,) = f1_by_frequency(["a", "b b"], ["b", "b c"], {})
    assert (bucket.reference_words, bucket.translation_words, bucket.recall) == (3, 3, 1 / 3)


@pytest.mark.parametrize(
    ("count", "label"),
    [
        (0, "0"), (1, "1"), (2, "2-5"), (6, "6-20"), (20, "6-20"), (21, "21-100"),
        (100, "21-100"), (101, "101-1000"), (1000, "101-1000"), (1001, ">1000"),
    ],
)  # fmt: skip
def test_frequency_limits(count: int, label: str) -> None:
    (bucket,) = f1_by_frequency(["w"], ["w"], {"w": count})
    assert bucket.frequency == label
