"""What is asked of every system that is measured, whatever runs it: whole calls, from what a caller
has to what he gets.

With a tokenizer a call goes from texts to texts, else from ids to ids.
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
    """What a worker process loads, and with how many threads."""

    kind: str
    folder: str
    precision: str
    workers: int
    threads: int
    tokenizer_file: str | None
    """None for calls on ids."""
    shortlist: bool = False
    shared_calls: bool = True
    """Whether CTranslate2's workers share a call; else each takes calls of its own."""
    device: str = "cpu"
    """As `System` has it."""
    graphs: bool = False
    streams: int = 1
    """The same."""


@dataclass(frozen=True)
class Search:
    """How a call is decoded; length penalty 1, patience 1, no loop guard."""

    beam_size: int
    max_length: int
    """Tokens generated at most, eos included."""
    top_k: int = 0
    """Language models draw from so many; 1 is greedy."""

    def options(self, *, shortlist: bool = False) -> SearchOptions:
        """The same for this engine."""
        return SearchOptions(
            beam_size=self.beam_size,
            max_length=self.max_length,
            loop_guard=False,
            verify=False,
            shortlist=shortlist,
        )


@dataclass(frozen=True)
class SystemOutput:
    """One result in a form that can be compared between systems."""

    tokens: tuple[str, ...]
    """Pieces, or ids in decimals, without eos."""
    score: float
    """Log-probability over the number of generated tokens, eos included where it was reached."""
    text: str = ""


class LoadedSystem(Protocol):
    """A system in memory. Only `call` is timed: the others are the benchmark's own needs."""

    def prepare(self, sources: Sources) -> list[Any]:
        """Sources as a caller of this system would hold them."""

    def call(self, sources: list[Any], search: Search) -> list[Any]:
        """One whole call; its results are the system's own objects."""

    def outputs(self, results: list[Any]) -> list[SystemOutput]:
        """Results of `call` in a form that can be compared between systems."""

    def scored(self, sources: list[Any], search: Search) -> list[SystemOutput]:
        """What `call` and `outputs` give, with scores where `call` leaves them out."""


ID_MANIFEST = "graphs.json"
"""The manifest of graphs without a tokenizer, which is no bundle."""


def read_id_manifest(folder: str) -> Manifest:
    """The manifest beside such graphs."""
    return Manifest.model_validate(json.loads((Path(folder) / ID_MANIFEST).read_text()))


_LETTERS = str.maketrans("0123456789", "abcdefghij")
_DIGITS = str.maketrans("abcdefghij", "0123456789")


def id_token(token_id: int) -> str:
    """The written form of an id where there is no tokenizer: its digits as the letters a to j,
    since texts without letters are not translated."""
    if token_id <= EOS_ID:
        return ("<pad>", "<unk>", "<s>", "</s>")[token_id]
    return str(token_id).translate(_LETTERS)


def token_id(word: str) -> int:
    """The id that `id_token` writes so."""
    return int(word.translate(_DIGITS))
