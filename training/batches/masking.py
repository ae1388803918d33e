"""Inputs for pre-training an encoder: parts of documents, with ids to predict."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from serving.arrays import Int32s
from training.vocabularies.word_pieces import CLS_ID, MASK_ID, SEP_ID, SPECIAL

HIDDEN, CHANGED = 0.8, 0.1
"""Shares of the predicted ids that are masked and that are replaced by another id (Devlin et al.
2019, section 3.1); the rest stay."""
LEAST_PART = 4
"""Smallest length of a part in ids; a shorter rest of a document is left out."""
Span = tuple[int, int]


class MaskedText(NamedTuple):
    """One masked input for pre-training: its ids, and the ids to predict."""

    ids: Int32s
    segments: Int32s
    """The number of the part that each id belongs to: 0 in the first part and its special ids, 1 in
    the second."""
    places: Int32s
    """Positions of the ids to predict."""
    labels: Int32s
    """The original ids."""
    follows: bool | None
    """Whether the second part follows the first in the text; None if there is no second."""


class DocumentCorpus:
    """The inputs of each epoch. They depend on (seed, epoch) only and are cut, paired and masked
    anew, so that a resumed run sees what an uninterrupted one would."""

    def __init__(
        self,
        documents: Sequence[Sequence[Sequence[int]]],
        *,
        vocab_size: int,
        max_length: int,
        mask_share: float,
        next_sentence: bool,
        seed: int,
    ) -> None:
        """Takes the ids of each document's lines. No document is empty, and `next_sentence` needs
        at least two documents."""
        lines = [line for document in documents for line in document]
        self._stream: Int32s = np.array([id_ for line in lines for id_ in line], np.int32)
        ends = np.cumsum([0, *map(len, lines)])
        first = np.cumsum([0, *map(len, documents)])
        self._spans: list[Span] = [(int(ends[a]), int(ends[b])) for a, b in pairwise(first)]
        self._line_starts = [ends[a:b].astype(np.int64) for a, b in pairwise(first)]
        self._vocab_size, self._mask_share = vocab_size, mask_share
        self._next_sentence, self._seed = next_sentence, seed
        self._room = max_length - (3 if next_sentence else 2)

    @property
    def num_tokens(self) -> int:
        """Number of ids in the text, without special ones."""
        return len(self._stream)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the ids: a run resumed on other text would not repeat the unbroken one."""
        return hashlib.sha256(self._stream.astype("<u4").tobytes()).hexdigest()

    @property
    def has_inputs(self) -> bool:
        """Whether a document is long enough for an input."""
        return any(end - start >= self._least for start, end in self._spans)

    @property
    def _least(self) -> int:
        """Length of the shortest input in ids, without special ones."""
        return 2 * LEAST_PART if self._next_sentence else LEAST_PART

    def epoch(self, epoch: int) -> list[MaskedText]:
        """The inputs of an epoch, shuffled."""
        random = np.random.default_rng((self._seed, epoch))
        made = [
            self._mask(*parts, random)
            for number in range(len(self._spans))
            for parts in self._parts(number, random)
        ]
        return [made[number] for number in random.permutation(len(made))]

    def _parts(
        self, number: int, random: np.random.Generator
    ) -> Iterator[tuple[Span, Span | None, bool | None]]:
        """Spans of one document's inputs, and whether the second part follows the first.

        The first one has a random length, so that the cuts move from epoch to epoch.
        """
        place, end = self._spans[number]
        length = int(random.integers((self._room + 1) // 2, self._room + 1))
        while end - place >= self._least:
            stop = min(place + max(length, self._least), end)
            length = self._room
            if not self._next_sentence:
                yield (place, stop), None, None
                place = stop
                continue
            cut = self._cut(number, place, stop, random)
            if random.random() < 0.5:
                yield (place, cut), (cut, stop), True
                place = stop
            else:  # the text that would have followed goes into the next input
                yield (place, cut), self._elsewhere(number, stop - cut, random), False
                place = cut

    def _cut(self, number: int, place: int, stop: int, random: np.random.Generator) -> int:
        """Start of the second part: at a line, if one begins in between."""
        low, high = place + LEAST_PART, stop - LEAST_PART
        starts = self._line_starts[number]
        within = starts[np.searchsorted(starts, low) : np.searchsorted(starts, high, "right")]
        return int(random.choice(within) if len(within) else random.integers(low, high + 1))

    def _elsewhere(self, number: int, length: int, random: np.random.Generator) -> Span:
        """The span of up to `length` ids that starts with a random line of a random other
        document."""
        other = int(random.integers(len(self._spans) - 1))
        other += other >= number
        start = int(random.choice(self._line_starts[other]))
        return start, min(start + length, self._spans[other][1])

    def _mask(
        self, first: Span, second: Span | None, follows: bool | None, random: np.random.Generator
    ) -> MaskedText:
        """Make an input of these parts and choose the ids to predict: about `mask_share` of them,
        and at least one."""
        parts = [self._stream[slice(*span)] for span in (first, second) if span is not None]
        ids = np.concatenate([[CLS_ID], *((*part, SEP_ID) for part in parts)], dtype=np.int32)
        segments = np.zeros(len(ids), np.int32)
        segments[len(parts[0]) + 2 :] = 1
        plain = np.flatnonzero((ids != CLS_ID) & (ids != SEP_ID))
        count = max(1, round(self._mask_share * len(plain)))
        places = np.sort(random.choice(plain, count, replace=False)).astype(np.int32)
        labels, share = ids[places], random.random(count)
        others = random.integers(len(SPECIAL), self._vocab_size, count, dtype=np.int32)
        changed = np.where(share < HIDDEN + CHANGED, others, labels)
        ids[places] = np.where(share < HIDDEN, np.int32(MASK_ID), changed)
        return MaskedText(ids, segments, places, labels, follows)
