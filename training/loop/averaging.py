"""An exponential moving average of a model's weights, kept while it trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """The average of a model's parameters over its updates, in their own precision (fp32).

    After update `step` it moves towards the parameters by 1 - d, where d is the decay, or less in
    the first updates: min(decay, (1 + step) / (10 + step)), so that it forgets the weights that
    training began with.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._model, self._decay = model, decay
        self.tensors: dict[str, Tensor] = {
            name: parameter.detach().clone() for name, parameter in model.named_parameters()
        }

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the parameters as update `step` (from 1) has left them."""
        decay = min(self._decay, (1 + step) / (10 + step))
        trained = [parameter.detach() for parameter in self._model.parameters()]
        torch._foreach_lerp_(list(self.tensors.values()), trained, 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within the block the model computes with the average; nothing may be trained there."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for name, parameter in self._model.named_parameters():
            parameter.data, self.tensors[name] = self.tensors[name], parameter.data
