"""Int8 arithmetic: activations (u8, with one static scale or one for each row) times weights (s8).

Activations of 16 bits are two numbers of 8 bits, each with a scale for each row: the rounded row,
and the rest that rounding leaves. Their products with the weights are added up.

Only this module computes the numbers; the ONNX lowering and the PyTorch twin both use it. Shape
letters: M rows, K inputs, N outputs.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from serving.bundle.manifest import Activations
from training.models import Network
from training.models.sublayers.embedding import TokenEmbedding
from training.models.sublayers.norms import ScaleNorm

ModuleT = TypeVar("ModuleT", bound=nn.Module)

LEVELS = 127.0
SMALLEST = 1e-8
"""Smallest absolute maximum of a row, so that a row of zeros has a scale."""
ZERO_POINT = 128
_JITTER = 2e-7
"""Relative; fp32 leaves the norms of a deep Macaron off by 0.7e-7 in the first layer to 4e-7 in the
last, against fp64."""
_EXACT = 1 << 24
"""Integers of that size and less are fp32 numbers, and so are all sums on the way to one."""
_ON_LEVEL = 1e-3
"""Tolerance as a share of the distance between two levels: weights that are so near to a level were
made from it."""


def run_watched(run: Callable[[], object], hooks: Iterable[RemovableHandle]) -> None:
    """Call `run` without gradients, and then remove the hooks that have watched it."""
    with torch.no_grad():
        run()
    for hook in hooks:
        hook.remove()


def quantize_columns(
    weight_KN: NDArray[np.float32],
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantise weights [K,N] to int8 with one scale per column [N]; weights that were int8 before
    are unchanged."""
    peak_N = np.maximum(np.abs(weight_KN).max(axis=0), SMALLEST)
    scale_N = peak_N / _own_levels(weight_KN, peak_N)
    quantized = np.clip(np.rint(weight_KN / scale_N), -LEVELS, LEVELS).astype(np.int8)
    return quantized, scale_N.astype(np.float32)


def _own_levels(weight_KN: NDArray[np.float32], peak_N: NDArray[np.float32]) -> NDArray[np.float32]:
    """The number of levels [N] up to each column's peak: the fewest levels that hold all its
    weights, or, nearly always, all levels."""
    levels_N = np.full(len(peak_N), LEVELS, dtype=np.float32)
    fewer_L = np.arange(1, LEVELS, dtype=np.float32)
    for begin in range(0, len(peak_N), 256):
        part = slice(begin, begin + 256)
        weights, factors_LN = weight_KN[:, part], fewer_L[:, None] / peak_N[part]
        # The first few rows decide nearly all columns.
        fitting_LN = np.logical_and.reduce(_on_levels(weights[:8] * factors_LN[:, None]), axis=1)
        for column in np.flatnonzero(fitting_LN.any(axis=0)):
            for level in np.flatnonzero(fitting_LN[:, column]):
                if _on_levels(weights[:, column] * factors_LN[level, column]).all():
                    levels_N[begin + column] = fewer_L[level]
                    break
    return levels_N


