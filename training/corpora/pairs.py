"""Parallel text: reading, cleaning with a report, and setting pairs apart for validation."""

from __future__ import annotations

import codecs
import gzip
import random
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import zstandard

from serving.lines import LineEncodingError, decode_line
from training.errors import CorpusError, reason_of
from training.recipe.filters import Filter, Languages, Unseen, bare

Pair = tuple[str, str]
Item = TypeVar("Item", bound=tuple[Any, ...])
"""A pair, or a pair with further fields after its texts."""
_BLOCK_BYTES = 1 << 20
"""Number of bytes that are read from a file at once."""


@dataclass
class CorpusReport:
    """The numbers of pairs of one corpus that were kept and dropped, counted by the filter that
    dropped them, and the first line that each filter dropped."""

    name: str
    pairs: int = 0
    """Pairs that were read."""
    dropped: Counter[str] = field(default_factory=Counter)
    first_line: dict[str, str] = field(default_factory=dict)
    """File and line of the first pair that each filter dropped."""

    @property
    def kept(self) -> int:
        """Number of pairs that are left, including those held out for validation."""
        return self.pairs - self.dropped.total()

    def drop(self, reason: str, number: int) -> None:
        """Count the pair of a line, counted from 1, as dropped."""
        self.dropped[reason] += 1
        self.first_line.setdefault(reason, f"{self.name}:{number}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the run's folder."""
        return {
            "name": self.name,
            "pairs": self.pairs,
            "kept": self.kept,
            "dropped": dict(self.dropped),
            "first_line": self.first_line,
        }


@dataclass
class CleaningReport:
    """The pairs kept and dropped in each corpus, in the order in which the corpora were cleaned."""

    held_out: int = 0
    """The number of kept pairs that are held out for validation."""
    corpora: list[CorpusReport] = field(default_factory=list)

    @property
    def kept(self) -> int:
        """Number of pairs that are left of all corpora, including those held out."""
        return sum(corpus.kept for corpus in self.corpora)

    @property
    def dropped(self) -> Counter[str]:
        """Pairs of all corpora that were dropped, by filter."""
        return sum((corpus.dropped for corpus in self.corpora), Counter[str]())

    @classmethod
    def from_dict(cls, tree: dict[str, Any]) -> CleaningReport:
        """The report from which `to_dict` was made."""
        corpora = [
            CorpusReport(
                corpus["name"], corpus["pairs"], Counter(corpus["dropped"]), corpus["first_line"]
            )
            for corpus in tree["corpora"]
        ]
        return cls(tree["held_out"], corpora)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the run's folder."""
        first: dict[str, str] = {}
        for corpus in self.corpora:
            first = corpus.first_line | first
        return {
            "kept": self.kept,
            "held_out": self.held_out,
            "dropped": dict(self.dropped),
            "first_line": first,
            "corpora": [corpus.to_dict() for corpus in self.corpora],
        }

    def __str__(self) -> str:
        """The total, and a line for each corpus that lost pairs."""
        lines = [f"kept {self.kept} pairs, dropped {_listing(self.dropped)}"]
        for corpus in self.corpora:
            if corpus.dropped:
                places = ", ".join(
                    f"{reason} first in line {place.rpartition(':')[2]}"
                    for reason, place in corpus.first_line.items()
                )
                listing = f"  {corpus.name}: {_listing(corpus.dropped)}"
                lines.append(f"{listing}; {places}" if places else listing)
        return "\n".join(lines)


@dataclass(frozen=True)
class Corpus:
    """The clean text of a recipe."""

    train: list[Pair]
    origins: list[int]
    """The index in `data.corpora` of the corpus that each training pair is from."""
    validation: list[Pair]
    report: CleaningReport
    validation_directions: list[int]
    """The index in `data.directions` of the direction of each validation pair."""


def _listing(dropped: Counter[str]) -> str:
    reasons = ", ".join(f"{n} {reason}" for reason, n in dropped.most_common())
    return f"{dropped.total()} ({reasons or 'none'})"


def read_lines(path: Path) -> list[str]:
    """All lines of `iterate_lines`, in a list."""
    return list(iterate_lines(path))


def iterate_lines(path: Path) -> Iterator[str]:
    r"""Iterate over the lines of a UTF-8 text, plain, .gz or .zst, without line ends (\n ends a
    line) and byte order mark. The file is read as lines are asked for.

    Raises CorpusError for a missing file, a broken archive and, with its line, a wrong encoding.
    """
    try:
        for number, line in enumerate(_split(_blocks(path)), 1):
            yield decode_line(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line, number)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise CorpusError(f"{path}: cannot be read: {reason_of(error)}") from error
    except LineEncodingError as error:
        raise CorpusError(
            f"{path}:{error.number}: not UTF-8 ({error.reason} at byte {error.start}); "
            "convert the file, for example with iconv"
        ) from error


def _split(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of a text that comes in blocks."""
    rest = b""
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _blocks(path: Path) -> Iterator[bytes]:
    """The unpacked content of a file."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        blocks = iter(lambda: file.read(_BLOCK_BYTES), b"")
        yield from _unpack_zstd(blocks) if path.suffix == ".zst" else blocks


def _unpack_zstd(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The text of one or several frames; raises EOFError if the last one is cut off."""
    frame = None
    for block in blocks:
        while block:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(block)
            block = frame.unused_data
            if frame.eof:
                frame = None
    if frame is not None:
        raise EOFError("compressed file ended before the end of a frame")


def read_pairs(source: Path, target: Path) -> list[Pair]:
    """All pairs of `iterate_pairs`, in a list."""
    return list(iterate_pairs(source, target))


def iterate_pairs(source: Path, target: Path) -> Iterator[Pair]:
    """Iterate over line-aligned pairs of two files, which are read as pairs are asked for.

    Raises CorpusError if the line counts differ or there is no line.
    """
    sides = iterate_lines(source), iterate_lines(target)
    count = 0
    for first, second in zip_longest(*sides):
        if first is None or second is None:
            whole = count + 1 + sum(1 for side in sides for _ in side)
            counts = (count, whole) if first is None else (whole, count)
            raise CorpusError(
                f"{source if first is None else target}:{count + 1}: line missing; {source} has "
                f"{counts[0]} lines, {target} has {counts[1]}; parallel files must be aligned"
            )
        count += 1
        yield first, second
    if not count:
        raise CorpusError(f"{source}:1: the file is empty")


class Cleaner:
    """Drops pairs by named filters and counts them; texts are only stripped of white space.

    A pair with an empty side is dropped before any filter. Filters that compare pairs remember the
    pairs of all corpora, `by_digest` as described in `Unseen`. Cleaners of several directions may
    share a report. Raises ConfigError if a filter does not know the languages.
    """

    def __init__(
        self,
        filters: Sequence[Filter],
        languages: Languages,
        *,
        by_digest: bool = False,
        report: CleaningReport | None = None,
    ) -> None:
        self.report = CleaningReport() if report is None else report
        self._steps = [(step.name, step.start(languages)) for step in filters]
        for _, check in self._steps:
            if isinstance(check, Unseen):
                check.by_digest = by_digest

    def clean(self, pairs: Iterable[Pair], name: str, first_line: int = 1) -> Iterator[Pair]:
        """Iterate over the good pairs of one corpus. The report gets the corpus' name, and counts
        lines from `first_line`; it is complete when all pairs have been taken."""
        report = CorpusReport(name)
        self.report.corpora.append(report)
        for number, (source, target) in enumerate(pairs, first_line):
            report.pairs += 1
            pair = (source.strip(), target.strip())
            reason = self._reason_to_drop(pair)
            if reason is None:
                yield pair
            else:
                report.drop(reason, number)

    def _reason_to_drop(self, pair: Pair) -> str | None:
        if not all(pair):
            return "empty"
        return next((name for name, drops in self._steps if drops(pair)), None)


def hold_out(pairs: list[Item], count: int, seed: int) -> tuple[list[Item], list[Item]]:
    """Split into (training, validation): about `count` pairs, whole groups of equal sources.

    Further fields of a pair stay with it. Raises CorpusError if no training pair would be left.
    """
    of_pair = [bare(pair[0]) for pair in pairs]
    groups: dict[str, list[Item]] = {}
    for key, pair in zip(of_pair, pairs, strict=True):
        groups.setdefault(key, []).append(pair)
    keys = sorted(groups)
    random.Random(seed).shuffle(keys)
    held: set[str] = set()
    size = 0
    for key in keys:
        if size >= count:
            break
        held.add(key)
        size += len(groups[key])
    validation = [pair for key in keys if key in held for pair in groups[key]]
    train = [pair for key, pair in zip(of_pair, pairs, strict=True) if key not in held]
    if not train:
        raise CorpusError(
            f"data.held_out_pairs = {count} leaves none of the {len(pairs)} clean pairs to train "
            "on; lower it or add text"
        )
    return train, validation


def iterate_texts(pairs: list[Pair]) -> Iterator[str]:
    """Iterate over the texts of all pairs: the source, then the target of each."""
    for pair in pairs:
        yield from pair
