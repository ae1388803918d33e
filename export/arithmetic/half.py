"""16-bit arithmetic: its types, the computation of a model in them, and the products that are too
large for one.

Shape letters: K inputs, N outputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor, nn

from export.arithmetic.quantize import ModuleT, run_watched, weight_key
from export.arithmetic.weight_only import dequantize_blocks, fits, quantize_blocks
from serving.bundle.graph import DType
from training.models import Network


@dataclass(frozen=True)
class HalfType:
    """A 16-bit floating-point type by its names, and the type in which weights are stored."""

    torch: torch.dtype
    onnx: int
    manifest: DType
    int8_weights: bool = False
    """Whether products read their weights in blocks of int8 (`export.arithmetic.weight_only`)."""


HALF_TYPES = {
    "fp16": HalfType(torch.float16, TensorProto.FLOAT16, "float16"),
    "bf16": HalfType(torch.bfloat16, TensorProto.BFLOAT16, "bfloat16"),
    "w8a16": HalfType(torch.float16, TensorProto.FLOAT16, "float16", int8_weights=True),
}
"""The 16-bit types by precision."""
LARGEST_FP16 = 65504.0
MARGIN = 0.25
"""Share of the largest number of fp16. A product that exceeds it on the held-out text stays fp32,
because other text may give larger values."""


class RoundedLinear(nn.Module):
    """The 16-bit lowering of a Linear, computed in PyTorch: inputs, weights and outputs are
    rounded, sums are not."""

    def __init__(self, weight_NK: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.register_buffer("weight_NK", self._rounded(weight_NK.detach()))
        self.register_buffer("bias", None if bias is None else self._rounded(bias.detach()))

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] to [..., N]."""
        assert isinstance(self.weight_NK, Tensor)
        assert self.bias is None or isinstance(self.bias, Tensor)
        out = nn.functional.linear(self._rounded(x), self.weight_NK, self.bias)
        return self._rounded(out)

    def _rounded(self, x: Tensor) -> Tensor:
        return x.to(self.dtype).float()


class BlockLinear(RoundedLinear):
    """The lowering of a Linear with int8 weights, computed in PyTorch: the product is rounded
    before the bias is added."""

    def __init__(self, weight_NK: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        weight_KN = weight_NK.detach().numpy().T.astype(np.float16)
        if fits(weight_KN):
            weight_KN = dequantize_blocks(*quantize_blocks(weight_KN))
        super().__init__(torch.from_numpy(weight_KN.T.astype(np.float32)), bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] to [..., N]."""
        assert isinstance(self.weight_NK, Tensor)
        assert self.bias is None or isinstance(self.bias, Tensor)
        out = self._rounded(nn.functional.linear(self._rounded(x), self.weight_NK))
        return out if self.bias is None else self._rounded(out + self.bias)


def half_twin(model: ModuleT, half: HalfType, exact: frozenset[bytes]) -> ModuleT:
    """A copy of a model that computes as its 16-bit bundle does, except for rounding inside
    attention. The products in `exact` stay fp32, the head if it is among them."""
    twin = copy.deepcopy(model).eval()
    layer = BlockLinear if half.int8_weights else RoundedLinear
    for name, module in list(twin.named_modules()):
        if isinstance(module, nn.Linear) and linear_key(module) not in exact:
            parent = twin.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], layer(module.weight, module.bias, half.torch))
    if isinstance(twin, Network) and head_key(twin) not in exact:
        twin.replace_output(layer(twin.output_weight, twin.output_bias, half.torch))
    return twin


def head_key(model: Network) -> bytes:
    """The key of the product that gives logits, as `linear_key` gives for others."""
    return weight_key(model.output_weight.detach().numpy().T)


def linear_key(linear: nn.Linear) -> bytes:
    """The key of a product: its weights [K,N] in the form that the graph holds."""
    return weight_key(linear.weight.detach().numpy().T)


@dataclass(frozen=True)
class HalfFit:
    """The result of fitting a 16-bit precision to one model."""

    exact: frozenset[bytes]
    """Keys of the products that stay fp32."""
    report: dict[str, Any]
    """Findings for the manifest."""


def fit_half(model: ModuleT, precision: str, run: Callable[[ModuleT], object]) -> HalfFit:
    """Find the products that are too large for fp16, from the numbers in an fp32 model while `run`
    runs.

    bf16 has the range of fp32; no product is too large for it, and `run` is not called.
    """
    if HALF_TYPES[precision].torch is not torch.float16:
        return HalfFit(frozenset(), {})
    model = _with_linear_head(model)
    largest = measure_magnitudes(model, lambda: run(model))
    limit = MARGIN * LARGEST_FP16
    # So written, NaN is too large.
    kept = {name: found for name, found in largest.items() if not found <= limit}
    linears = dict(model.named_modules())
    exact = frozenset(linear_key(linears[name]) for name in kept)
    rounded = {name: float(f"{found:.4g}") for name, found in largest.items()}
    report = {"limit": limit, "magnitudes": rounded, "kept_fp32": sorted(kept)}
    return HalfFit(exact, {"fp16": report})


def measure_magnitudes(model: nn.Module, run: Callable[[], object]) -> dict[str, float]:
    """The largest absolute number of each Linear, by the module's name: among its weights, and its
    inputs and outputs while `run` runs.

    These are all tensors of a graph that can have 16 bits, except for attention's weighted sums of
    values, which are not larger than the values.
    """
    largest: dict[str, float] = {}
    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            largest[name] = max(float(p.detach().abs().max()) for p in module.parameters())
            hooks.append(module.register_forward_hook(_watch(largest, name)))
    run_watched(run, hooks)
    return largest


def _with_linear_head(model: ModuleT) -> ModuleT:
    """A copy of a model whose logits come from a Linear, the submodule `output_layer`, if it has
    logits."""
    copied = copy.deepcopy(model)
    if isinstance(copied, Network):
        vocab_size, width = copied.output_weight.shape
        head = nn.Linear(width, vocab_size, bias=copied.output_bias is not None, device="meta")
        head.weight = nn.Parameter(copied.output_weight.detach())
        head.register_parameter("bias", copied.output_bias)
        copied.replace_output(head)
    return copied


def _watch(largest: dict[str, float], name: str) -> Callable[..., None]:
    def watch(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        for tensor in (inputs[0], output):
            # Through torch, whose maximum is NaN where a number is.
            seen = torch.tensor([largest[name], float(tensor.detach().abs().max())])
            largest[name] = float(seen.max())

    return watch
