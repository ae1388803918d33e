"""Depth and width for a budget, against the paper and by trying every step."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from training.derive.scaling import Probe, read_probe, scale
from training.errors import CheckpointError, ConfigError
from training.recipe.config import load_recipe, recipe_to_dict

PAPER = Probe(depth=5, width=4, base_loss=4, deeper_loss=4 - 0.01063, wider_loss=4 - 0.01069)


def test_the_papers_example() -> None:
    found = scale(PAPER, 2)
    assert (found.alpha, found.depth, found.width) == (212, 7, 6)
    assert (found.exact_depth, found.exact_width) == pytest.approx((7.25, 6.27), abs=0.005)
    assert found.parameter_ratio == pytest.approx(7 * 8 / (5 * 6))
    assert (found.depth_gradient, found.width_gradient) == pytest.approx((0.01063, 0.01069))


@pytest.mark.parametrize("beta", [1.1, 2, 3.7, 10])
@pytest.mark.parametrize("gradients", [(0.01, 0.03), (0.2, 0.004), (0.05, 0.0), (-1.0, 0.02)])
@pytest.mark.parametrize("depth", [1, 24])
def test_no_other_step_comes_closer(
    beta: float, gradients: tuple[float, float], depth: int
) -> None:
    probe = Probe(depth, 2.625, 0.0, -gradients[0], -gradients[1])
    found = scale(probe, beta)
    by_depth, by_width = (max(0.0, gradient) for gradient in gradients)

    def error(alpha: int) -> float:
        size = (depth + alpha * by_depth) * (2 + 2.625 + alpha * by_width)
        return abs(beta - size / (depth * 4.625))

    assert found.alpha == min(range(30_000), key=error)


def test_a_dimension_that_does_not_help_keeps_its_size() -> None:
    found = scale(dataclasses.replace(PAPER, width=2.625, wider_loss=4.1), 2)
    assert (found.exact_width, found.width) == (2.625, 2.625)
    assert found.depth == 10
    assert found.parameter_ratio == 2
    found = scale(dataclasses.replace(PAPER, deeper_loss=4.0), 2)
    assert (found.depth, found.width) == (5, 10)


@pytest.mark.parametrize(
    ("changes", "beta", "message"),
    [
        ({"deeper_loss": 4, "wider_loss": 5}, 2, "neither depth nor width helps"),
        ({}, 1, "beta must be > 1, got 1"),
        ({}, float("nan"), "beta must be > 1, got nan"),
        ({"depth": 0}, 2, "depth must be >= 1, got 0"),
        ({"width": 0.0}, 2, "width must be > 0, got 0.0"),
        ({"wider_loss": float("nan")}, 2, "wider_loss must be a finite number, got nan"),
    ],
)
def test_what_cannot_be_scaled(changes: dict[str, Any], beta: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        scale(dataclasses.replace(PAPER, **changes), beta)


def write_run(folder: Path, losses: list[float], **model: Any) -> Path:
    """A run folder as far as a probe reads it."""
    overrides = [f"model.{name}={value}" for name, value in model.items()]
    recipe = load_recipe("multi30k-en-de-joint-fast", overrides)
    folder.mkdir()
    tree = json.loads(json.dumps(recipe_to_dict(recipe)))  # no tuples
    (folder / "config.yaml").write_text(yaml.safe_dump(tree))
    records: list[dict[str, Any]] = [{"kind": "train", "step": 1, "loss": 0.1}]
    records += [{"kind": "validation", "step": 1, "loss": loss} for loss in losses]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return folder


SIZE = {"model_dim": 128, "ffn_dim": 512, "num_encoder_layers": 5, "num_decoder_layers": 5}


def test_runs_are_read(tmp_path: Path) -> None:
    base = write_run(tmp_path / "base", [5.0, 4.0, 4.5], **SIZE)
    deeper = write_run(
        tmp_path / "deeper", [3.9], **SIZE | {"num_encoder_layers": 6, "num_decoder_layers": 6}
    )
    wider = write_run(tmp_path / "wider", [3.8, 3.95], **SIZE | {"ffn_dim": 640})
    assert read_probe(base, deeper, wider) == Probe(5, 4.0, 4.0, 3.9, 3.8)
    with pytest.raises(ConfigError, match=r"base: model\.num_decoder_layers must be 6 .* got 5"):
        read_probe(base, base, wider)
    with pytest.raises(ConfigError, match=r"deeper: model\.ffn_dim must be 640 .* got 512"):
        read_probe(base, deeper, deeper)
    thicker = write_run(tmp_path / "thicker", [3], **SIZE | {"model_dim": 256, "ffn_dim": 640})
    with pytest.raises(ConfigError, match=r"thicker: model\.model_dim must be 128"):
        read_probe(base, deeper, thicker)


def test_runs_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="neither a run"):
        read_probe(tmp_path, tmp_path, tmp_path)
    other = write_run(
        tmp_path / "other", [1], preset="transformer_tiny", architecture="transformer"
    )
    with pytest.raises(ConfigError, match=r"architecture must be 'joint'.* got 'transformer'"):
        read_probe(other, other, other)
    base = write_run(tmp_path / "base", [], **SIZE)
    deeper = write_run(tmp_path / "deeper", [], **SIZE | {"num_decoder_layers": 6})
    wider = write_run(tmp_path / "wider", [], **SIZE | {"ffn_dim": 640})
    with pytest.raises(CheckpointError, match="no validation yet"):
        read_probe(base, deeper, wider)
