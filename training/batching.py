"""Token-budget batches of pairs of like length, in an order that an epoch number fixes.

Shape letters: B sentences, S source positions, T target positions.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from serving.bundle.tokenizer import Tokenizer
from serving.search.ids import BOS_ID, EOS_ID, PAD_ID
from training.subwords import SubwordSampler

IdPair = tuple[list[int], list[int]]
Cost = Callable[[int, int], int]
"""What a row counts in the token budget, from the longest source and target of its batch."""


@dataclass(frozen=True)
class PairBatch:
    """Ids padded on the right."""

    source_BS: Tensor
    """Source pieces with eos behind them, then padding."""
    target_BT: Tensor
    """What the decoder reads: bos and the target's pieces, then padding."""
    labels_BT: Tensor
    """Pieces and eos; padding is 0."""

    @property
    def num_labels(self) -> int:
        """Labels that are not padding."""
        return int((self.labels_BT != PAD_ID).sum())

    def to(self, device: torch.device) -> PairBatch:
        """The same batch on a device."""
        return PairBatch(
            self.source_BS.to(device), self.target_BT.to(device), self.labels_BT.to(device)
        )


class BatchedCorpus:
    """Pairs of ids cut into batches; each pair comes once an epoch, or as often as its weight says.

    `weights` has a number for each pair: a whole number is how often it comes, a fraction is the
    probability of once more, drawn anew each epoch. The order, these draws and, with subword
    sampling, the pieces depend only on (seed, epoch), so a resumed run sees what an unbroken one
    would. `dropped` counts pairs left out because a side has no piece, or more than `max_pieces`.
    """

    def __init__(
        self,
        pairs: list[tuple[str, str]],
        tokenizer: Tokenizer,
        *,
        token_budget: int,
        max_pieces: int,
        cost: Cost = max,
        subword_alpha: float = 0.0,
        weights: Sequence[float] | None = None,
        seed: int = 1,
    ) -> None:
        self._cost, self._token_budget, self._max_pieces, self._seed = (
            cost,
            token_budget,
            max_pieces,
            seed,
        )
        self._sampler = SubwordSampler(tokenizer, subword_alpha) if subword_alpha else None
        self.dropped: Counter[str] = Counter()
        self._texts: list[tuple[str, str]] = []
        self._ids: list[IdPair] = []
        kept_weights: list[float] = []
        weights = [1.0] * len(pairs) if weights is None else weights
        sides = [tokenizer.encode_batch([pair[side] for pair in pairs]) for side in (0, 1)]
        for texts, weight, source, target in zip(pairs, weights, *sides, strict=True):
            if not source or not target:
                self.dropped["no piece"] += 1
            elif max(len(source), len(target)) > max_pieces:
                self.dropped["too many pieces"] += 1
            else:
                self._texts.append(texts)
                self._ids.append((source, target))
                kept_weights.append(weight)
        self._weights = np.array(kept_weights)
        self._weighted = bool((self._weights != 1).any())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the ids and of weights other than 1: a run resumed on other text would not
        repeat the unbroken one."""
        hasher = hashlib.sha256()
        for source, target in self._ids:
            hasher.update(np.array([*source, EOS_ID, *target, EOS_ID], dtype="<u4").tobytes())
        if self._weighted:
            hasher.update(self._weights.astype("<f8").tobytes())
        return hasher.hexdigest()

    def epoch(self, epoch: int) -> list[list[IdPair]]:
        """The batches of an epoch, as lists of id pairs."""
        generator = np.random.default_rng((self._seed, epoch))
        chosen = self._draw_copies(generator) if self._weighted else range(len(self._ids))
        pairs = self._sample(chosen, epoch) if self._sampler else [self._ids[i] for i in chosen]
        sizes = [(len(source) + 1, len(target) + 1) for source, target in pairs]
        # By both lengths, so that next to nothing is padding; ties at random, so that batches do
        # not hold the same neighbours in every epoch.
        sources, targets = np.array(sizes).reshape(-1, 2).T
        order = np.lexsort((generator.random(len(pairs)), targets, sources))
        batches = cut_by_budget(order.tolist(), sizes, self._token_budget, self._cost)
        generator.shuffle(batches)
        return [[pairs[i] for i in batch] for batch in batches]

    def _draw_copies(self, generator: np.random.Generator) -> list[int]:
        """Indices of the pairs of an epoch, each as often as its weight says."""
        whole = np.floor(self._weights)
        once_more = generator.random(len(whole)) < self._weights - whole
        return np.repeat(np.arange(len(whole)), (whole + once_more).astype(int)).tolist()

    def _sample(self, chosen: Sequence[int], epoch: int) -> list[IdPair]:
        """Each of these pairs in a random segmentation of its own; a side that grew too long keeps
        its best one."""
        assert self._sampler is not None
        sides: list[list[list[int]]] = []
        for side in (0, 1):
            texts = (self._texts[i][side] for i in chosen)
            sampled = self._sampler.sample(texts, f"{self._seed} {epoch} {side}")
            sides.append(
                [
                    ids if 0 < len(ids) <= self._max_pieces else self._ids[i][side]
                    for ids, i in zip(sampled, chosen, strict=True)
                ]
            )
        return list(zip(*sides, strict=True))


def cut_by_budget(
    order: list[int], sizes: Sequence[tuple[int, int]], token_budget: int, cost: Cost = max
) -> list[list[int]]:
    """Consecutive runs of `order` with rows x cost within the budget, one row at least.

    `sizes` are the lengths of source and target; a run's cost follows from its longest of each.
    """
    batches: list[list[int]] = []
    current: list[int] = []
    longest = 0, 0
    for index in order:
        source, target = sizes[index]
        grown = max(longest[0], source), max(longest[1], target)
        if current and cost(*grown) * (len(current) + 1) > token_budget:
            batches.append(current)
            current, grown = [], (source, target)
        current.append(index)
        longest = grown
    if current:
        batches.append(current)
    return batches


def collate(pairs: list[IdPair]) -> PairBatch:
    """Pad id pairs on the right into tensors."""
    return PairBatch(
        source_BS=pad([[*source, EOS_ID] for source, _ in pairs]),
        target_BT=pad([[BOS_ID, *target] for _, target in pairs]),
        labels_BT=pad([[*target, EOS_ID] for _, target in pairs]),
    )


def pad(rows: list[list[int]]) -> Tensor:
    """Right-pad rows of ids to a tensor [B, longest]."""
    width = max(map(len, rows))
    return torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows])
