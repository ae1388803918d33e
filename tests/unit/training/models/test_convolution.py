"""Convolutions and a recurrent cell in the place of self-attention."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.toy.recipe import write_toy_recipe
from tests.unit.training.models import reference_blocks
from tests.unit.training.tiny import TINY, randomised
from training.__main__ import main
from training.errors import ConfigError
from training.models import PRESETS, TransformerConfig, build_model
from training.models.convolution import Convolution, convolve
from training.models.recurrence import Ssru
from training.runs.folder import load_trained
from training.tasks.loss import label_smoothed_loss

SOURCE, TARGET = [5, 9, 30, 7, 12, 3], [2, 8, 6, 33, 20]
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
    wanted = reference_blocks.logits(SOURCE, TARGET, model)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(padded, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("form", FORMS)
def test_a_few_updates_teach_a_sentence(form: str) -> None:
    torch.manual_seed(0)
    model = build_model(replace(TINY, dropout=0.1, **FORMS[form])).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        states = model.states(torch.tensor([SOURCE]), torch.tensor([TARGET]))
        loss = label_smoothed_loss(model, states, torch.tensor([[*TARGET[1:], 3]]), 0.0)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        optimizer.step()
        losses.append(float(loss.detach()))
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


def test_the_gradient_of_the_recurrent_cell_is_that_of_its_formula() -> None:
    torch.manual_seed(0)
    cell = Ssru(TINY).double()
    inputs = [torch.randn(1, 1, n * 16, dtype=torch.float64, requires_grad=True) for n in (2, 1)]
    assert torch.autograd.gradcheck(cell._cell, inputs)


def test_kernel_dropout_drops_taps_in_training_alone() -> None:
    torch.manual_seed(0)
    config = replace(TINY, encoder_mixing="light_conv", kernel_dropout=0.5)
    module = Convolution(config, "light_conv", 31)
    x = torch.zeros(1, 3, 16)
    whole = module.eval()._kernel(x)
    torch.testing.assert_close(whole.sum(-1), torch.ones(1, 1, 2))
    dropped = module.train()._kernel(x)
    kept = dropped != 0
    assert 0.2 < kept.float().mean() < 0.8
    torch.testing.assert_close(dropped[kept], 2 * whole[kept])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"encoder_mixing": "light_conv", "encoder_kernel_sizes": (3, 4)},
            "encoder_kernel_sizes must be odd numbers from 3 on, got 4",
        ),
        (
            {"decoder_mixing": "dynamic_conv", "decoder_kernel_sizes": (3,)},
            r"one width for each of num_decoder_layers = 2 layers, got \[3\]",
        ),
        (
            {"decoder_kernel_sizes": (3, 3)},
            "decoder_kernel_sizes needs decoder_mixing to be one of .*, got 'attention'",
        ),
        ({"kernel_dropout": 0.1}, "kernel_dropout needs encoder_mixing or decoder_mixing"),
        ({"kernel_softmax": False}, "kernel_softmax: false needs encoder_mixing or decoder_mixing"),
        ({"encoder_mixing": "light_conv", "kernel_dropout": 1.0}, r"must be in \[0, 1\), got 1.0"),
        ({"encoder_mixing": "ssru"}, "encoder_mixing of architecture 'transformer' must be one of"),
    ],
)
def test_what_cannot_work_is_one_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(TINY, **changes)


def parameters(config: TransformerConfig) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in build_model(config).parameters())


@pytest.mark.parametrize("mixing", ["light_conv", "dynamic_conv"])
@pytest.mark.parametrize("size", ["tiny", "small", "small_6_2", "small_12_1", "base", "big"])
def test_presets_are_as_large_as_the_baseline(size: str, mixing: str) -> None:
    family = mixing.replace("_", "")
    config, baseline = PRESETS[f"{family}_{size}"], PRESETS[f"transformer_{size}"]
    assert isinstance(config, TransformerConfig)
    assert isinstance(baseline, TransformerConfig)
    assert (config.encoder_mixing, config.decoder_mixing) == (mixing, mixing)
    assert parameters(config) == pytest.approx(parameters(baseline), rel=0.03)


def test_published_presets_have_the_papers_layers() -> None:
    config = PRESETS["dynamicconv_iwslt_small"]
    assert isinstance(config, TransformerConfig)
    assert (config.num_encoder_layers, config.num_decoder_layers, config.conv_glu) == (7, 6, False)
    assert config.kernel_sizes("encoder") == (3, 7, 15, 31, 31, 31, 31)
    assert config.kernel_sizes("decoder") == (3, 7, 15, 31, 31, 31)
    widths = [layer.self_attention.width for layer in build_model(config).decoder]  # type: ignore[union-attr]
    assert widths == list(config.kernel_sizes("decoder"))


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
