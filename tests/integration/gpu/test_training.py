"""Training on a GPU (`pytest -m gpu`): skipped where PyTorch finds none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.integration.training.test_text import figures, train
from tests.toy.text import write_toy_text

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no CUDA device"),
]
DEVICE = "cuda"


@pytest.mark.parametrize("compiled", ["false", "true"])
def test_a_resumed_run_has_the_losses_of_the_unbroken_one(tmp_path: Path, compiled: str) -> None:
    recipe = write_toy_text(tmp_path)
    overrides = [
        f"loop.device={DEVICE}", "loop.bf16=true", f"loop.compile={compiled}",
        "loop.max_steps=60", "loop.log_every=10", "loop.validate_every=20",
    ]  # fmt: skip
    train(recipe, tmp_path / "whole", *overrides)
    train(recipe, tmp_path / "broken", *overrides, "--stop-after", "26")
    train(recipe, tmp_path / "broken", *overrides)
    whole, broken = (
        [record["loss"] for record in figures(tmp_path / name) if "loss" in record]
        for name in ("whole", "broken")
    )
    assert len(whole) > 6
    assert whole[-1] < whole[0]
    # Kernels that add in any order differ in the last bits.
    assert broken == pytest.approx(whole, rel=2e-3)
