"""An index of segment keys, for finding similar ones among a million.

Each key is indexed by its runs of four bytes; a lookup uses the rarest of its runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rapidfuzz.distance import Levenshtein

_SHARD = 2**15
"""Keys of a shard, so that a key's number within it fits into two bytes."""
_BITS = 17
"""Bits of a bucket number; several runs may share a bucket."""
_MULTIPLIER = np.uint32(2654435761)
_END = 10
"""Separator before and after each key: a line feed, which no key contains."""
_POSTINGS = 40_000
"""Largest number of postings read for a lookup, those of the rarest runs first."""
_HEAD = 500
"""Number of bytes of a key that are indexed; indexing all of longer keys would take gigabytes."""
_COMPARED = 64
"""Number of keys that are compared character by character."""


@dataclass(frozen=True)
class _Shard:
    """Up to `_SHARD` keys; immutable."""

    keys: bytes
    starts: np.ndarray
    """Start of each key in `keys`, and the end of the last: uint32 [keys + 1]. A line feed ends
    each."""
    lengths: np.ndarray
    """Lengths of the keys in characters: uint32 [keys]."""
    hashes: np.ndarray
    """Hashes of the keys, ascending: int64 [keys]."""
    order: np.ndarray
    """Key number of each hash: uint16 [keys]."""
    buckets: np.ndarray
    """Buckets that have postings, ascending: uint32; a small shard has few."""
    offsets: np.ndarray
    """Start of each bucket's postings: uint32 [buckets + 1]."""
    postings: np.ndarray
    """Postings: numbers of the keys that have a run in the bucket: uint16."""

    def __len__(self) -> int:
        return len(self.lengths)

    def key(self, number: int) -> str:
        return self.keys[self.starts[number] : self.starts[number + 1] - 1].decode()

    def places(self, buckets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Start and end of the postings of these buckets (uint32): int64."""
        begins, ends = (np.searchsorted(self.buckets, buckets, side) for side in ("left", "right"))
        return self.offsets[begins].astype(np.int64), self.offsets[ends].astype(np.int64)


class SegmentIndex:
    """Keys, identified by their position in the order of insertion; immutable."""

    def __init__(self, keys: Iterable[str] = (), *, _shards: Sequence[_Shard] = ()) -> None:
        rest = iter(keys)
        batches = iter(lambda: list(itertools.islice(rest, _SHARD)), [])
        self._shards = (*_shards, *map(_shard, batches))
        self._lengths = np.concatenate(
            [np.zeros(0, np.uint32), *(shard.lengths for shard in self._shards)]
        )

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    @property
    def num_bytes(self) -> int:
        """Memory of the index in bytes."""
        return sum(
            len(s.keys)
            + sum(a.nbytes for a in (s.starts, s.lengths, s.hashes, s.order))
            + sum(a.nbytes for a in (s.buckets, s.offsets, s.postings))
            for s in self._shards
        )

    def extended(self, keys: Iterable[str]) -> SegmentIndex:
        """A new index with these keys appended."""
        full, last = self._shards, []
        if full and len(full[-1]) < _SHARD:
            full, part = full[:-1], full[-1]
            last = [part.key(number) for number in range(len(part))]
        return SegmentIndex(itertools.chain(last, keys), _shards=full)

    def exact(self, key: str, most: int) -> list[int]:
        """Numbers of the keys equal to this one, the last one first, at most `most`."""
        return list(itertools.islice(self._same(key), most))

    def similar(self, key: str, threshold: float, count: int) -> list[tuple[float, int]]:
        """At most `count` similar keys with their similarity in percent, best first. A key that
        reaches the threshold is found only if it is among those that share the most rare runs."""
        numbers = self._sharing(key, threshold)
        found = []
        for number in numbers:
            shard = self._shards[number // _SHARD]
            score = Levenshtein.normalized_similarity(
                key, shard.key(number % _SHARD), score_cutoff=threshold / 100
            )
            if score and 100 * score >= threshold:
                found.append((100 * score, number))
        return sorted(found, key=lambda each: (-each[0], -each[1]))[:count]

    def _same(self, key: str) -> Iterator[int]:
        wanted = hash(key)
        for place in reversed(range(len(self._shards))):
            shard = self._shards[place]
            begin = np.searchsorted(shard.hashes, wanted, "left")
            end = np.searchsorted(shard.hashes, wanted, "right")
            for number in map(int, shard.order[begin:end][::-1]):  # each hash has them ascending
                if shard.key(number) == key:
                    yield place * _SHARD + number

    def _sharing(self, key: str, threshold: float) -> list[int]:
        """The keys of similar length that share the most rare runs with this one."""
        buckets = np.unique(_buckets(b"\n" + _head(key.encode()))[0])
        if not len(buckets) or not self._shards:
            return []
        begins, ends = zip(*(shard.places(buckets) for shard in self._shards), strict=True)
        begins_SB, ends_SB = np.stack(begins), np.stack(ends)
        sizes_SB = ends_SB - begins_SB
        order_B = np.argsort(sizes_SB.sum(axis=0), kind="stable")
        within_B = np.cumsum(sizes_SB.sum(axis=0)[order_B]) <= _POSTINGS
        chosen = order_B[: max(1, int(within_B.sum()))]
        shards, places = np.nonzero(sizes_SB[:, chosen])
        if not len(shards):
            return []
        parts = zip(
            shards.tolist(),
            begins_SB[shards, chosen[places]].tolist(),
            ends_SB[shards, chosen[places]].tolist(),
            strict=True,
        )
        every = np.concatenate([self._shards[s].postings[b:e] for s, b, e in parts])
        bases = np.repeat(shards * _SHARD, sizes_SB[shards, chosen[places]])
        numbers, shared = _counted(every + bases.astype(np.int32))
        lengths = self._lengths[numbers]
        fits = (lengths * 100 >= len(key) * threshold) & (lengths * threshold <= len(key) * 100)
        numbers, shared = numbers[fits], shared[fits]
        if len(numbers) > _COMPARED:
            numbers = numbers[np.argpartition(shared, -_COMPARED)[-_COMPARED:]]
        return [int(number) for number in numbers]


def _shard(keys: Sequence[str]) -> _Shard:
    lines = [key.encode() for key in keys]
    starts = np.zeros(len(lines) + 1, np.uint32)
    np.cumsum([len(line) + 1 for line in lines], out=starts[1:])
    hashes = np.array([hash(key) for key in keys], np.int64)
    order = np.argsort(hashes, kind="stable")
    buckets, offsets, postings = _inverted(list(map(_head, lines)))
    return _Shard(
        keys=b"".join(line + b"\n" for line in lines),
        starts=starts,
        lengths=np.array([len(key) for key in keys], np.uint32),
        hashes=hashes[order],
        order=order.astype(np.uint16),
        buckets=buckets,
        offsets=offsets,
        postings=postings,
    )


def _head(line: bytes) -> bytes:
    """The indexed beginning of a key, with separators."""
    return line[:_HEAD] + b"\n"


def _inverted(heads: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Buckets, offsets and postings (see `_Shard`) of these keys; each key is listed once for each
    bucket in which it has a run."""
    found, places = _buckets(b"\n" + b"".join(heads))
    # A run belongs to the key before whose end it begins; a line feed precedes the first key.
    owners = np.repeat(np.arange(len(heads), dtype=np.uint32), list(map(len, heads)))[places]
    pairs = np.sort((found << np.uint32(32 - _BITS)) | owners)
    pairs = pairs[np.concatenate([[True], pairs[1:] != pairs[:-1]])] if len(pairs) else pairs
    buckets, sizes = np.unique(pairs >> np.uint32(32 - _BITS), return_counts=True)
    offsets = np.zeros(len(buckets) + 1, np.uint32)
    np.cumsum(sizes, out=offsets[1:])
    return buckets, offsets, (pairs & np.uint32(_SHARD - 1)).astype(np.uint16)


def _counted(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct numbers, and how often each occurs."""
    ordered = np.sort(numbers)
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    return ordered[begins], np.diff(np.append(begins, len(ordered)))


def _buckets(text: bytes) -> tuple[np.ndarray, np.ndarray]:
    """The buckets (uint32) of the runs of four bytes within each key, separators included, and the
    positions of the runs."""
    if len(text) < 4:
        return np.zeros(0, np.uint32), np.zeros(0, np.int64)
    data = np.frombuffer(text, np.uint8)
    wide = data.astype(np.uint32)
    runs = (wide[:-3] << 24) | (wide[1:-2] << 16) | (wide[2:-1] << 8) | wide[3:]
    places = np.flatnonzero((data[1:-2] != _END) & (data[2:-1] != _END))
    return (runs[places] * _MULTIPLIER) >> np.uint32(32 - _BITS), places
