"""Metrics against small cases by hand, and what is told where they are undefined."""

from __future__ import annotations

import math

import numpy as np
import pytest

from training.metrics.labels import class_metrics, matching_metrics, score_metrics


def logits(answers: list[int], classes: int = 2) -> np.ndarray:
    return np.eye(classes, dtype=np.float32)[answers]


def test_two_classes_by_hand() -> None:
    # 3 true positives, 1 false positive, 2 false negatives, 4 true negatives
    wanted = [1, 1, 1, 0, 1, 1, 0, 0, 0, 0]
    found = class_metrics(logits([1, 1, 1, 1, 0, 0, 0, 0, 0, 0]), wanted, ("no", "yes"))
    precision, recall = 3 / 4, 3 / 5
    assert found == {
        "accuracy": pytest.approx(0.7),
        "f1": pytest.approx(2 * precision * recall / (precision + recall)),
        "matthews": pytest.approx((3 * 4 - 1 * 2) / math.sqrt(4 * 5 * 5 * 6)),
    }


def test_f1_of_more_classes_is_the_mean_of_all() -> None:
    found = class_metrics(logits([0, 0, 1, 2], 3), [0, 1, 1, 2], ("a", "b", "c"))
    assert found["f1"] == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)
    assert "f1_note" not in found


@pytest.mark.parametrize(
    ("answers", "wanted", "notes"),
    [
        ([1, 0], [0, 0], {"f1_note": "undefined: no line is 'yes'",
                          "matthews_note": "undefined: every line is 'no'"}),
        ([0, 0], [0, 1], {"f1_note": "0: no line was taken for 'yes'",
                          "matthews_note": "undefined: every answer is 'no'"}),
    ],
)  # fmt: skip
def test_a_metric_without_positives_is_reported(
    answers: list[int], wanted: list[int], notes: dict[str, str]
) -> None:
    found = class_metrics(logits(answers), wanted, ("no", "yes"))
    assert {name: note for name, note in found.items() if name.endswith("_note")} == notes
    assert (found["f1"], found["matthews"]) == (0.0, 0.0)


def test_classes_without_a_line_are_named() -> None:
    found = class_metrics(logits([0, 1], 6), [0, 1], tuple("abcdef"))
    assert found["f1_note"] == "0 of classes without a line: c, d, e and 1 more"


def test_correlations_by_hand() -> None:
    # deviations from the means: -2, -1, 1, 2 and -3, 1, -1, 3
    found = score_metrics(np.array([1, 2, 4, 5], np.float32), [0.0, 4.0, 2.0, 6.0])
    assert found["pearson"] == pytest.approx((6 - 1 - 1 + 6) / math.sqrt(10 * 20))
    assert found["spearman"] == pytest.approx(1 - 6 * (0 + 1 + 1 + 0) / (4 * 15))


@pytest.mark.parametrize(
    ("found", "wanted", "what"),
    [([1.0, 1.0], [0.0, 1.0], "answers"), ([0.0, 1.0], [2.0, 2.0], "scores")],
)
def test_correlations_of_equal_numbers_are_reported(
    found: list[float], wanted: list[float], what: str
) -> None:
    figures = score_metrics(np.array(found, np.float32), wanted)
    assert figures["pearson"] == figures["spearman"] == 0.0
    assert figures["spearman_note"] == f"undefined: all {what} are equal"


def test_matching_counts_both_ways_by_cosine() -> None:
    first = np.array([[1, 0], [0, 1], [1, 1]], np.float32)
    second = np.array([[100, 1], [0, 1], [5, 1]], np.float32)
    # forth: 0 to 0, 1 to 1, 2 to 2; back: 0 to 0, 1 to 1, and 2 to 0, whose cosine is greater
    assert matching_metrics(first, second)["accuracy"] == pytest.approx((1 + 2 / 3) / 2)
