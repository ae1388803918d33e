"""Updates in training, beside the Marian model of transformers."""

from __future__ import annotations

import pytest

from bench.__main__ import main
from bench.runs.training.training_speed import TrainingPlan, random_batches
from serving.search.ids import PAD_ID

PLAN = TrainingPlan(
    preset="transformer_tiny",
    vocab_size=100,
    token_budget=128,
    updates=3,
    repetitions=1,
    threads=1,
    bf16=False,
)


def test_batches_are_the_same_for_both_and_others_in_each_repetition() -> None:
    first, again, other = (random_batches(PLAN, seed) for seed in (0, 0, 1))
    assert len(first) == PLAN.updates
    for a, b in zip(first, again, strict=True):
        assert a.source_BS.equal(b.source_BS)
        assert a.labels_BT.equal(b.labels_BT)
        rows, length = a.source_BS.shape
        assert rows == 1 or rows * max(length, a.labels_BT.shape[1]) <= PLAN.token_budget
        assert bool((a.source_BS[:, 0] != PAD_ID).all())
    assert not first[0].source_BS.equal(other[0].source_BS)


@pytest.mark.slow
def test_both_systems_learn_as_many_parameters_and_are_timed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--preset", "transformer_tiny", "--vocab-size", "100", "--token-budget", "128"]
    status = main(["training", *words, "--updates", "1", "--repetitions", "1", "--busy"])
    table = capsys.readouterr().out
    assert status == 0
    ours, peer = (line.split(" | ") for line in table.splitlines()[-4:-2])
    assert ours[1] == peer[1]
    assert float(ours[2].split()[0].replace(",", "")) > 0
    assert peer[-1] == "1.00 |"
    # Of updates as small as these a fast machine spends less than half a per cent in products.
    assert all(0 <= int(row[3].rstrip("%")) < 100 for row in (ours, peer))


def test_a_preset_that_marian_has_not_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["training", "--preset", "macaron_small", "--busy"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "--preset must be one of transformer_" in line
