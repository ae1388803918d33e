"""GPTQ: weights are rounded to int8 one input after the other, and each makes up for the error of
those before it (Frantar et al. 2022, https://arxiv.org/abs/2210.17323, algorithm 1).

Shape letters: T rows of a text, K inputs, N outputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from export import progress
from export.arithmetic.quantize import LEVELS, SMALLEST, ModuleT, quantize_columns, run_watched
from export.errors import ParityError

DAMPING = 0.01
"""Share of the mean of the Hessian's diagonal that is added to the whole diagonal, as in section
4.1."""
_TOGETHER = 64
"""Number of inputs after which the rest of the error is passed on to later weights; it changes only
the speed."""


def rounded_weights(model: ModuleT, run: Callable[[], object]) -> ModuleT:
    """A copy of a model whose linear layers have weights on the levels of int8. `quantize_columns`
    finds these levels, and the copy is near to the model on the texts of `run`.

    A layer that `run` does not reach stays as it is, and so do weights that are on levels already.
    Raises ParityError if the model gives numbers that are not finite.
    """
    hessians: dict[str, Tensor] = {}
    hooks = [
        module.register_forward_pre_hook(_adding_to(hessians, name))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    ]
    run_watched(run, hooks)
    rounded = copy.deepcopy(model)
    for count, (name, hessian_KK) in enumerate(hessians.items()):
        progress.part(count, len(hessians))
        linear = rounded.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        if not hessian_KK.isfinite().all():
            raise ParityError(f"{name}: its inputs are not finite numbers; no bundle was written")
        weight_KN = round_columns(linear.weight.detach().T.double(), hessian_KK.double())
        linear.weight.data = weight_KN.T.float().contiguous()
    return rounded


def _adding_to(
    hessians: dict[str, Tensor], name: str
) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    def add(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x_TK = inputs[0].detach().flatten(0, -2)
        hessians[name] = hessians.get(name, torch.zeros(())) + x_TK.T @ x_TK

    return add


def round_columns(weight_KN: Tensor, hessian_KK: Tensor) -> Tensor:
    """Round weights [K,N] to levels, with one scale per column. `hessian_KK` is, up to a factor,
    the Hessian of an output's squared error: the sum over rows of the products of each two inputs.
    Both are float64.

    Inputs with the largest sums of squares come first, as long as there are others to make up for
    them.
    """
    sizes_K = hessian_KK.diagonal()
    order_K = torch.argsort(sizes_K, descending=True, stable=True)
    damped_KK = hessian_KK[order_K][:, order_K]
    damped_KK.diagonal().add_(DAMPING * sizes_K.mean() + SMALLEST)
    inverse_KK = torch.cholesky_inverse(torch.linalg.cholesky(damped_KK))
    upper_KK = torch.linalg.cholesky(inverse_KK, upper=True)
    scale_N = torch.from_numpy(quantize_columns(weight_KN.float().numpy())[1]).double()
    left_KN, rounded_KN = weight_KN[order_K], torch.empty_like(weight_KN)
    for start in range(0, len(left_KN), _TOGETHER):
        end = min(start + _TOGETHER, len(left_KN))
        errors = []
        for k in range(start, end):
            rounded_N = (left_KN[k] / scale_N).round().clamp(-LEVELS, LEVELS) * scale_N
            rounded_KN[order_K[k]] = rounded_N
            errors.append((left_KN[k] - rounded_N) / upper_KK[k, k])
            left_KN[k + 1 : end] -= upper_KK[k, k + 1 : end, None] * errors[-1]
        left_KN[end:] -= upper_KK[start:end, end:].T @ torch.stack(errors)
    return rounded_KN
