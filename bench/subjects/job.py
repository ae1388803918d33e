"""The task of every measured system: whole calls, from the caller's input to the caller's result.

With a tokenizer, calls map texts to texts; without one, ids to ids.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from serving.bundle.manifest import Manifest
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions

Sources = Sequence[str] | Sequence[list[int]]
"""Texts, or ids that end with eos."""


@dataclass(frozen=True)
class BenchJob:
    """The job of a worker process, and its number of threads."""

    kind: str
    folder: str
    precision: str
    workers: int
    threads: int
    tokenizer_file: str | None
    """The file of the tokenizer; None if calls take ids."""
    shortlist: bool = False
    shared_calls: bool = True
    """Whether CTranslate2's workers share a call; otherwise each takes whole calls."""
    device: str = "cpu"
    """The device, as in `System`."""
    graphs: bool = False
    streams: int = 1
    """The number of streams, as in `System`."""


@dataclass(frozen=True)
class Search:
    """The options of decoding; length penalty 1, patience 1, no loop guard."""

    beam_size: int
    max_length: int
    """Largest number of generated tokens, eos included."""
    top_k: int = 0
    """Language models: number of likeliest tokens to draw from; 1 is greedy."""

    def options(self, *, shortlist: bool = False) -> SearchOptions:
        """The same options for this engine."""
        return SearchOptions(
            beam_size=self.beam_size,
            max_length=self.max_length,
            loop_guard=False,
            verify=False,
            shortlist=shortlist,
        )


@dataclass(frozen=True)
class SystemOutput:
    """A result in a form that can be compared between systems."""

    tokens: tuple[str, ...]
    """Pieces, or ids as decimals, without eos."""
    score: float
    """Log-probability per generated token, eos included if it was reached."""
    text: str = ""


class LoadedSystem(Protocol):
    """A system in memory. Only `call` is timed; the other methods support the benchmark."""

    def prepare(self, sources: Sources) -> list[Any]:
        """The sources in the form that callers of this system use."""

    def call(self, sources: list[Any], search: Search) -> list[Any]:
        """Make one whole call; the results are the system's own objects."""

    def outputs(self, results: list[Any]) -> list[SystemOutput]:
        """The results of `call` in a form that can be compared between systems."""

    def scored(self, sources: list[Any], search: Search) -> list[SystemOutput]:
        """The outputs of a call with their scores, even if `call` leaves scores out."""


ID_MANIFEST = "graphs.json"
"""The manifest of graphs without a tokenizer, which are not a bundle."""


def read_id_manifest(folder: str) -> Manifest:
    """Read the manifest beside such graphs."""
    return Manifest.model_validate(json.loads((Path(folder) / ID_MANIFEST).read_text()))


_LETTERS = str.maketrans("0123456789", "abcdefghij")
_DIGITS = str.maketrans("abcdefghij", "0123456789")


def id_token(token_id: int) -> str:
    """The written form of an id without a tokenizer: its digits as the letters a to j, because
    texts without letters are not translated."""
    if token_id <= EOS_ID:
        return ("<pad>", "<unk>", "<s>", "</s>")[token_id]
    return str(token_id).translate(_LETTERS)


def token_id(word: str) -> int:
    """The inverse of `id_token`."""
    return int(word.translate(_DIGITS))
