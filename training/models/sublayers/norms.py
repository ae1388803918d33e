"""Norms: this module makes all norms of a model, as configured.

Shape letters: D model, B rows, Q queries, P heads of queries, keys and values together, W those of
queries or keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from training.models.configs.common import ModelConfig
from training.models.configs.language_model import LanguageModelConfig
from training.models.operators import reshape


class ScaleNorm(nn.Module):
    """g * x / max(|x|, eps), whose only gain g starts at sqrt(D) (Nguyen and Salazar 2019). `eps`
    is a lower bound of the length, as in the authors' code, and is not added to it."""

    def __init__(self, model_dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.full((1,), math.sqrt(model_dim)))

    def forward(self, x: Tensor) -> Tensor:
        """[...,D] to [...,D], each row of length g."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x * (self.weight / length.clamp_min(self.eps))


class OutputScale(nn.Module):
    """A learnt factor, 1 at first, of the states that the output matrix multiplies."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """The input times the factor."""
        return x * self.weight


def _scale_norm(model_dim: int, eps: float, affine: bool) -> nn.Module:
    assert affine, "ScaleNorm has a gain"
    return ScaleNorm(model_dim, eps)


_NORMS: dict[str, Callable[[int, float, bool], nn.Module]] = {
    "layer": nn.LayerNorm,
    "rms": nn.RMSNorm,
    "scale": _scale_norm,
}


def make_norm(config: ModelConfig, *places: str) -> nn.Module:
    """A norm of the configured type if `config.norm` is one of `places`, else the identity."""
    return new_norm(config, affine=config.norm_affine) if config.norm in places else nn.Identity()


def new_norm(config: ModelConfig, *, affine: bool = True, width: int | None = None) -> nn.Module:
    """A norm of the configured type over `width` features, by default the model's. With `affine` it
    has gains and biases."""
    return _NORMS[config.norm_type](width or config.model_dim, config.norm_eps, affine)


class QueryKeyNorm(nn.Module):
    """Norms of queries and keys. The gains are for the features of one head, and shared by all
    heads, or for the features of all heads."""

    def __init__(self, config: LanguageModelConfig) -> None:
        super().__init__()
        width = config.head_width
        self.by_head = config.query_key_norm == "head"
        self.counts, self.width = (config.num_heads, config.kv_heads, config.kv_heads), width
        self.query, self.key = (
            new_norm(config, width=width if self.by_head else heads * width)
            for heads in self.counts[:2]
        )

    def forward(self, projected_BQP: Tensor) -> Tensor:
        """Heads of queries, keys and values side by side, [B,Q,P], the first two normalised."""
        sizes = [heads * self.width for heads in self.counts]
        query, key, value = projected_BQP.split(sizes, -1)
        normalised = [
            self._normalise(part, norm, heads)
            for part, norm, heads in zip(
                (query, key), (self.query, self.key), self.counts, strict=False
            )
        ]
        return torch.cat([*normalised, value], -1)

    def _normalise(self, part_BQW: Tensor, norm: nn.Module, heads: int) -> Tensor:
        if not self.by_head:
            return norm(part_BQW)
        rows, queries, wide = part_BQW.shape
        by_head = reshape(part_BQW, (rows, queries, heads, self.width), (0, 0, heads, self.width))
        return reshape(norm(by_head), (rows, queries, wide), (0, 0, wide))


def make_output_norm(config: ModelConfig, *places: str) -> nn.Module:
    """`make_norm` for the states before the output matrix, with their learnt factor if
    configured."""
    norm = make_norm(config, *places)
    return nn.Sequential(norm, OutputScale()) if config.fix_norm_scale else norm
