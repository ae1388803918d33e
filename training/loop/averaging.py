"""An exponential moving average of a model's weights, kept while it trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """Moving average of a model's parameters, in their own precision (fp32).

    Update `step` moves the average towards the parameters by 1 - d, with d = min(decay, (1 + step)
    / (10 + step)): the first updates have a smaller d, so that the initial weights are forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._model, self._decay = model, decay
        self.tensors: dict[str, Tensor] = {
            name: parameter.detach().clone() for name, parameter in model.named_parameters()
        }

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Include the parameters after update `step`, counted from 1."""
        decay = min(self._decay, (1 + step) / (10 + step))
        trained = [parameter.detach() for parameter in self._model.parameters()]
        torch._foreach_lerp_(list(self.tensors.values()), trained, 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Swap the average into the model for the duration of the block. The model must not be
        trained in it."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for name, parameter in self._model.named_parameters():
            parameter.data, self.tensors[name] = self.tensors[name], parameter.data