def _on_levels(steps: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Whether each number is whole, but for `_ON_LEVEL`."""
    found: NDArray[np.bool_] = np.abs(steps - np.rint(steps)) < _ON_LEVEL
    return found


def weight_key(weight_KN: NDArray[np.generic]) -> bytes:
    """The key of a product: a hash of its int8 weights, which stay the same if a factor is folded
    into their scales, or of fp32 weights before anything was folded into them."""
    return hashlib.sha256(np.ascontiguousarray(weight_KN).tobytes()).digest()


@dataclass(frozen=True)
class StaticRange:
    """The range of the inputs of one product, from which one scale for all of them follows."""

    peak: float
    """Largest absolute value; larger values are cut off."""
    signed: bool
    """Whether values can be negative. If not, all 255 levels above zero are used for positive
    ones."""

    @property
    def scale(self) -> np.float32:
        """The size of one level: a value is its level less the zero point, times this."""
        levels = LEVELS if self.signed else 255.0
        return np.float32(max(self.peak, SMALLEST)) * np.float32(1 / levels)

    @property
    def zero_point(self) -> int:
        """The level that stands for zero."""
        return ZERO_POINT if self.signed else 0


@dataclass(frozen=True)
class Products:
    """The number types that the products of a bundle read, as far as the precision leaves a choice.
    Products are named by the keys of their weights."""

    ranges: Mapping[bytes, StaticRange] | None = None
    """The ranges of the int8 products with static activations; None if no product has them."""
    exact: frozenset[bytes] = frozenset()
    """The products that stay fp32 in a bundle of int8 or fp16."""
    wide: bool = False
    """Whether activations in int8 have 16 bits; then there are no ranges."""

    @property
    def activations(self) -> Activations:
        """The kind of activations, as named in a manifest."""
        if self.wide:
            return "row16"
        return "row" if self.ranges is None else "static"


ALIKE = Products()
"""Products that all follow the precision."""


class QuantizedLinear(nn.Module):
    """The int8 lowering of a Linear, computed in PyTorch."""

    def __init__(self, weight_NK: Tensor, bias: Tensor | None, *, wide: bool = False) -> None:
        super().__init__()
        quantized, scale = quantize_columns(weight_NK.detach().numpy().T)
        self.key = weight_key(quantized)
        self.register_buffer("weight_KN", torch.from_numpy(quantized).float())
        self.register_buffer("scale_N", torch.from_numpy(scale))
        self.weight_NK, self.bias = weight_NK.detach(), bias
        self.range: StaticRange | None = None
        """The static range of the inputs; None gives each row its own scale."""
        self.wide = wide
        """Whether activations have 16 bits."""
        self.exact = False
        """Whether the product is computed in fp32 after all."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] to [..., N]."""
        if self.exact:
            return nn.functional.linear(x, self.weight_NK, self.bias)
        rows, scale = self._rounded(x)
        out = self._product(rows, scale)
        if self.wide:
            out = out + self._product(*self._rounded(x - rows * scale))
        return out if self.bias is None else out + self.bias

    def _rounded(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Levels less their zero point, and their scale or the scale of each row."""
        if self.range is None:
            peaks, zero_point = x.abs().amax(-1, keepdim=True).clamp_min(SMALLEST), ZERO_POINT
            scale = peaks * float(np.float32(1 / LEVELS))
        else:
            scale, zero_point = torch.tensor(self.range.scale), self.range.zero_point
        return (x / scale).round().clamp(-zero_point, 255 - zero_point), scale

    def _product(self, rows: Tensor, scale: Tensor) -> Tensor:
        """The product, exact except for the last rounding: it is split into parts with so few
        inputs that fp32 holds each sum of integers, and the parts are added in float64."""
        assert isinstance(self.weight_KN, Tensor)
        assert isinstance(self.scale_N, Tensor)
        zero_point = ZERO_POINT if self.range is None else self.range.zero_point
        inputs = _EXACT // int(max(zero_point, 255 - zero_point) * LEVELS)
        pieces = torch.split(rows, inputs, -1), torch.split(self.weight_KN, inputs)
        products = [part @ weight for part, weight in zip(*pieces, strict=True)]
        whole = products[0]
        if len(products) > 1:
            whole = torch.stack(products).double().sum(0).float()
        scaled: Tensor = whole * (scale * self.scale_N)
        return scaled


def quantized_twin(model: ModuleT, *, wide: bool = False) -> ModuleT:
    """A copy of a model whose linear layers and embeddings compute as the int8 bundle does. With
    `wide`, activations have 16 bits."""
    twin = copy.deepcopy(model).eval()
    for name, module in list(twin.named_modules()):
        if isinstance(module, nn.Linear):
            parent = twin.get_submodule(name.rpartition(".")[0])
            product = QuantizedLinear(module.weight, module.bias, wide=wide)
            setattr(parent, name.rpartition(".")[2], product)
    if isinstance(twin, Network):
        twin.replace_output(QuantizedLinear(twin.output_weight, twin.output_bias, wide=wide))
    for module in twin.modules():
        if isinstance(module, TokenEmbedding):
            module.replace(_quantized_rows(module.vectors))
        elif isinstance(module, nn.Embedding):
            module.weight = nn.Parameter(_quantized_rows(module.weight))
    return twin


@torch.no_grad()
def jittered(twin: ModuleT, seed: int = 0) -> ModuleT:
    """A copy of a twin whose norms have errors as large as those of rounding."""
    copied = copy.deepcopy(twin)
    generator = torch.Generator().manual_seed(seed)
    for module in copied.modules():
        if isinstance(module, nn.LayerNorm | nn.RMSNorm | ScaleNorm) and module.weight is not None:
            noise = torch.randn(module.weight.shape, generator=generator)
            module.weight.mul_(1.0 + _JITTER * noise)
    return copied


def _quantized_rows(table_VD: Tensor) -> Tensor:
    """A table in the form that the int8 lowering looks up, with one scale per row."""
    quantized, scale = quantize_columns(table_VD.detach().numpy().T)
    return torch.from_numpy((quantized * scale).T.copy())
