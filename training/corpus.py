"""Parallel text: reading, cleaning with a report, and setting pairs apart for validation."""

from __future__ import annotations

import codecs
import gzip
import random
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from serving.lines import LineEncodingError, decode_lines
from training.errors import CorpusError

Pair = tuple[str, str]

# UTF-8 read as Latin-1 or Windows-1252 leaves a capital A with tilde or circumflex before a
# character of the range 0x80 to 0xBF; U+FFFD stands where a decoder gave up before us.
_MOJIBAKE = re.compile("[\u00c3\u00c2][\u0080-\u00bf]|\u00e2\u20ac|\ufffd")
_SHORT = 20  # characters under which the length ratio says little


@dataclass
class CleaningReport:
    """How many pairs were kept and dropped, by reason, with the first file and line of each."""

    kept: int = 0
    """Pairs that are left, those held out for validation included."""
    held_out: int = 0
    """Of these, pairs held out."""
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def drop(self, reason: str, where: str) -> None:
        """Count a dropped pair; the place of the first one of each reason is kept as an example."""
        self.dropped[reason] += 1
        self.examples.setdefault(reason, where)

    def drop_kept(self, reason: str, count: int) -> None:
        """Count pairs that a later stage dropped after they had been kept."""
        if count:
            self.kept -= count
            self.dropped[reason] += count

    def to_dict(self) -> dict[str, object]:
        """Plain data for the run's folder."""
        return {
            "kept": self.kept,
            "held_out": self.held_out,
            "dropped": dict(self.dropped),
            "first_line": self.examples,
        }

    def __str__(self) -> str:
        reasons = ", ".join(f"{n} {reason}" for reason, n in self.dropped.most_common())
        return f"kept {self.kept} pairs, dropped {self.dropped.total()} ({reasons or 'none'})"


def read_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 text, plain or .gz, without line ends (\\n ends one) and byte order mark.

    Raises CorpusError for a missing file, a broken archive and, with its line, a wrong encoding.
    """
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{path}: cannot be read: {error}") from error
    try:
        return decode_lines(raw.removeprefix(codecs.BOM_UTF8))
    except LineEncodingError as error:
        raise CorpusError(
            f"{path}:{error.number}: not UTF-8 ({error.reason} at byte {error.start}); "
            "convert the file, for example with iconv"
        ) from error


def read_pairs(source: Path, target: Path) -> list[Pair]:
    """Line-aligned pairs of two files.

    Raises CorpusError where the line counts differ or there is no line.
    """
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        shorter = source if len(sources) < len(targets) else target
        raise CorpusError(
            f"{shorter}:{min(len(sources), len(targets)) + 1}: line missing; {source} has "
            f"{len(sources)} lines, {target} has {len(targets)}; parallel files must be aligned"
        )
    if not sources:
        raise CorpusError(f"{source}:1: the file is empty")
    return list(zip(sources, targets, strict=True))


class Cleaner:
    """Drops pairs that teach nothing good, and counts why; text is only stripped of white space.

    `max_characters` bounds a side, `max_length_ratio` the ratio of characters between the sides
    (pairs of up to 20 characters are let by). Duplicates are found across files.
    """

    def __init__(self, *, max_characters: int = 1000, max_length_ratio: float = 3.0) -> None:
        self.report = CleaningReport()
        self._max_characters, self._max_length_ratio = max_characters, max_length_ratio
        self._seen: set[Pair] = set()

    def clean(self, pairs: list[Pair], origin: str) -> list[Pair]:
        """The good pairs of one file, whose name is `origin` in the report."""
        kept = []
        for number, (source, target) in enumerate(pairs, 1):
            pair = (source.strip(), target.strip())
            reason = self._reason_to_drop(pair)
            if reason:
                self.report.drop(reason, f"{origin}:{number}")
                continue
            self._seen.add(pair)
            kept.append(pair)
        self.report.kept += len(kept)
        return kept

    def _reason_to_drop(self, pair: Pair) -> str | None:
        shorter, longer = sorted(map(len, pair))
        if not shorter:
            return "empty"
        if any(_MOJIBAKE.search(text) or _has_control(text) for text in pair):
            return "wrong encoding"
        if longer > self._max_characters:
            return "too long"
        if longer > _SHORT and longer > self._max_length_ratio * shorter:
            return "length ratio"
        return "duplicate" if pair in self._seen else None


def _has_control(text: str) -> bool:
    return not text.isprintable() and any(
        unicodedata.category(c) in ("Cc", "Cs", "Co") and c != "\t" for c in text
    )


def hold_out(pairs: list[Pair], count: int, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Split into (training, validation): about `count` pairs, whole groups of equal sources.

    Raises CorpusError where no training pair would be left.
    """
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(_group_key(pair[0]), []).append(pair)
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
    train = [pair for pair in pairs if _group_key(pair[0]) not in held]
    if not train:
        raise CorpusError(
            f"data.held_out_pairs = {count} leaves none of the {len(pairs)} clean pairs to train "
            "on; lower it or add text"
        )
    return train, validation


def _group_key(text: str) -> str:
    """Sentences that differ in case, punctuation or spacing only belong together."""
    return "".join(c for c in text.casefold() if c.isalnum()) or text


def iterate_texts(pairs: list[Pair]) -> Iterator[str]:
    """Both sides of every pair."""
    for pair in pairs:
        yield from pair
