"""The moving average of weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from training.loop.averaging import WeightAverage
from training.loop.optim import build_optimizer
from training.recipe.config import OptimConfig
from training.runs.checkpoint import OPTIMIZER, load_checkpoint, load_weights, save_checkpoint


def set_to(model: nn.Module, value: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)


def test_the_average_is_the_formulas() -> None:
    model = nn.Linear(2, 3)
    set_to(model, 1.0)
    average = WeightAverage(model, 0.5)
    expected = 1.0
    for step, value in enumerate((2.0, -1.0, 5.0, 7.0, 3.0, 4.0, 8.0, 9.0, 2.0), start=1):
        set_to(model, value)
        average.update(step)
        decay = min(0.5, (1 + step) / (10 + step))  # 0.5 from the eighth update on
        expected = decay * expected + (1 - decay) * value
        for tensor in average.tensors.values():
            assert tensor.dtype == torch.float32
            torch.testing.assert_close(tensor, torch.full_like(tensor, expected))
    assert float(model.bias[0].detach()) == 2.0  # what is trained is not touched


def test_the_model_computes_with_the_average_within_the_block_only() -> None:
    model = nn.Linear(2, 3)
    set_to(model, 1.0)
    average = WeightAverage(model, 0.9)
    set_to(model, 2.0)
    with average.applied():
        assert float(model(torch.ones(1, 2))[0, 0].detach()) == 3.0
    assert float(model(torch.ones(1, 2))[0, 0].detach()) == 6.0
    assert float(average.tensors["bias"][0]) == 1.0


def test_a_checkpoint_gives_readers_the_average_and_training_both(tmp_path: Path) -> None:
    model = nn.Linear(2, 3)
    set_to(model, 1.0)
    average, optimizer = WeightAverage(model, 0.9), build_optimizer(model, OptimConfig())
    set_to(model, 2.0)
    save_checkpoint(tmp_path / "one", model, optimizer, {"step": 1}, average.tensors)

    other = nn.Linear(2, 3)
    load_weights(tmp_path / "one", other)
    assert float(other.bias[0].detach()) == 1.0
    other_average = WeightAverage(other, 0.9)
    set_to(other, 5.0)
    optimizer = build_optimizer(other, OptimConfig())
    load_checkpoint(tmp_path / "one", other, optimizer, other_average.tensors)
    assert float(other.bias[0].detach()) == 2.0
    assert float(other_average.tensors["bias"][0]) == 1.0


@pytest.mark.parametrize("averaged_before", [False, True])
def test_an_average_may_begin_or_end_at_any_checkpoint(
    tmp_path: Path, averaged_before: bool
) -> None:
    model = nn.Linear(2, 3)
    set_to(model, 1.0)
    average, optimizer = WeightAverage(model, 0.9), build_optimizer(model, OptimConfig())
    set_to(model, 2.0)
    averaged = average.tensors if averaged_before else None
    save_checkpoint(tmp_path / "one", model, optimizer, {}, averaged)
    set_to(model, 7.0)
    average = WeightAverage(model, 0.9)
    load_checkpoint(
        tmp_path / "one", model, optimizer, None if averaged_before else average.tensors
    )
    assert float(model.bias[0].detach()) == 2.0
    if not averaged_before:
        assert float(average.tensors["bias"][0]) == 2.0
        names = load_file(tmp_path / "one" / OPTIMIZER)
        assert not [name for name in names if name.startswith("trained.")]
