"""Depth and width for a larger budget, from the losses of three small runs.

Li et al. 2020, "Neural Machine Translation with Joint Representation", equations 8 to 11: depth and
width grow along the gradient of the validation loss until the parameters have grown by a factor
beta. A joint layer has 2 * (4 + 2 * width) parameters in units of model_dim squared, width being
ffn_dim / model_dim. The PreNet is as deep as the joint layers, so it scales by the same factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from training.errors import ConfigError
from training.models.configs.common import ModelConfig
from training.models.configs.joint import JointConfig
from training.runs.folder import read_run_recipe
from training.runs.log import lowest_validation_loss


@dataclass(frozen=True)
class Probe:
    """Size of a base model, and the validation losses of it, of a deeper and of a wider one, in
    nats per label."""

    depth: int
    width: float
    base_loss: float
    deeper_loss: float
    wider_loss: float


@dataclass(frozen=True)
class Scaling:
    """The depth and width that are chosen, and the figures they follow from."""

    depth_gradient: float
    """Loss that one more layer takes off."""
    width_gradient: float
    """Loss that one more width takes off."""
    alpha: int
    """Steps along the gradient that bring the parameters nearest to the budget."""
    exact_depth: float
    exact_width: float
    depth: int
    width: float
    """The width: a whole number, or that of the base model if it is not scaled."""
    parameter_ratio: float
    """Parameters at the rounded size over those of the base model."""


def scale(probe: Probe, beta: float) -> Scaling:
    """The size whose parameters are closest to `beta` times the base model's.

    Like the authors' solver it tries whole steps along the gradient. A dimension that did not lower
    the loss stays as it is. Raises ConfigError for a value out of range, and if neither dimension
    lowered the loss.
    """
    _check(probe, beta)
    depth_gradient = probe.base_loss - probe.deeper_loss
    width_gradient = probe.base_loss - probe.wider_loss
    by_depth, by_width = max(0.0, depth_gradient), max(0.0, width_gradient)
    if not by_depth and not by_width:
        raise ConfigError(
            "one loss at least must be below the base loss, got base "
            f"{probe.base_loss}, deeper {probe.deeper_loss}, wider {probe.wider_loss}; neither "
            "depth nor width helps: train longer, or look at dropout and data first"
        )

    def ratio(alpha: int) -> float:
        return _ratio(probe, probe.depth + alpha * by_depth, probe.width + alpha * by_width)

    # The authors search alpha below 2 * beta / min(gradient), which is too short for deep models
    # or a single gradient. The ratio is a parabola in alpha, so the best is beside the place where
    # it crosses beta: square * alpha^2 + linear * alpha = missing.
    square = by_depth * by_width
    linear = probe.depth * by_width + (2 + probe.width) * by_depth
    missing = (beta - 1) * probe.depth * (2 + probe.width)
    crossing = 2 * missing / (linear + math.sqrt(linear**2 + 4 * square * missing))
    below = math.floor(crossing)
    alpha = min((below, below + 1), key=lambda a: abs(beta - ratio(a)))

    exact_depth, exact_width = probe.depth + alpha * by_depth, probe.width + alpha * by_width
    depth = math.floor(exact_depth + 0.5)
    width = math.floor(exact_width + 0.5) if by_width else probe.width
    return Scaling(
        depth_gradient=depth_gradient,
        width_gradient=width_gradient,
        alpha=alpha,
        exact_depth=exact_depth,
        exact_width=exact_width,
        depth=depth,
        width=width,
        parameter_ratio=_ratio(probe, depth, width),
    )


def read_probe(base: Path, deeper: Path, wider: Path) -> Probe:
    """Read a probe from three runs of joint models: their recipes and lowest losses.

    Raises ConfigError if the second differs from the first by more or less than one joint layer
    (PreNet layers may differ too), or the third by more or less than model_dim in ffn_dim, and a
    TrainingError if a run cannot be read.
    """
    model = _joint_model(base)
    other = _joint_model(deeper)
    wanted: ModelConfig = replace(
        model,
        num_decoder_layers=model.num_decoder_layers + 1,
        num_encoder_layers=other.num_encoder_layers,
    )
    _check_model(deeper, other, wanted)
    wanted = replace(model, ffn_dim=model.ffn_dim + model.model_dim)
    _check_model(wider, _joint_model(wider), wanted)
    return Probe(
        depth=model.num_decoder_layers,
        width=model.ffn_dim / model.model_dim,
        base_loss=lowest_validation_loss(base),
        deeper_loss=lowest_validation_loss(deeper),
        wider_loss=lowest_validation_loss(wider),
    )


def _joint_model(run: Path) -> JointConfig:
    model = read_run_recipe(run).model
    if not isinstance(model, JointConfig):
        raise ConfigError(
            f"{run}: model.architecture must be 'joint', whose parameters the rule counts, "
            f"got {model.architecture!r}"
        )
    return model


def _check_model(run: Path, found: ModelConfig, wanted: ModelConfig) -> None:
    for name, value in vars(wanted).items():
        if getattr(found, name) != value:
            raise ConfigError(
                f"{run}: model.{name} must be {value} beside this base run, got "
                f"{getattr(found, name)}; give the base run, the one with a layer more, and the "
                "one whose ffn_dim is larger by model_dim"
            )


def _check(probe: Probe, beta: float) -> None:
    if probe.depth < 1:
        raise ConfigError(f"depth must be >= 1, got {probe.depth}")
    if not 0 < probe.width < math.inf:
        raise ConfigError(f"width must be > 0, got {probe.width}")
    if not 1 < beta < math.inf:
        raise ConfigError(f"beta must be > 1, got {beta}")
    for name in ("base_loss", "deeper_loss", "wider_loss"):
        if not math.isfinite(getattr(probe, name)):
            raise ConfigError(f"{name} must be a finite number, got {getattr(probe, name)}")


def _ratio(probe: Probe, depth: float, width: float) -> float:
    """The parameters at that size divided by those of the base model."""
    return depth * (2 + width) / (probe.depth * (2 + probe.width))
