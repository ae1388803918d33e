"""Token-budget batches of pairs of similar length, in an order that the epoch's number fixes.

Shape letters: B sentences, S source positions, T target positions.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from serving.bundle.tokenizer import Tokenizer
from serving.search.ids import BOS_ID, EOS_ID, PAD_ID
from training.corpora.noise import add_noise, choose_joins
from training.errors import ConfigError
from training.recipe.sections import NoiseConfig
from training.vocabularies.subwords import make_sampler

IdPair = tuple[list[int], list[int]]
Cost = Callable[[int, int], int]
"""Cost of a row in the token budget, from the longest source and target of its batch."""

_HASHED_AT_ONCE = 10_000


@dataclass(frozen=True)
class PairBatch:
    """A batch of id pairs, padded on the right."""

    source_BS: Tensor
    """The source's pieces followed by eos, then padding."""
    target_BT: Tensor
    """The decoder input [B,T]: bos and the target's pieces, then padding."""
    labels_BT: Tensor
    """Pieces and eos; padding is 0."""
    links_BTS: Tensor | None = None
    """Probability that each label translates each source piece, if it is known."""

    @property
    def num_labels(self) -> int:
        """Labels that are not padding."""
        return int((self.labels_BT != PAD_ID).sum())

    def to(self, device: torch.device) -> PairBatch:
        """The batch on a device; from pinned memory it is copied asynchronously."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> PairBatch:
        """The batch in pinned memory, which a GPU can read directly."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> PairBatch:
        links_BTS = None if self.links_BTS is None else change(self.links_BTS)
        ids = change(self.source_BS), change(self.target_BT), change(self.labels_BT)
        return PairBatch(*ids, links_BTS)


class Chunk(NamedTuple):
    """Training pairs of one corpus, each in its best segmentation."""

    origin: int
    weight: float
    """The number of times that each pair comes in an epoch."""
    texts: list[tuple[str, str]]
    ids: list[IdPair]
    """Source ids, tags included."""


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """Options for reading and batching the pairs of all corpora."""

    token_budget: int
    """Largest cost of a batch: rows times `cost`."""
    max_pieces: int
    """Largest number of pieces on a side, the prefix included; longer pairs are dropped."""
    cost: Cost = max
    subword_alpha: float = 0.0
    bpe_dropout: float = 0.0
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    prefixes: Sequence[list[int]] = ([],)
    """Ids before the sources of each corpus (`encode_prefix`)."""
    until: Sequence[int | None] = (None,)
    """Last step of each corpus; None if it does not end."""

    @property
    def reads_text(self) -> bool:
        """Whether batches need the texts and not only the ids: with noise or subword sampling they
        do."""
        return bool(self.noise != NoiseConfig() or self.subword_alpha or self.bpe_dropout)


