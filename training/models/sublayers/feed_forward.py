"""The feed-forward network, applied to each position separately."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from training.models.dropout import Dropout
from training.models.sublayers.attention import init_linear

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
    "gelu_tanh": partial(nn.functional.gelu, approximate="tanh"),
    "silu": nn.functional.silu,
}
_GATES = {"reglu": "relu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "swiglu": "silu"}


def activation_of(name: str) -> Callable[[Tensor], Tensor]:
    """The activation with a name, without its gate."""
    return _ACTIVATIONS[_GATES.get(name, name)]


class FeedForward(nn.Module):
    """Linear, activation, Linear (Vaswani et al. 2017, equation 2, with ReLU).

    GELU is the exact one, by the error function (Hendrycks and Gimpel 2016), `gelu_tanh` its
    approximation (section 2 there), SiLU x * sigmoid(x). `reglu`, `geglu`, `geglu_tanh` and
    `swiglu` multiply the activation of one product by another (Shazeer 2020, equation 6, with
    biases by default): `up_proj` holds the rows of the gate, then those of the other. A second
    hidden layer comes between, if configured (Lu et al. 2019, table 3: "no residual").
    """

    def __init__(
        self,
        model_dim: int,
        ffn_dim: int,
        dropout: Dropout,
        activation: str = "relu",
        hidden_layers: int = 1,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.is_gated = activation in _GATES
        self.activation = activation_of(activation)
        wide = (2 if self.is_gated else 1) * ffn_dim
        self.up_proj = nn.Linear(model_dim, wide, bias=bias)
        self.down_proj = nn.Linear(ffn_dim, model_dim, bias=bias)
        self.inner_proj = nn.Linear(ffn_dim, wide, bias=bias) if hidden_layers == 2 else None
        self.dropout = dropout
        init_linear(self.up_proj, self.down_proj)
        widening = [self.up_proj]
        if self.inner_proj is not None:
            init_linear(self.inner_proj)
            widening.append(self.inner_proj)
        if self.is_gated:  # each half begins as a matrix of its own
            for layer in widening:
                for weight in layer.weight.detach().chunk(2):
                    nn.init.xavier_uniform_(weight)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Widen the last axis to `ffn_dim` and back; the others are kept."""
        x = self._activate(self.up_proj(x_BTD))
        if self.inner_proj is not None:
            x = self._activate(self.inner_proj(x))
        return self.down_proj(x)

    def _activate(self, x: Tensor) -> Tensor:
        if not self.is_gated:
            return self.dropout(self.activation(x))
        gate, x = x.chunk(2, dim=-1)
        return self.dropout(self.activation(gate) * x)
