"""What the bench of estimation counts."""

from __future__ import annotations

import numpy as np
import pytest

from bench.errors import BenchError
from bench.runs.evaluation.estimation import auc, estimation_markdown, measure_estimation
from serving.bundle.manifest import Calibration
from tests.unit.serving.echo import EchoTranslator

CALIBRATION = Calibration(
    event="made up",
    slope=1.0,
    intercept=2.0,
    data="none",
    pairs=1,
    held_out_pairs=1,
    held_out_rate=0.5,
    brier=0.1,
    expected_error=0.0,
)
SAME = [(f"the dog {n}", f"the dog {n}") for n in range(20)]
OTHER = [(f"wort eins {n}", f"something else {n}") for n in range(20)]


def test_the_area_counts_pairs_and_equal_scores_half() -> None:
    good = np.array([1.0, 1.0, 0.0, 0.0])
    assert auc(np.array([0.9, 0.8, 0.2, 0.1]), good) == 1.0
    assert auc(np.array([0.1, 0.8, 0.2, 0.9]), good) == 0.25
    assert auc(np.full(4, 0.5), good) == 0.5


def test_an_echo_is_sure_of_what_it_says_and_of_nothing_else() -> None:
    echo = EchoTranslator()
    with pytest.raises(BenchError, match="needs a calibrated bundle"):
        measure_estimation(echo, ("de", "en"), "some", SAME + OTHER, 1, print)
    changes = {"calibration": CALIBRATION}
    echo.texts.manifest = echo.texts.manifest.model_copy(update=changes)
    with pytest.raises(BenchError, match="got 100% good"):
        measure_estimation(echo, ("de", "en"), "same", SAME, 1, print)
    found = measure_estimation(echo, ("de", "en"), "some", SAME + OTHER, 1, print)
    assert found.good == 0.5
    assert found.forced_gap < 1e-6
    assert found.left_out > 0.5
    assert "| some | 40 | 50.0 % |" in estimation_markdown("de-en", [found])
