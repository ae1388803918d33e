"""The layers of one side of a model: how often each runs, and which are dropped.

Shape letters: B rows, T positions, D model, N layers or steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Stack(nn.ModuleList):
    """Layers that run one after the other. If there are fewer than `depth`, they run in turns; a
    Universal Transformer shares one layer.

    In training a layer may be dropped, for all rows alike and without a replacement (LayerDrop; Fan
    et al. 2019, "Reducing Transformer Depth on Demand with Structured Dropout").
    """

    def __init__(
        self, layers: Iterable[nn.Module], depth: int, rate: float, *, learns_rates: bool = False
    ) -> None:
        """`rate` is the probability of dropping a layer; for a stack that learns its rates it is
        their mean."""
        super().__init__(layers)
        self.depth, self.rate = depth, rate
        self.ponder_BT: Tensor | None = None
        """Steps of each position in training, and the remainder at its last step, if positions
        halt."""
        self.register_parameter("keep_logits", None)
        if learns_rates and rate:
            self.keep_logits = nn.Parameter(torch.zeros(depth))

    def layer(self, number: int) -> nn.Module:
        """The layer at this place."""
        return self[number % len(self)]

    def running(self) -> list[int]:
        """The places of the layers that run this time: all except those dropped in training."""
        if not self.training or self.rate == 0.0:
            return list(range(self.depth))
        kept = self.keep_rates().tolist()
        return [number for number, at in enumerate(torch.rand(self.depth)) if at < kept[number]]

    def keep_rates(self) -> Tensor:
        """The probability [N] with which each layer runs."""
        if self.keep_logits is None:
            return torch.full((self.depth,), 1.0 - self.rate)
        shares_N = self.keep_logits.softmax(0) * self.depth
        return (shares_N * (1.0 - self.rate)).clamp_max(1.0)

    def weigh(self, number: int, before: Tensor, after: Tensor) -> Tensor:
        """The state after a layer. If rates are learnt, the layer's contribution is unchanged, and
        its gradient moves the rate in proportion to how much the layer helps (the straight-through
        estimator of Bengio et al. 2013)."""
        if self.keep_logits is None or not self.training:
            return after
        rate = self.keep_rates()[number]
        return before + (after - before) * (1.0 + rate - rate.detach())

    def run(
        self,
        x_BTD: Tensor,
        inputs: Sequence[tuple[Any, ...]],
        call: Callable[..., Tensor],
        signal: Callable[[int], Tensor] | None = None,
        halting: Halting | None = None,
    ) -> Tensor:
        """The state after all layers. `call` runs one layer on a state and its part of `inputs`. A
        `signal` may be added before each layer, [1 or B,T,D] by place. With `halting` a position
        may end early."""
        state_BTD = x_BTD
        halted = None if halting is None else Halted(halting, x_BTD, self.depth)
        for number in self.running():
            x_BTD = state_BTD if signal is None else state_BTD + signal(number)
            after_BTD = call(self.layer(number), x_BTD, *inputs[number])
            after_BTD = self.weigh(number, x_BTD, after_BTD)
            if halted is None:
                state_BTD = after_BTD
            else:
                state_BTD = halted.step(number, x_BTD, state_BTD, after_BTD)
        if halted is None:
            return state_BTD
        if self.training:
            self.ponder_BT = halted.ponder_BT1.squeeze(-1)
        return halted.mean_BTD


class Halting(nn.Module):
    """Predicts the halting probability of each position (Graves 2016, "Adaptive Computation Time
    for Recurrent Neural Networks", equation 5, by Dehghani et al. 2018)."""

    def __init__(self, model_dim: int, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold
        self.weight = nn.Parameter(torch.randn(model_dim) * model_dim**-0.5)
        self.bias = nn.Parameter(torch.ones(1))  # few steps at first, as in tensor2tensor

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Probabilities [B,T,1], in fp32 or more."""
        x_BT1 = (x_BTD * self.weight).sum(-1, keepdim=True) + self.bias
        return x_BT1.to(exact_type(x_BTD)).sigmoid()


class Halted:
    """The halting state of the positions of one batch.

    A position halts when its probabilities sum to more than the threshold, at the last step at the
    latest. From there on its state is copied, as in the text of Dehghani et al. 2018 (their code
    transforms it further for others to see). The output is the mean of its states, weighted by the
    probabilities and, at the last step, by the remainder (Graves 2016, equations 6 to 8).
    """

    def __init__(self, halting: Halting, x_BTD: Tensor, depth: int) -> None:
        self._halting, self._last = halting, depth - 1
        self._sum_BT1 = torch.zeros_like(x_BTD[..., :1], dtype=exact_type(x_BTD))
        self.mean_BTD = torch.zeros_like(x_BTD)
        self.ponder_BT1 = self._sum_BT1

    def step(self, number: int, x_BTD: Tensor, before_BTD: Tensor, after_BTD: Tensor) -> Tensor:
        """The state after a step; `x` is the layer's input."""
        runs_BT1 = self._sum_BT1 < 1.0
        probability_BT1 = self._halting(x_BTD)
        sum_BT1 = self._sum_BT1 + probability_BT1
        halts_BT1 = runs_BT1 & (sum_BT1 > self._halting.threshold)
        if number == self._last:
            halts_BT1 = runs_BT1
        left_BT1 = 1.0 - self._sum_BT1
        weight_BT1 = torch.where(halts_BT1, left_BT1, probability_BT1) * runs_BT1
        self.ponder_BT1 = self.ponder_BT1 + runs_BT1 + left_BT1 * halts_BT1
        self.mean_BTD = self.mean_BTD + after_BTD * weight_BT1
        ended_BT1 = halts_BT1 | ~runs_BT1
        self._sum_BT1 = torch.where(ended_BT1, torch.ones_like(sum_BT1), sum_BT1)
        return torch.where(runs_BT1, after_BTD, before_BTD)


def exact_type(x: Tensor) -> torch.dtype:
    """The type in which probabilities are summed."""
    return torch.promote_types(x.dtype, torch.float32)