class BatchedCorpus:
    """Pairs of ids in batches. Each pair comes once an epoch, or as often as its weight says.

    `weights` has a number for each pair: the whole part is how often it comes; the fraction is the
    probability of one more copy, drawn anew each epoch. `origins` gives the corpus of each pair.
    `ids` are the result of `encode_pairs`, if known already. Order, copies, noise and sampled
    pieces depend on (seed, epoch) only, so a resumed run sees what an uninterrupted one would.
    `dropped` counts, by corpus, pairs with a side that is empty or longer than `max_pieces`.
    """

    def __init__(
        self,
        pairs: list[tuple[str, str]],
        tokenizer: Tokenizer,
        options: CorpusOptions,
        *,
        weights: Sequence[float] | None = None,
        origins: Sequence[int] | None = None,
        ids: Sequence[IdPair] | None = None,
        seed: int = 1,
    ) -> None:
        self._tokenizer, self._options, self._seed = tokenizer, options, seed
        self._sampler = make_sampler(tokenizer, options.subword_alpha, options.bpe_dropout)
        self.dropped: dict[int, Counter[str]] = defaultdict(Counter)
        self.texts: list[tuple[str, str]] = []
        self.ids: list[IdPair] = []
        """The remaining pairs, tags included, each in its best segmentation."""
        self.origins: list[int] = []
        kept_weights: list[float] = []
        weights = [1.0] * len(pairs) if weights is None else weights
        origins = [0] * len(pairs) if origins is None else origins
        ids = encode_pairs(pairs, tokenizer) if ids is None else ids
        for texts, weight, origin, (source, target) in zip(
            pairs, weights, origins, ids, strict=True
        ):
            if not source or not target:
                self.dropped[origin]["no piece"] += 1
                continue
            prefix = options.prefixes[origin]
            tagged = prefix + source if prefix else source
            if max(len(tagged), len(target)) > options.max_pieces:
                self.dropped[origin]["too many pieces"] += 1
                continue
            self.texts.append(texts)
            self.ids.append((tagged, target))
            self.origins.append(origin)
            kept_weights.append(weight)
        self.weights = np.array(kept_weights)
        self._weighted = bool((self.weights != 1).any())
        self._until = np.array([np.inf if step is None else step for step in options.until])

    @cached_property
    def trained_on(self) -> list[int]:
        """Number of training pairs of each corpus."""
        counts = Counter(self.origins)
        return [counts[origin] for origin in range(len(self._options.prefixes))]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the ids and of weights other than 1: a run resumed on other text would not
        repeat the uninterrupted one."""
        hasher = hashlib.sha256()
        end = [EOS_ID]
        for first in range(0, len(self.ids), _HASHED_AT_ONCE):
            some = self.ids[first : first + _HASHED_AT_ONCE]
            rows = chain.from_iterable((source, end, target, end) for source, target in some)
            hasher.update(np.fromiter(chain.from_iterable(rows), dtype="<u4").tobytes())
        if self._weighted:
            hasher.update(self.weights.astype("<f8").tobytes())
        return hasher.hexdigest()

    def chunks(self) -> Iterator[Chunk]:
        """All pairs, one corpus at a time; the pairs of a corpus have the same weight."""
        for origin, count in enumerate(self.trained_on):
            if count:
                places = [i for i, of_pair in enumerate(self.origins) if of_pair == origin]
                texts, ids = [self.texts[i] for i in places], [self.ids[i] for i in places]
                yield Chunk(origin, float(self.weights[places[0]]), texts, ids)

    def epoch(self, epoch: int, begun: int = 0) -> list[list[IdPair]]:
        """The batches of an epoch that starts at the given step, as lists of id pairs."""
        generator = np.random.default_rng((self._seed, epoch))
        chosen: Sequence[int] = range(len(self.ids))
        if self._weighted:
            chosen = self._draw_copies(generator)
        if (self._until <= begun).any():
            chosen = [i for i in chosen if self._until[self.origins[i]] > begun]
        pairs = self._encode(chosen, epoch)
        sizes = [(len(source) + 1, len(target) + 1) for source, target in pairs]
        # By both lengths, so that next to nothing is padding; ties at random, so that batches do
        # not hold the same neighbours in every epoch.
        sources, targets = np.array(sizes).reshape(-1, 2).T
        order = np.lexsort((generator.random(len(pairs)), targets, sources))
        batches = cut_by_budget(
            order.tolist(), sizes, self._options.token_budget, self._options.cost
        )
        generator.shuffle(batches)
        return [[pairs[i] for i in batch] for batch in batches]

    def _draw_copies(self, generator: np.random.Generator) -> list[int]:
        """Indices of the pairs of an epoch, each repeated by its weight."""
        whole = np.floor(self.weights)
        once_more = generator.random(len(whole)) < self.weights - whole
        return np.repeat(np.arange(len(whole)), (whole + once_more).astype(int)).tolist()

    def _encode(self, chosen: Sequence[int], epoch: int) -> list[IdPair]:
        """Ids of these pairs, with the noise and the segmentations of an epoch."""
        if not self._options.reads_text:
            return [self.ids[i] for i in chosen]
        noise = self._options.noise
        generator = np.random.default_rng((self._seed, epoch, 1))  # noise has one of its own
        texts = [self.texts[i] for i in chosen]
        changed = add_noise(texts, noise, generator)
        for place, pair in changed.items():
            texts[place] = pair
        sides = (self._encode_side(side, texts, changed, chosen, epoch) for side in (0, 1))
        pairs = list(zip(*sides, strict=True))
        if noise.join:
            origins = [self.origins[i] for i in chosen]
            groups = choose_joins(origins, noise.join, generator)
            pairs = self._join(pairs, groups, origins)
        return pairs

    def _encode_side(
        self,
        side: int,
        texts: list[tuple[str, str]],
        changed: Iterable[int],
        chosen: Sequence[int],
        epoch: int,
    ) -> list[list[int]]:
        """Encode one side of each pair. A side that has become too long keeps the ids of its best
        segmentation without noise."""
        found = [self.ids[i][side] for i in chosen]
        if self._sampler:
            places: Sequence[int] = range(len(texts))
            sampled = (text[side] for text in texts)
            encoded = self._sampler.sample(sampled, f"{self._seed} {epoch} {side}")
        else:
            places = [
                place for place in changed if texts[place][side] != self.texts[chosen[place]][side]
            ]
            encoded = self._tokenizer.encode_batch([texts[place][side] for place in places])
        for place, ids in zip(places, encoded, strict=True):
            prefix = self._options.prefixes[self.origins[chosen[place]]] if side == 0 else []
            if ids and len(prefix) + len(ids) <= self._options.max_pieces:
                found[place] = prefix + ids if prefix else ids
        return found

    def _join(
        self, pairs: list[IdPair], groups: list[list[int]], origins: list[int]
    ) -> list[IdPair]:
        """Join each group of pairs into one pair with one prefix, at the place of the group's first
        pair. The joined pair has the pieces of all of them. A group that would be too long stays
        separate."""
        gone = set()
        for first, *others in groups:
            before = len(self._options.prefixes[origins[first]])
            source, target = (list(ids) for ids in pairs[first])
            for other in others:
                source += pairs[other][0][before:]
                target += pairs[other][1]
            if max(len(source), len(target)) <= self._options.max_pieces:
                pairs[first] = source, target
                gone.update(others)
        return [pair for place, pair in enumerate(pairs) if place not in gone]


def encode_pairs(pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer) -> list[IdPair]:
    """Each pair in its best segmentation."""
    sides = (tokenizer.encode_batch([pair[side] for pair in pairs]) for side in (0, 1))
    return list(zip(*sides, strict=True))


def encode_prefix(tokenizer: Tokenizer, language_tag: str | None, tag: str | None) -> list[int]:
    """The ids before a source: the tag of its target language, then that of its corpus.

    Raises ConfigError if a tag is not a piece of the vocabulary.
    """
    language = [] if language_tag is None else encode_language_tag(tokenizer, language_tag)
    return language + ([] if tag is None else encode_tag(tokenizer, tag))


def encode_language_tag(tokenizer: Tokenizer, tag: str) -> list[int]:
    """The id of a target language's tag; no text is encoded to this id.

    Raises ConfigError if the vocabulary has no such piece.
    """
    id_ = tokenizer.control_id(tag)
    if id_ is None:
        raise ConfigError(
            f"the tag {tag!r} of a target language is not a control piece of the run's vocabulary; "
            "start another --run folder without tokenizer.file, whose vocabulary will have it"
        )
    return [id_]


def encode_tag(tokenizer: Tokenizer, tag: str) -> list[int]:
    """The ids of a corpus tag before a text.

    Raises ConfigError if the tag is not a piece of its own.
    """
    ids = tokenizer.encode(tag)
    if tokenizer.pieces(ids)[-1] != tag:
        raise ConfigError(
            f"the tag {tag!r} of data.train is not a piece of the run's vocabulary; leave it out, "
            "or start another --run folder without tokenizer.file, whose vocabulary will have it"
        )
    return ids


def cut_by_budget(
    order: list[int], sizes: Sequence[tuple[int, int]], token_budget: int, cost: Cost = max
) -> list[list[int]]:
    """Split `order` into consecutive runs whose rows x cost fit the budget; each has at least one
    row.

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


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """Right-pad rows of ids to a tensor [B, longest]."""
    lengths = np.array([len(row) for row in rows])
    ids = np.full((len(rows), lengths.max()), PAD_ID, dtype=np.int64)
    filled = np.arange(lengths.max()) < lengths[:, None]
    ids[filled] = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=lengths.sum())
    return torch.from_numpy(ids)
