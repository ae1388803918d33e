"""The layers of one side of a model: how often they run, and which are left out.

Shape letters: B rows, T positions, D model, N layers or steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Stack(nn.ModuleList):
    """Layers that run one after the other, or, where there are fewer of them than `depth`, by
    turns: the weights of a Universal Transformer are those of one layer.

    In training each may be left out, for all rows alike and with nothing in its place (LayerDrop;
    Fan et al. 2019, "Reducing Transformer Depth on Demand with Structured Dropout").
    """

    def __init__(
        self, layers: Iterable[nn.Module], depth: int, rate: float, *, learns_rates: bool = False
    ) -> None:
        """`rate` is the probability with which a layer is left out; a stack that learns its rates
        has it in the mean."""
        super().__init__(layers)
        self.depth, self.rate = depth, rate
        self.ponder_BT: Tensor | None = None
        """Where positions halt, steps of each in training, and what was left at the last one."""
        self.register_parameter("keep_logits", None)
        if learns_rates and rate:
            self.keep_logits = nn.Parameter(torch.zeros(depth))

    def layer(self, number: int) -> nn.Module:
        """The layer that runs at this place."""
        return self[number % len(self)]

    def running(self) -> list[int]:
        """The places whose layers run this time: all but those that training leaves out."""
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
        """The state behind a layer that has run. Where rates are learnt, what the layer adds counts
        as much as ever, and its gradient moves the rate by how much that helps (the
        straight-through estimator of Bengio et al. 2013)."""
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
        """The state behind all layers. `call` runs one on a state and its part of `inputs`; before
        each a `signal` may be added, [1 or B,T,D] by the layer's place. With `halting` a position
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
    """The unit that says how near a position is to its last step (Graves 2016, "Adaptive
    Computation Time for Recurrent Neural Networks", equation 5, by Dehghani et al. 2018)."""

    def __init__(self, model_dim: int, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold
        self.weight = nn.Parameter(torch.randn(model_dim) * model_dim**-0.5)
        self.bias = nn.Parameter(torch.ones(1))  # few steps at first, as in tensor2tensor

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Probabilities [B,T,1], in fp32 at least."""
        x_BT1 = (x_BTD * self.weight).sum(-1, keepdim=True) + self.bias
        return x_BT1.to(exact_type(x_BTD)).sigmoid()


class Halted:
    """How far the positions of one batch have come.

    A position whose probabilities sum to more than the threshold halts, at the last step each does.
    Its state is copied from there on, as the text of Dehghani et al. 2018 has it (their code goes
    on to transform it for others to see), and what comes out is the mean of its states, weighted by
    the probabilities and at last by what is left of one (Graves 2016, equations 6 to 8).
    """

    def __init__(self, halting: Halting, x_BTD: Tensor, depth: int) -> None:
        self._halting, self._last = halting, depth - 1
        self._sum_BT1 = torch.zeros_like(x_BTD[..., :1], dtype=exact_type(x_BTD))
        self.mean_BTD = torch.zeros_like(x_BTD)
        self.ponder_BT1 = self._sum_BT1

    def step(self, number: int, x_BTD: Tensor, before_BTD: Tensor, after_BTD: Tensor) -> Tensor:
        """The state after a step, of which `x` was what the layer read."""
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
