"""Corpora larger than memory: prepared once on disk, then shuffled and batched in parts."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from serving.arrays import Ints
from serving.bundle.tokenizer import Tokenizer
from training.batches.batching import BatchedCorpus, Chunk, CorpusOptions, IdPair, encode_pairs
from training.batches.shards import RowWriter, WrittenRows
from training.corpora.pairs import CleaningReport, Pair
from training.errors import CorpusError
from training.runs.checkpoint import new_folder

logger = logging.getLogger(__name__)

_SIDES = ("source", "target")
_AT_ONCE = 2_000
"""Pairs written, or encoded, at a time."""
_MOST_NEIGHBOURS = 1024
"""Pairs of a block; they stay together in every epoch."""
_LEAST_BLOCKS = 64
"""Least number of blocks in a part, if there are as many, so that a part has blocks of all
corpora."""
_META = "meta.json"
TEXT, IDS = "u1", "<i4"
_BLOCK = [("origin", "i4"), ("first", "i8"), ("last", "i8"), ("share", "f8")]


@dataclass(frozen=True)
class StoredText:
    """Clean text on disk, a pair of files of rows for each side of each corpus."""

    folder: Path
    report: CleaningReport
    corpora: list[tuple[WrittenRows, WrittenRows]]

    def pairs(self, origin: int, first: int, last: int) -> list[Pair]:
        """Pairs `first` up to `last` (exclusive) of the corpus with number `origin`."""
        sides = (rows.read(first, last) for rows in self.corpora[origin])
        texts = ([row.tobytes().decode("utf-8", "surrogatepass") for row in side] for side in sides)
        return list(zip(*texts, strict=True))

    def texts(self) -> Iterator[str]:
        """Iterate over all texts: the source, then the target of each pair."""
        for origin, (rows, _) in enumerate(self.corpora):
            for first, last in _spans(len(rows), _AT_ONCE):
                for pair in self.pairs(origin, first, last):
                    yield from pair


@dataclass(frozen=True)
class StoredIds:
    """The ids of stored text in one vocabulary."""

    digest: str
    corpora: list[tuple[WrittenRows, WrittenRows]]

    def pairs(self, origin: int, first: int, last: int) -> list[IdPair]:
        """The ids of some pairs of one corpus."""
        sides = (rows.read(first, last) for rows in self.corpora[origin])
        ids = ([row.tolist() for row in side] for side in sides)
        return list(zip(*ids, strict=True))


def store_text(folder: Path, corpora: Sequence[Iterator[Pair]], report: CleaningReport) -> None:
    """Write the clean pairs of each corpus; reading them fills the report."""
    with new_folder(folder) as temporary:
        for origin, pairs in enumerate(corpora):
            with ExitStack() as stack:
                writers = [
                    stack.enter_context(RowWriter(temporary / f"{origin}-{side}", TEXT))
                    for side in _SIDES
                ]
                for some in _batched(pairs):
                    for side, writer in enumerate(writers):
                        writer.write([p[side].encode("utf-8", "surrogatepass") for p in some])
        if not report.kept:
            name = report.corpora[0].name
            raise CorpusError(f"{name}: no usable pair; {report}".partition("\n")[0])
        meta = {"corpora": len(corpora), "report": report.to_dict()}
        (temporary / _META).write_text(json.dumps(meta))


def open_text(folder: Path) -> StoredText | None:
    """The text that `store_text` has written; None if there is none."""
    meta = _meta(folder)
    if meta is None:
        return None
    report = CleaningReport.from_dict(meta["report"])
    return StoredText(folder, report, _open(folder, meta["corpora"], TEXT))


def store_ids(folder: Path, text: StoredText, tokenizer: Tokenizer) -> None:
    """Encode stored text, each pair in its best segmentation."""
    hasher = hashlib.sha256()
    with new_folder(folder) as temporary:
        for origin, (rows, _) in enumerate(text.corpora):
            with ExitStack() as stack:
                writers = [
                    stack.enter_context(RowWriter(temporary / f"{origin}-{side}", IDS))
                    for side in _SIDES
                ]
                for first, last in _spans(len(rows), _AT_ONCE):
                    encoded = encode_pairs(text.pairs(origin, first, last), tokenizer)
                    for side, writer in enumerate(writers):
                        ids = [np.array(pair[side], dtype=IDS).tobytes() for pair in encoded]
                        hasher.update(writer.write(ids).astype("<i8").tobytes())
                        hasher.update(b"".join(ids))
                hasher.update(f"{origin} {len(rows)}".encode())
        meta = {"corpora": len(text.corpora), "digest": hasher.hexdigest()}
        (temporary / _META).write_text(json.dumps(meta))


def open_ids(folder: Path) -> StoredIds | None:
    """The ids that `store_ids` has written; None if there are none."""
    meta = _meta(folder)
    if meta is None:
        return None
    return StoredIds(meta["digest"], _open(folder, meta["corpora"], IDS))


@dataclass(frozen=True)
class Sampling:
    """How pairs are sampled from stored text: the weights of the corpora, the seed, and how many
    pairs are in memory at once."""

    pairs_at_once: int
    weights: list[float]
    """Weight of each corpus."""
    seed: int


class StreamedCorpus:
    """Stored text that is read and batched in parts of at most `pairs_at_once` pairs.

    Each epoch shuffles blocks of neighbours over all corpora, and within a part all pairs. The
    fraction of a weight is the share of pairs in one more copy of each block. Everything depends on
    (seed, epoch, part) only, so a resumed run, and each of several processes, sees what an
    uninterrupted one would.
    """

    def __init__(
        self,
        text: StoredText,
        ids: StoredIds,
        tokenizer: Tokenizer,
        options: CorpusOptions,
        sampling: Sampling,
    ) -> None:
        self.text, self.ids, self.options, self.sampling = text, ids, options, sampling
        self._lay_out = partial(BatchedCorpus, tokenizer=tokenizer, options=options)
        most = sampling.pairs_at_once // _LEAST_BLOCKS
        self._block_size = max(1, min(_MOST_NEIGHBOURS, most))
        self.dropped: dict[int, Counter[str]] = defaultdict(Counter)
        for origin in range(len(ids.corpora)):
            for sizes in self.sizes(origin):
                empty = (sizes == 0).any(axis=1)
                self.dropped[origin]["no piece"] += int(empty.sum())
                self.dropped[origin]["too many pieces"] += int(
                    (~empty & (sizes.max(axis=1) > options.max_pieces)).sum()
                )
            self.dropped[origin] = +self.dropped[origin]  # drops counts of 0
        self.trained_on = [
            len(rows) - self.dropped[origin].total() for origin, (rows, _) in enumerate(ids.corpora)
        ]
        """Remaining pairs of each corpus."""

    @property
    def digest(self) -> str:
        """A hash of the ids and of everything that decides how often each pair comes."""
        options = self.options
        decisive = [self.ids.digest, self.sampling.weights, options.prefixes, options.max_pieces]
        return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()

    def sizes(self, origin: int) -> Iterator[Ints]:
        """Number of pieces of both sides of a corpus's pairs, with the tag in the source; 0 for a
        dropped side."""
        sources, targets = self.ids.corpora[origin]
        for first, last in _spans(len(sources), _AT_ONCE):
            sizes = sources.sizes(first, last)
            sizes = np.where(sizes > 0, sizes + len(self.options.prefixes[origin]), 0)
            yield np.stack([sizes, targets.sizes(first, last)], axis=1)

    def chunks(self) -> Iterator[Chunk]:
        """All training pairs, in pieces of one corpus."""
        for origin, (rows, _) in enumerate(self.ids.corpora):
            for first, last in _spans(len(rows), _AT_ONCE):
                laid = self._lay_out(
                    self.text.pairs(origin, first, last),
                    ids=self.ids.pairs(origin, first, last),
                    weights=[self.sampling.weights[origin]] * (last - first),
                    origins=[origin] * (last - first),
                    seed=self.sampling.seed,
                )
                yield from laid.chunks()

    def parts(self, begun: int = 0) -> int:
        """Number of parts of an epoch that starts at the given step."""
        return self._cut(self._blocks(begun))[1]

    def epoch(self, epoch: int, begun: int = 0, part: int = 0) -> list[list[IdPair]]:
        """The batches of one part of an epoch that starts at the given step."""
        seed = self.sampling.seed
        blocks = self._blocks(begun)
        blocks = blocks[np.random.default_rng((seed, epoch)).permutation(len(blocks))]
        part_of, _ = self._cut(blocks)
        pairs: list[Pair] = []
        ids: list[IdPair] = []
        weights: list[float] = []
        origins: list[int] = []
        for block in blocks[part_of == part]:
            origin, first, last = int(block["origin"]), int(block["first"]), int(block["last"])
            count = last - first
            ids += self.ids.pairs(origin, first, last)
            with_text = self.options.reads_text
            pairs += self.text.pairs(origin, first, last) if with_text else [("", "")] * count
            weights += [float(block["share"])] * count
            origins += [origin] * count
        own = int(np.random.SeedSequence((seed, epoch, part)).generate_state(1)[0])
        laid = self._lay_out(pairs, ids=ids, weights=weights, origins=origins, seed=own)
        return laid.epoch(epoch)

    def _blocks(self, begun: int) -> np.ndarray[Any, Any]:
        """The blocks of an epoch, each repeated by the weight of its corpus."""
        blocks = []
        for origin, (rows, _) in enumerate(self.ids.corpora):
            until = self.options.until[origin]
            if until is not None and until <= begun:
                continue
            whole, fraction = divmod(self.sampling.weights[origin], 1)
            for share in [1.0] * int(whole) + [fraction] * (fraction > 0):
                blocks += [
                    (origin, first, last, share)
                    for first, last in _spans(len(rows), self._block_size)
                ]
        return np.array(blocks, dtype=_BLOCK)

    def _cut(self, blocks: np.ndarray[Any, Any]) -> tuple[Ints, int]:
        """The number of the part that each block belongs to, and the number of parts, which have
        about the same size."""
        sizes = (blocks["last"] - blocks["first"]) * blocks["share"]
        count = max(1, math.ceil(sizes.sum() / self.sampling.pairs_at_once))
        part_of = ((np.cumsum(sizes) - sizes) * (count / max(1.0, sizes.sum()))).astype(np.int64)
        return np.minimum(part_of, count - 1), count


def _spans(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Begin and end of consecutive spans of `size`; the last one may be shorter."""
    for first in range(0, count, size):
        yield first, min(first + size, count)


def _batched(pairs: Iterator[Pair]) -> Iterator[list[Pair]]:
    while some := list(islice(pairs, _AT_ONCE)):
        yield some


def _meta(folder: Path) -> dict[str, Any] | None:
    if not folder.exists():
        return None
    try:
        found: dict[str, Any] = json.loads((folder / _META).read_text())
    except (OSError, ValueError) as error:
        logger.warning("%s: cannot be read and is made again: %s", folder, error)
        return None
    logger.info("found %s", folder)
    return found


def _open(folder: Path, count: int, dtype: str) -> list[tuple[WrittenRows, WrittenRows]]:
    return [
        (
            WrittenRows(folder / f"{origin}-source", dtype),
            WrittenRows(folder / f"{origin}-target", dtype),
        )
        for origin in range(count)
    ]
