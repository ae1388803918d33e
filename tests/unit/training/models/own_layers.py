"""Blocks of one's own, whose decoder layers look back along a hypothesis."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.models.blocks import DecoderLayer, EncoderLayer
from training.models.configs.common import ModelConfig
from training.models.configs.transformer import TransformerConfig
from training.models.context import AttentionContext, CacheContext, StepNeeds, needs_of

WIDTH = 5


class Convolution(nn.Module):
    """Keeps states that are narrower than the model."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dim = config.model_dim // 2
        self.needs = StepNeeds(states=(dim,), ancestors=WIDTH)
        self.down, self.up = nn.Linear(config.model_dim, dim), nn.Linear(dim, config.model_dim)
        self.kernel = nn.Parameter(torch.randn(WIDTH, dim))

    def decode(self, x_BQD: Tensor, context: CacheContext) -> Tensor:
        narrow = self.down(x_BQD)
        return self.up(narrow + (context.look_back(narrow, WIDTH) * self.kernel).sum(2))


class Recurrence(nn.Module):
    """A gated recurrence whose state is wider than the model."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dim = config.model_dim + 4
        self.needs = StepNeeds(states=(self.dim,), ancestors=1, recurrent=True)
        self.gates = nn.Linear(config.model_dim, 2 * self.dim)
        self.down = nn.Linear(self.dim, config.model_dim)

    def decode(self, x_BQD: Tensor, context: CacheContext) -> Tensor:
        return self.down(context.recur(self._cell, self.gates(x_BQD), self.dim))

    @staticmethod
    def _cell(gates: Tensor, parent: Tensor) -> Tensor:
        kept, new = gates.chunk(2, dim=-1)
        kept = kept.sigmoid()
        return kept * parent + (1 - kept) * new.tanh()


class ConvolutionLayer(DecoderLayer):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.self_attention = Convolution(config)


class MixedLayer(DecoderLayer):
    """Attention, a recurrence and a convolution, and a sum of the positions that are seen."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.recurrence, self.convolution = Recurrence(config), Convolution(config)
        self.needs = sum(map(needs_of, self.children()), StepNeeds(slot_positions=True))

    def forward(self, x_BQD: Tensor, context: AttentionContext) -> Tensor:
        x_BQD = super().forward(x_BQD, context)
        x_BQD = x_BQD + self.recurrence.decode(x_BQD, context)
        x_BQD = x_BQD + self.convolution.decode(x_BQD, context)
        return x_BQD + 0.02 * self._seen(x_BQD, context).unsqueeze(-1)

    @staticmethod
    def _seen(x_BQD: Tensor, context: AttentionContext) -> Tensor:
        if not context.cached:
            return torch.arange(x_BQD.shape[1]).cumsum(0)[None]
        assert context.visible is not None
        assert context.slot_positions is not None
        seen_BQC = (context.visible[:, 0] == 0) * context.slot_positions[:, None]
        return seen_BQC.sum(-1)


class Forgetful(DecoderLayer):
    """Says that it keeps two states, and keeps one."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.self_attention = Convolution(config)
        self.needs = self.self_attention.needs + StepNeeds(states=(3,))


CONVOLUTION = (EncoderLayer, ConvolutionLayer)
MIXED = (EncoderLayer, MixedLayer)
FORGETFUL = (EncoderLayer, Forgetful)
