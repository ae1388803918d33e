"""Which checkpoint is the best."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training.errors import CheckpointError
from training.runs.selection import BestSoFar, best_checkpoints, rank_checkpoints


def write_state(run: Path, step: int, state: Any) -> None:
    folder = run / "checkpoints" / f"step_{step:08d}"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(json.dumps(state))


def test_less_loss_is_better_and_more_bleu() -> None:
    for by, values in (("loss", (3.0, 2.0, 2.5, 2.0, 1.0)), ("bleu", (1.0, 2.0, 1.5, 2.0, 3.0))):
        best = BestSoFar(by)
        found = [best.improved({by: value, "other": 0}) for value in values]
        assert found == [True, True, False, False, True]
        assert (best.value, best.stale) == (values[-1], 0)
    best.improved({"bleu": 0.0})
    assert best.stale == 1


def test_it_goes_on_where_a_state_ends() -> None:
    best = BestSoFar("chrf")
    best.improved({"chrf": 40.0})
    best.improved({"chrf": 39.0})
    other = BestSoFar("chrf")
    other.restore(json.loads(json.dumps(best.state())))
    assert (other.value, other.stale) == (40.0, 1)


def test_states_of_earlier_versions_tell_their_best_loss() -> None:
    best = BestSoFar("loss")
    best.restore({"best_loss": 1.25, "stale": 2})
    assert (best.value, best.stale) == (1.25, 2)
    best.restore({"best_loss": None, "stale": 0})
    assert best.improved({"loss": 100.0})
    with pytest.raises(KeyError, match="best_loss"):
        best.restore({"stale": 0})


def test_what_was_best_by_another_value_is_forgotten() -> None:
    best = BestSoFar("bleu")
    best.restore({"best_by": "loss", "best_value": 1.25, "stale": 3})
    assert (best.value, best.stale) == (None, 0)
    assert best.improved({"bleu": 0.1, "loss": 2.0})


def test_checkpoints_are_ranked_by_their_own_validation(tmp_path: Path) -> None:
    write_state(tmp_path, 1, {"validated": {"loss": 3.0, "bleu": 30.0}})
    write_state(tmp_path, 2, {"validated": {}})
    write_state(tmp_path, 3, {"validated": {"loss": 1.0, "bleu": 10.0}})
    write_state(tmp_path, 4, {})  # of an earlier version
    write_state(tmp_path, 5, {"validated": {"loss": 2.0, "bleu": 20.0}})
    write_state(tmp_path, 6, [])  # broken
    steps = {by: [p.name[-1] for p in rank_checkpoints(tmp_path, by)] for by in ("loss", "bleu")}
    assert steps == {"loss": ["3", "5", "1"], "bleu": ["1", "5", "3"]}
    assert [p.name[-1] for p in best_checkpoints(tmp_path, 2, "bleu")] == ["1", "5"]
    assert len(best_checkpoints(tmp_path, 9, "loss")) == 3
    with pytest.raises(CheckpointError, match=r"no kept checkpoint has a validation chrf"):
        best_checkpoints(tmp_path, 2, "chrf")
