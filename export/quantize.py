"""Int8 arithmetic: per-row activations (u8, zero point 128) times per-column weights (s8).

The numbers live here alone; the ONNX lowering and the PyTorch twin both take them from here.
Shape letters: M rows, K inputs, N outputs.
"""

from __future__ import annotations

import copy
import hashlib
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.models import Network
from training.models.embedding import TokenEmbedding

NetworkT = TypeVar("NetworkT", bound=Network)

LEVELS = 127.0
SMALLEST = 1e-8
"""Least absolute maximum, so that a row of zeros has a scale."""
ZERO_POINT = 128


def quantize_columns(
    weight_KN: NDArray[np.float32],
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Weights [K,N] to int8 and one scale a column [N]."""
    scale_N = np.maximum(np.abs(weight_KN).max(axis=0), SMALLEST) / np.float32(LEVELS)
    quantized = np.clip(np.rint(weight_KN / scale_N), -LEVELS, LEVELS).astype(np.int8)
    return quantized, scale_N.astype(np.float32)


def weight_key(weight_s8_KN: NDArray[np.int8]) -> bytes:
    """Names a product by its int8 weights, which a scalar factor folded into it does not change."""
    return hashlib.sha256(np.ascontiguousarray(weight_s8_KN).tobytes()).digest()


def activation_scale(peak: float) -> np.float32:
    """The scale under which values up to `peak` use all levels."""
    return np.float32(max(peak, SMALLEST)) * np.float32(1 / LEVELS)


class QuantizedLinear(nn.Module):
    """What the int8 lowering of a Linear computes, in PyTorch."""

    def __init__(self, weight_NK: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        quantized, scale = quantize_columns(weight_NK.detach().numpy().T)
        self.key = weight_key(quantized)
        self.register_buffer("weight_KN", torch.from_numpy(quantized).to(torch.float64))
        self.register_buffer("scale_N", torch.from_numpy(scale))
        self.bias = bias
        self.peak: float | None = None
        """Static activations: the largest absolute value. None: each row has a scale of its own."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] to [..., N]."""
        assert isinstance(self.weight_KN, Tensor)
        assert isinstance(self.scale_N, Tensor)
        if self.peak is None:
            peaks = x.abs().amax(-1, keepdim=True).clamp_min(SMALLEST)
            scale = peaks * float(np.float32(1 / LEVELS))
        else:
            scale = torch.tensor(activation_scale(self.peak))
        rows = (x / scale).round().clamp(-ZERO_POINT, 255 - ZERO_POINT)
        product: Tensor = (rows.double() @ self.weight_KN).float()  # exact: integers below 2^53
        out: Tensor = product * (scale * self.scale_N)
        return out if self.bias is None else out + self.bias


def quantized_twin(model: NetworkT) -> NetworkT:
    """A copy of a model whose linear layers and embeddings compute as the int8 bundle does."""
    twin = copy.deepcopy(model).eval()
    for name, module in list(twin.named_modules()):
        if isinstance(module, nn.Linear):
            parent = twin.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], QuantizedLinear(module.weight, module.bias))
    output = QuantizedLinear(twin.output_weight, twin.output_bias)
    twin.add_module("quantized_output", output)
    twin.output_logits = output.__call__  # type: ignore[method-assign]
    for module in twin.modules():
        if isinstance(module, TokenEmbedding):
            quantized, scale = quantize_columns(module.weight.detach().numpy().T)
            module.weight = nn.Parameter(torch.from_numpy((quantized * scale).T.copy()))
    return twin
