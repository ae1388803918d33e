"""Convolutions, and models that have them or a recurrent cell in the place of self-attention."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.toy.recipe import write_toy_recipe
from tests.unit.training.models import reference_blocks as reference
from tests.unit.training.models.sample_networks import SOURCE, TARGET, losses_of_updates
from tests.unit.training.tiny import TINY, randomised
from training.__main__ import main
from training.models import TransformerConfig
from training.models.sublayers.convolution import Convolution, convolve
from training.runs.folder import load_trained

FORMS: dict[str, dict[str, Any]] = {
    "light": {"encoder_mixing": "light_conv", "decoder_mixing": "light_conv"},
    "dynamic": {
        "encoder_mixing": "dynamic_conv",
        "decoder_mixing": "dynamic_conv",
        "encoder_kernel_sizes": (5, 9),
        "conv_glu": False,
        "norm": "post",
    },
    "as learnt": {
        "encoder_mixing": "light_conv",
        "decoder_mixing": "dynamic_conv",
        "kernel_softmax": False,
    },
    "macaron": {"block": "macaron", "encoder_mixing": "dynamic_conv"},
    "ssru": {"decoder_mixing": "ssru"},
}


@pytest.mark.parametrize("form", FORMS)
def test_logits_equal_the_loop_written_reference(form: str) -> None:
    model = randomised(replace(TINY, **FORMS[form]))
    with torch.no_grad():
        found = model(torch.tensor([SOURCE]), torch.tensor([TARGET]))[0].numpy()
        # What pads a source counts as zeros.
        padded = model(torch.tensor([[*SOURCE, 0, 0]]), torch.tensor([TARGET]))[0].numpy()
    wanted = reference.logits(SOURCE, TARGET, model)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(padded, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("form", FORMS)
def test_a_few_updates_teach_a_sentence(form: str) -> None:
    losses = losses_of_updates(replace(TINY, dropout=0.1, **FORMS[form]))
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("shape", [(2, 5), (1, 1)])
def test_the_gradient_of_a_convolution_is_that_of_its_formula(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)
    kernel = torch.randn(*shape, 2, 3, dtype=torch.float64, requires_grad=True)
    for ahead in (0, 1):
        assert torch.autograd.gradcheck(
            lambda x, kernel, ahead=ahead: convolve(x, kernel, ahead=ahead), (x, kernel)
        )


def test_kernel_dropout_drops_taps_in_training_alone() -> None:
    torch.manual_seed(0)
    config = replace(TINY, encoder_mixing="light_conv", kernel_dropout=0.5)
    module = Convolution(config, "light_conv", 31)
    x = torch.zeros(1, 3, 16)
    whole = module.eval().taps(x)
    torch.testing.assert_close(whole.sum(-1), torch.ones(1, 1, 2))
    dropped = module.train().taps(x)
    kept = dropped != 0
    assert 0.2 < kept.float().mean() < 0.8
    torch.testing.assert_close(dropped[kept], 2 * whole[kept])


@pytest.mark.parametrize("mixing", ["light_conv", "dynamic_conv", "ssru"])
def test_a_recipe_trains(tmp_path: Path, mixing: str) -> None:
    recipe = write_toy_recipe(tmp_path)
    overrides = [f"model.decoder_mixing={mixing}", "loop.max_steps=4", "loop.validate_every=4"]
    overrides += ["loop.checkpoint_every=4", "loop.log_every=2"]
    if mixing != "ssru":
        overrides += [f"model.encoder_mixing={mixing}", "model.encoder_kernel_sizes=[5]"]
        overrides += ["model.kernel_dropout=0.1", "model.conv_input_dropout=0.1"]
    run = tmp_path / "run"
    assert main(["train", str(recipe), *overrides, "--run", str(run), "--threads", "1"]) == 0
    config = load_trained(run).model.config
    assert isinstance(config, TransformerConfig)
    assert config.decoder_mixing == mixing
