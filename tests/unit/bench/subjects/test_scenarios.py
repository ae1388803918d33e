"""Which thread settings are tried, and which sentences are taken."""

from dataclasses import replace

import pytest

from bench.subjects.scenarios import (
    COMPARISONS,
    SHAPES,
    SLOT_STEPS,
    Scenario,
    Setting,
    order_scenarios,
    sentences_per_repetition,
    settings,
    spread_rows,
)
from training.models import PRESETS


@pytest.mark.parametrize(
    ("kind", "batch", "cores", "wanted"),
    [
        ("onnx", 1, 1, ["1 x 1"]),
        ("onnx", 32, 2, ["1 x 1", "1 x 2", "2 x 1"]),
        ("eager", 1, 6, ["1 x 1", "1 x 6"]),
        ("compiled", 32, 6, ["1 x 1", "1 x 6"]),
        ("ctranslate2", 1, 1, ["1 x 1"]),
        ("ctranslate2", 1, 2, ["1 x 1", "1 x 2"]),
        ("ctranslate2", 32, 2, ["1 x 1", "1 x 2", "2 x 1"]),
        ("ctranslate2", 32, 6, ["1 x 1", "1 x 2", "1 x 4", "1 x 6", "2 x 3", "4 x 1", "6 x 1"]),
        ("ctranslate2", 2, 8, ["1 x 1", "1 x 2", "1 x 4", "1 x 8", "2 x 4"]),
    ],
)
def test_settings_fit_the_cores_and_the_batch(
    kind: str, batch: int, cores: int, wanted: list[str]
) -> None:
    found = settings(kind, batch, cores)
    assert [str(setting) for setting in found] == wanted
    assert all(s.workers * s.threads <= cores and s.workers <= batch for s in found)
    assert len(set(found)) == len(found)
    assert Setting(1, 1) in found


def test_scenarios_come_small_ones_first_and_once() -> None:
    assert order_scenarios((32, 1, 1), (5, 1)) == [
        Scenario(1, 1),
        Scenario(1, 5),
        Scenario(32, 1),
        Scenario(32, 5),
    ]


@pytest.mark.parametrize(("count", "available"), [(4, 8), (8, 8), (5, 8), (20, 8), (3, 1)])
def test_rows_are_spread_over_all_sentences(count: int, available: int) -> None:
    rows = spread_rows(count, available)
    assert len(rows) == count
    assert set(rows) <= set(range(available))
    assert len(set(rows)) == min(count, available)
    if count < available:
        assert rows[-1] >= available // 2


@pytest.mark.parametrize("forced", [True, False])
@pytest.mark.parametrize("batch", [1, 7, 32, 100])
def test_repetitions_hold_whole_batches_twice_at_least(batch: int, forced: bool) -> None:
    count = sentences_per_repetition(batch, forced=forced)
    assert count >= 2 * batch
    assert count % batch == 0 or batch < 8


def test_shapes_and_limits_are_complete() -> None:
    for preset, changes in SHAPES.values():
        assert replace(PRESETS[preset], **changes)
    for (_, device), comparison in COMPARISONS.items():
        assert {comparison.ours, comparison.rival, *comparison.beside} <= set(comparison.systems)
        assert {system.on_gpu for system in comparison.systems} == {device == "cuda"}
        assert tuple(comparison.slot_limits) == SLOT_STEPS
        assert len({system.name for system in comparison.systems}) == len(comparison.systems)
