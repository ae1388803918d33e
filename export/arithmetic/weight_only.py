"""Weights of int8 with activations of fp16 (W8A16), in the form that ONNX Runtime's MatMulNBits
reads.

Only this module computes the numbers; the ONNX pass, the PyTorch twin and the reference all use it.
Shape letters: K inputs, N outputs, G blocks of K, W inputs of a block.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK = 32
"""Inputs that share a scale: the smallest block that all kernels of MatMulNBits on a GPU take."""
BITS = 8
LEVELS = 127
ZERO_POINT = 128
"""The level of zero, if the operator has no zero point."""


def fits(weight_KN: NDArray[np.generic]) -> bool:
    """Whether a matrix can be cut into blocks."""
    return weight_KN.ndim == 2 and weight_KN.shape[0] % BLOCK == 0


def quantize_blocks(
    weight_KN: NDArray[np.float16],
) -> tuple[NDArray[np.uint8], NDArray[np.float16]]:
    """Quantise fp16 weights to levels [N,G,W] and the scale of each block [N,G], also in fp16."""
    blocks_NGW = weight_KN.T.reshape(weight_KN.shape[1], -1, BLOCK).astype(np.float32)
    scale_NG = (np.abs(blocks_NGW).max(axis=-1) / LEVELS).astype(np.float16)
    # A block of zeros, or of numbers too small for a scale, is zero whatever it is divided by.
    divisor_NG = np.where(scale_NG > 0, scale_NG, 1).astype(np.float32)
    levels_NGW = np.clip(np.rint(blocks_NGW / divisor_NG[..., None]), -LEVELS, LEVELS)
    return (levels_NGW + ZERO_POINT).astype(np.uint8), scale_NG


def dequantize_blocks(
    levels_NGW: NDArray[np.uint8], scale_NG: NDArray[np.float16]
) -> NDArray[np.float16]:
    """The weights [K,N] from levels and scales, rounded to fp16 as the operator does."""
    signed_NGW = levels_NGW.astype(np.float32) - ZERO_POINT
    weight_NK = (signed_NGW * scale_NG[..., None]).astype(np.float16).reshape(len(levels_NGW), -1)
    return np.ascontiguousarray(weight_NK.T)
