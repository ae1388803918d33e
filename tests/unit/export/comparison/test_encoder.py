"""What is read of texts, and which figures of an encoder's bundle are too far off."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from export.comparison.encoder import (
    LEAST_COSINE,
    LEAST_TWIN_COSINE,
    MAX_DIFFERENCE,
    MAX_METRIC_CHANGE,
    MAX_PROBABILITY_CHANGE,
    EncoderParity,
    check_encoder,
    check_metric,
    measure_encoder,
    read_all,
)
from export.errors import ParityError
from serving.arrays import Floats
from serving.bundle.encoder_tokenizer import EncodedText
from tests.unit.training.tiny_encoder import tiny_classifier, tiny_embedder
from training.models import TextModel

SOUND = EncoderParity(
    texts=9, max_difference=0.0, cosine_mean=1.0, cosine_least=1.0, twin_cosine=1.0
)


def texts(count: int) -> list[EncodedText]:
    generator = np.random.default_rng(3)
    ids = [tuple(generator.integers(1, 37, n).tolist()) for n in generator.integers(1, 30, count)]
    return [EncodedText(each, (0,) * len(each)) for each in ids]


def test_what_is_read_of_a_text_does_not_depend_on_the_others() -> None:
    model, given = tiny_embedder("mean"), texts(60)  # more ids than one call has
    assert sum(len(text.ids) for text in given) > 512
    together = read_all(model, given)
    for row, text in zip(together, given, strict=True):
        np.testing.assert_allclose(read_all(model, [text])[0], row, rtol=1e-4, atol=1e-5)


def measured(model: TextModel, twin: TextModel, found: Floats, *, classes: bool) -> EncoderParity:
    """The parity of a bundle that gives these numbers, whatever it reads."""
    return measure_encoder(model, twin, lambda _: found, texts(len(found)), classes=classes)


@pytest.mark.parametrize("classes", [False, True])
def test_figures_are_those_of_loops_over_texts(classes: bool) -> None:
    model: TextModel = tiny_classifier(3) if classes else tiny_embedder("mean")
    twin: TextModel = tiny_classifier(3, norm_eps=0.1) if classes else tiny_embedder("cls")
    given = texts(7)
    wanted, rounded = read_all(model, given), read_all(twin, given)
    noise = np.random.default_rng(4).normal(size=wanted.shape) * 0.1
    found = (wanted + noise).astype(np.float32)
    result = measured(model, twin, found, classes=classes)

    def angle(first: Floats, second: Floats) -> float:
        one, other = first.astype(float), second.astype(float)
        return float(one @ other / math.sqrt((one @ one) * (other @ other)))

    def softmax(row: Floats) -> Any:
        raised = np.exp(row.astype(float))
        return raised / raised.sum()

    angles = [angle(first, second) for first, second in zip(wanted, found, strict=True)]
    assert result.texts == 7
    assert result.cosine_mean == pytest.approx(np.mean(angles), rel=1e-5)
    assert result.cosine_least == pytest.approx(min(angles), rel=1e-5)
    twins = [angle(first, second) for first, second in zip(rounded, found, strict=True)]
    assert result.twin_cosine == pytest.approx(np.mean(twins), rel=1e-5)
    assert result.max_difference == pytest.approx(np.abs(rounded - found).max(), rel=1e-5)
    changes = [
        max(abs(softmax(first) - softmax(second)))
        for first, second in zip(wanted, found, strict=True)
    ]
    assert result.probability_change == pytest.approx(
        np.mean(changes) if classes else 0.0, rel=1e-3
    )


@pytest.mark.parametrize(
    ("precision", "classes", "changed", "words"),
    [
        ("fp32", False, {"max_difference": 2 * MAX_DIFFERENCE}, "outputs differ by up to 0.002"),
        ("fp32", True, {"max_difference": math.nan}, "outputs differ by up to nan"),
        ("int8", False, {"cosine_mean": LEAST_COSINE - 0.001}, "with the checkpoint is 0.9890"),
        ("int8", False, {"cosine_mean": math.nan}, "with the checkpoint is nan"),
        ("int8", False, {"twin_cosine": LEAST_TWIN_COSINE - 0.001}, "in PyTorch is 0.9980"),
        ("int8", True, {"probability_change": 2 * MAX_PROBABILITY_CHANGE}, "change by 0.0400"),
        ("int8", True, {"probability_change": math.nan}, "change by nan"),
    ],
)
def test_a_figure_beyond_its_limit_is_named(
    precision: str, classes: bool, changed: dict[str, float], words: str
) -> None:
    check_encoder(SOUND, precision, classes=classes)
    with pytest.raises(ParityError, match=words):
        check_encoder(replace(SOUND, **changed), precision, classes=classes)


def test_limits_are_those_of_the_task() -> None:
    check_encoder(replace(SOUND, max_difference=9.0), "int8", classes=False)
    check_encoder(replace(SOUND, cosine_mean=0.0, twin_cosine=0.0), "int8", classes=True)
    check_encoder(replace(SOUND, probability_change=1.0), "int8", classes=False)


@pytest.mark.parametrize("change", [-2.0, -1.01, -1.0, 0.0, 1.0, 1.01, math.nan])
def test_a_metric_may_change_by_half_a_point_either_way(change: float) -> None:
    bundle = 80.0 + change * MAX_METRIC_CHANGE
    if abs(change) <= 1:
        check_metric("accuracy", 80.0, bundle)
        return
    with pytest.raises(ParityError, match=r"accuracy changes from 80\.00 to"):
        check_metric("accuracy", 80.0, bundle)
