"""Token-budget batches of pairs of like length, in an order that an epoch number fixes.

Shape letters: B sentences, S source positions, T target positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from serving.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer

IdPair = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Batch:
    """Ids padded on the right."""

    source_BS: Tensor
    """Pieces and eos."""
    target_BT: Tensor
    """bos and pieces."""
    labels_BT: Tensor
    """Pieces and eos; padding is 0."""

    @property
    def num_labels(self) -> int:
        """Labels that are not padding."""
        return int((self.labels_BT != PAD_ID).sum())

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        return Batch(
            self.source_BS.to(device), self.target_BT.to(device), self.labels_BT.to(device)
        )


class BatchedCorpus:
    """Pairs of ids cut into batches; the order and, with subword sampling, the pieces depend only
    on (seed, epoch), so a resumed run sees what an unbroken one would."""

    def __init__(
        self,
        pairs: list[tuple[str, str]],
        tokenizer: Tokenizer,
        *,
        token_budget: int,
        max_pieces: int,
        subword_alpha: float = 0.0,
        seed: int = 1,
    ) -> None:
        self._texts = pairs
        self._tokenizer = tokenizer
        self._token_budget, self._max_pieces = token_budget, max_pieces
        self._subword_alpha, self._seed = subword_alpha, seed
        self._plain: list[IdPair] | None = None
        if not subword_alpha:
            self._plain = self._tokenize(epoch=0)

    def epoch(self, epoch: int) -> list[list[IdPair]]:
        """The batches of an epoch, as lists of id pairs."""
        pairs = self._plain if self._plain is not None else self._tokenize(epoch)
        generator = np.random.default_rng((self._seed, epoch))
        lengths = np.array([max(len(s) + 1, len(t) + 1) for s, t in pairs])
        # Noise keeps batches from holding the same neighbours in every epoch.
        order = np.argsort(lengths * generator.uniform(0.9, 1.1, len(pairs)), kind="stable")
        batches = cut_by_budget([int(i) for i in order], lengths, self._token_budget)
        generator.shuffle(batches)
        return [[pairs[i] for i in batch] for batch in batches]

    def _tokenize(self, epoch: int) -> list[IdPair]:
        sides: list[list[list[int]]] = []
        for side in (0, 1):
            texts = [pair[side] for pair in self._texts]
            if self._subword_alpha:
                seed = (self._seed * 1000 + epoch) * 2 + side
                sides.append(self._tokenizer.sample_batch(texts, self._subword_alpha, seed))
            else:
                sides.append(self._tokenizer.encode_batch(texts))
        return [
            (source, target)
            for source, target in zip(*sides, strict=True)
            if 0 < len(source) <= self._max_pieces and 0 < len(target) <= self._max_pieces
        ]


def cut_by_budget(
    order: list[int], lengths: Sequence[int] | np.ndarray, token_budget: int
) -> list[list[int]]:
    """Consecutive runs of `order` whose rows x longest stays within the budget (one row at least)."""
    batches: list[list[int]] = []
    current: list[int] = []
    longest = 0
    for index in order:
        grown = max(longest, int(lengths[index]))
        if current and grown * (len(current) + 1) > token_budget:
            batches.append(current)
            current, grown = [], int(lengths[index])
        current.append(index)
        longest = grown
    if current:
        batches.append(current)
    return batches


def collate(pairs: list[IdPair]) -> Batch:
    """Pad id pairs on the right into tensors."""
    return Batch(
        source_BS=pad([source + [EOS_ID] for source, _ in pairs]),
        target_BT=pad([[BOS_ID] + target for _, target in pairs]),
        labels_BT=pad([target + [EOS_ID] for _, target in pairs]),
    )


def pad(rows: list[list[int]]) -> Tensor:
    """Right-pad rows of ids to a tensor [B, longest]."""
    width = max(map(len, rows))
    return torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows])
