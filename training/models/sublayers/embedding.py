"""Token embeddings and sinusoidal positions.

Shape letters: B sentences, T tokens, D model.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from serving.search.ids import PAD_ID
from training.models.configs.common import ModelConfig
from training.models.configs.transformer import TransformerConfig
from training.models.dropout import Dropout
from training.models.sublayers.norms import new_norm

ModelT = TypeVar("ModelT", bound=nn.Module)


def sinusoid(positions: Tensor, dim: int) -> Tensor:
    """Sinusoidal encoding of 0-based positions, [...] -> [..., dim], computed, so length is open.

    Row p is sinusoid(p + 1): sine half, then cosine half, frequency exp(-i ln(10000) / (dim/2 - 1))
    (Vaswani et al. 2017, section 3.5, in tensor2tensor's form, as in CTranslate2).
    """
    return _halves(positions, dim, -math.log(10000.0) / (dim // 2 - 1), first=1.0)


def gluon_sinusoid(positions: Tensor, dim: int) -> Tensor:
    """The encoding in the code of "Transformer on a Diet", 0-based positions [...] -> [..., dim].

    Column j of row p is sin (even j) or cos (odd j) of p / 10000^(2j / dim): the exponent counts
    columns where Vaswani et al. count pairs, so no two columns share a frequency.
    """
    column = torch.arange(dim, dtype=torch.float32, device=positions.device)
    frequency = torch.exp(column * (-2.0 * math.log(10000.0) / dim))
    angle = positions.to(torch.float32).unsqueeze(-1) * frequency
    return torch.where(column % 2 == 0, torch.sin(angle), torch.cos(angle))


def marian_sinusoid(positions: Tensor, dim: int) -> Tensor:
    """The encoding of MarianMT in `transformers`, 0-based positions [...] -> [..., dim].

    Sine half, then cosine half, of p / 10000^(2i / dim): the frequencies of Vaswani et al. 2017,
    section 3.5, from position 0 on. Marian itself has those of `tensor2tensor_sinusoid`.
    """
    return _halves(positions, dim, -2.0 * math.log(10000.0) / dim, first=0.0)


def tensor2tensor_sinusoid(positions: Tensor, dim: int) -> Tensor:
    """The encoding of tensor2tensor and of Marian (Junczys-Dowmunt et al. 2018), 0-based positions
    [...] -> [..., dim]: that of `sinusoid`, but from position 0 on."""
    return _halves(positions, dim, -math.log(10000.0) / (dim // 2 - 1), first=0.0)


def fairseq_sinusoid(positions: Tensor, dim: int) -> Tensor:
    """The encoding of fairseq (Ott et al. 2019), 0-based positions [...] -> [..., dim]: that of
    `sinusoid`, but row p is sinusoid(p + 2), because the row before the first belongs to
    padding."""
    return _halves(positions, dim, -math.log(10000.0) / (dim // 2 - 1), first=2.0)


def interleaved_sinusoid(positions: Tensor, dim: int) -> Tensor:
    """The encoding of Vaswani et al. 2017, section 3.5, in the form of OpenNMT-py, 0-based
    positions [...] -> [..., dim]: sines in even columns, cosines in odd ones, of p / 10000^(2i /
    dim)."""
    halves = marian_sinusoid(positions, dim)
    return halves.unflatten(-1, (2, dim // 2)).transpose(-1, -2).flatten(-2)


def _halves(positions: Tensor, dim: int, step: float, *, first: float) -> Tensor:
    """Sines, then cosines, of positions from `first` on; the logarithms of the frequencies, which
    begin with 0, are `step` apart."""
    index = torch.arange(dim // 2, dtype=torch.float32, device=positions.device)
    frequency = torch.exp(index * step)
    angle = (positions.to(torch.float32) + first).unsqueeze(-1) * frequency
    return torch.cat([torch.sin(angle), torch.cos(angle)], dim=-1)


POSITIONS: dict[str, Callable[[Tensor, int], Tensor] | None] = {
    "sinusoid": sinusoid,
    "gluon": gluon_sinusoid,
    "marian": marian_sinusoid,
    "tensor2tensor": tensor2tensor_sinusoid,
    "fairseq": fairseq_sinusoid,
    "interleaved": interleaved_sinusoid,
    "learnt": None,
    "relative": None,
    "relative_bias": None,
    "rotary": None,
    "none": None,
}
"""Positions added to a token's vector; None if none are."""


class TokenEmbedding(nn.Module):
    """Embedding times sqrt(model_dim) plus sinusoids; N(0, model_dim^-0.5), pad row zero.

    With FixNorm each vector is used at unit length (Nguyen and Salazar 2019). The weights then
    start as U(-0.01, 0.01), as in the authors' code, and no row is zero, since zero has no
    direction.
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
        """The vectors [V,D] for lookup, and for an output matrix that shares them."""
        return self._normalise(self.weight)

    def forward(self, token_ids_BT: Tensor, positions_BT: Tensor) -> Tensor:
        """Ids and 0-based positions [B,T] (or positions [1,T]) to [B,T,D]."""
        return self.dropout(self.sum(token_ids_BT, positions_BT))

    def sum(self, token_ids_BT: Tensor, positions_BT: Tensor) -> Tensor:
        """Scaled vectors [B,T,D] of tokens plus positions."""
        vectors_BTD = self._normalise(nn.functional.embedding(token_ids_BT, self.weight))
        x_BTD = _scaled(vectors_BTD, self.token_scale)
        if self.encode_positions is None:
            return x_BTD
        positions_BTD = self.encode_positions(positions_BT, self.weight.shape[1])
        return x_BTD + _scaled(positions_BTD, self.position_scale)

    def replace(self, vectors_VD: Tensor) -> None:
        """Look up these vectors, without normalising them, from now on."""
        self.fix_norm = False
        self.weight = nn.Parameter(vectors_VD.detach())

    def settle(self) -> None:
        """Fix the looked-up vectors at their present values."""
        self.replace(self.vectors)

    def _normalise(self, vectors: Tensor) -> Tensor:
        return nn.functional.normalize(vectors, dim=-1) if self.fix_norm else vectors


class SideEmbedding(nn.Module):
    """The part of the embedding that each side of a Transformer has separately: learnt positions
    and a norm, if configured (Liu et al. 2020, "mBART")."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.positions: nn.Embedding | None = None
        if config.positions == "learnt":
            self.positions = nn.Embedding(config.max_positions, config.model_dim)
            nn.init.normal_(self.positions.weight, std=config.model_dim**-0.5)
        self.norm = new_norm(config) if config.embedding_norm else nn.Identity()

    def forward(self, x_BTD: Tensor, positions_BT: Tensor) -> Tensor:
        """Embedded tokens [B,T,D] and their positions, [B,T] or [1,T], to [B,T,D]."""
        if self.positions is not None:
            # The padding of a batch may be after the end of the table.
            last = self.positions.num_embeddings - 1
            x_BTD = x_BTD + self.positions(positions_BT.clamp(max=last))
        return self.norm(x_BTD)


@runtime_checkable
class Settling(Protocol):
    """A module that computes a constant from its weights at each call."""

    def settle(self) -> None:
        """Compute the constant once and use it from now on."""


def settled(model: ModelT) -> ModelT:
    """A model with its constants computed, for export: a copy, or the model itself if it has
    none."""
    if not any(_is_unsettled(module) for module in model.modules()):
        return model
    copied = copy.deepcopy(model)
    for module in copied.modules():
        if isinstance(module, Settling) and _is_unsettled(module):
            module.settle()
    return copied


def _is_unsettled(module: nn.Module) -> bool:
    if isinstance(module, TokenEmbedding):
        return module.fix_norm
    return isinstance(module, Settling)


def _scaled(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else x * factor
