"""Token embeddings and sinusoidal positions.

Shape letters: B sentences, T tokens, D model.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from serving.search.ids import PAD_ID
from training.models.dropout import Dropout


def sinusoid(positions: Tensor, dim: int) -> Tensor:
    """Sinusoidal encoding of 0-based positions, [...] -> [..., dim], computed, so length is open.

    Row p is sinusoid(p + 1): sine half, then cosine half, frequency exp(-i ln(10000) / (dim/2 - 1))
    (Vaswani et al. 2017, section 3.5, in tensor2tensor's form, as in CTranslate2).
    """
    half = dim // 2
    index = torch.arange(half, dtype=torch.float32, device=positions.device)
    frequency = torch.exp(index * (-math.log(10000.0) / (half - 1)))
    angle = (positions.to(torch.float32) + 1.0).unsqueeze(-1) * frequency
    return torch.cat([torch.sin(angle), torch.cos(angle)], dim=-1)


def gluon_sinusoid(positions: Tensor, dim: int) -> Tensor:
    """The encoding in the code of "Transformer on a Diet", 0-based positions [...] -> [..., dim].

    Column j of row p is sin (even j) or cos (odd j) of p / 10000^(2j / dim): the exponent counts
    columns where Vaswani et al. count pairs, so no two columns share a frequency.
    """
    column = torch.arange(dim, dtype=torch.float32, device=positions.device)
    frequency = torch.exp(column * (-2.0 * math.log(10000.0) / dim))
    angle = positions.to(torch.float32).unsqueeze(-1) * frequency
    return torch.where(column % 2 == 0, torch.sin(angle), torch.cos(angle))


POSITIONS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sinusoid": sinusoid,
    "gluon": gluon_sinusoid,
}


class TokenEmbedding(nn.Module):
    """Embedding times sqrt(model_dim) plus sinusoids; N(0, model_dim^-0.5), pad row zero."""

    def __init__(
        self,
        vocab_size: int,
        model_dim: int,
        dropout: float,
        *,
        scale_positions: bool = False,
        positions: str = "sinusoid",
    ) -> None:
        """`positions` is a key of `POSITIONS`; with `scale_positions` the factor applies to the
        sinusoids as well."""
        super().__init__()
        self.scale_positions = scale_positions
        self.encode_positions = POSITIONS[positions]
        self.weight = nn.Parameter(torch.randn(vocab_size, model_dim) * model_dim**-0.5)
        self.dropout = Dropout(dropout)
        with torch.no_grad():
            self.weight[PAD_ID].zero_()

    def forward(self, token_ids_BT: Tensor, positions_BT: Tensor) -> Tensor:
        """Ids and 0-based positions [B,T] (or positions [1,T]) to [B,T,D]."""
        dim = self.weight.shape[1]
        x_BTD = nn.functional.embedding(token_ids_BT, self.weight) * math.sqrt(dim)
        positions_BTD = self.encode_positions(positions_BT, dim)
        if self.scale_positions:
            positions_BTD = positions_BTD * math.sqrt(dim)
        return self.dropout(x_BTD + positions_BTD)
