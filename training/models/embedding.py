"""Token embeddings and sinusoidal positions.

Shape letters: B sentences, T tokens, D model.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from serving.search.ids import PAD_ID
from training.models.config import ModelConfig
from training.models.dropout import Dropout

ModelT = TypeVar("ModelT", bound=nn.Module)


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
    """Embedding times sqrt(model_dim) plus sinusoids; N(0, model_dim^-0.5), pad row zero.

    With FixNorm each vector is used at unit length (Nguyen and Salazar 2019). What is learnt begins
    as U(-0.01, 0.01) then, as in the authors' code; no row is zero, which has no direction.
    """

    def __init__(self, config: ModelConfig, positions: str = "sinusoid") -> None:
        """`positions` is a key of `POSITIONS`."""
        super().__init__()
        self.encode_positions = POSITIONS[positions]
        root = math.sqrt(config.model_dim)
        self.token_scale = 1.0 if config.embedding_scale == "none" else root
        self.position_scale = root if config.embedding_scale == "sum" else 1.0
        self.fix_norm = config.fix_norm
        shape = (config.vocab_size, config.model_dim)
        self.weight = nn.Parameter(torch.randn(shape) * config.model_dim**-0.5)
        self.dropout = Dropout(config.dropout)
        with torch.no_grad():
            if config.fix_norm:
                self.weight.uniform_(-0.01, 0.01)
            else:
                self.weight[PAD_ID].zero_()

    @property
    def vectors(self) -> Tensor:
        """The vectors [V,D] as they are looked up, and as the output matrix that shares them."""
        return self._normalise(self.weight)

    def forward(self, token_ids_BT: Tensor, positions_BT: Tensor) -> Tensor:
        """Ids and 0-based positions [B,T] (or positions [1,T]) to [B,T,D]."""
        return self.dropout(self.sum(token_ids_BT, positions_BT))

    def sum(self, token_ids_BT: Tensor, positions_BT: Tensor) -> Tensor:
        """The scaled vectors [B,T,D] of tokens and positions together."""
        vectors_BTD = self._normalise(nn.functional.embedding(token_ids_BT, self.weight))
        positions_BTD = self.encode_positions(positions_BT, self.weight.shape[1])
        return _scaled(vectors_BTD, self.token_scale) + _scaled(positions_BTD, self.position_scale)

    def replace(self, vectors_VD: Tensor) -> None:
        """Look up these vectors, as they are, from here on."""
        self.fix_norm = False
        self.weight = nn.Parameter(vectors_VD.detach())

    def _normalise(self, vectors: Tensor) -> Tensor:
        return nn.functional.normalize(vectors, dim=-1) if self.fix_norm else vectors


class VectorTable(nn.Module):
    """A learnt vector for each of N numbers: positions, or segments of a text."""

    def __init__(self, size: int, model_dim: int) -> None:
        """Vectors from N(0, 0.02)."""
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, model_dim) * 0.02)

    @property
    def vectors(self) -> Tensor:
        """The vectors [N,D] as they are looked up."""
        return self.weight

    def forward(self, numbers_BT: Tensor, dim: int | None = None) -> Tensor:
        """Numbers [B,T] to vectors [B,T,D]; `dim` is there for computed positions, which ask it."""
        del dim
        return nn.functional.embedding(numbers_BT, self.weight)

    def replace(self, vectors_ND: Tensor) -> None:
        """Look up these vectors from here on."""
        self.weight = nn.Parameter(vectors_ND.detach())


def settled(model: ModelT) -> ModelT:
    """A model that looks up its vectors as they stand, for export: the model itself, or a copy of
    one whose vectors are computed at each call."""
    if not any(isinstance(m, TokenEmbedding) and m.fix_norm for m in model.modules()):
        return model
    copied = copy.deepcopy(model)
    for module in copied.modules():
        if isinstance(module, TokenEmbedding):
            module.replace(module.vectors)
    return copied


def _scaled(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else x * factor
