"""Word alignment between a translation and its source, from the model's attention.

Shape letters: T target pieces, S source pieces, I target words, J source words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serving.arrays import Doubles, Floats

Span = tuple[int, int]
"""Begin and end in a text, in characters (code points)."""

MIN_PROBABILITY = 0.2
"""Smallest attention share of a linked source word (docs/background/engine.md)."""
_WORD = re.compile(r"[\w\u0300-\u036f]+(?:['’-][\w\u0300-\u036f]+)*|[^\w\s]")


@dataclass(frozen=True)
class Link:
    """A target word and the source word that it translates."""

    source: Span
    target: Span
    probability: float
    """Share of the target word's attention."""


def word_spans(text: str) -> list[Span]:
    """Spans of the words, with inner hyphens and apostrophes, and of each other sign on its own."""
    return [match.span() for match in _WORD.finditer(text)]


def word_weights(
    attention_TS: Floats,
    source_words: Sequence[Span],
    source_pieces: Sequence[Span],
    target_words: Sequence[Span],
    target_pieces: Sequence[Span],
) -> Doubles:
    """Share of each target word's attention that each source word gets, [I, J].

    Shares are summed over the pieces of a source word and averaged over those of a target word. A
    piece within several words is divided by characters. Attention to eos counts for no word.
    """
    shares_SJ = _shares(source_pieces, source_words)
    shares_TI = _shares(target_pieces, target_words)
    weight_I = np.maximum(shares_TI.sum(axis=0), 1e-9)
    attention_TS = attention_TS[: len(shares_TI), : len(shares_SJ)]
    weights_IJ: Doubles = (shares_TI.T @ attention_TS @ shares_SJ) / weight_I[:, None]
    return weights_IJ


def word_links(
    attention_TS: Floats,
    source_words: Sequence[Span],
    source_pieces: Sequence[Span],
    target_words: Sequence[Span],
    target_pieces: Sequence[Span],
) -> tuple[Link, ...]:
    """The best source word of each target word, in the target's order (`word_weights`)."""
    if not (source_words and target_words):
        return ()
    weights_IJ = word_weights(
        attention_TS, source_words, source_pieces, target_words, target_pieces
    )
    best_I = weights_IJ.argmax(axis=1).tolist()
    probability_I = weights_IJ.max(axis=1).tolist()
    return tuple(
        Link(source_words[best], target, probability)
        for target, best, probability in zip(target_words, best_I, probability_I, strict=True)
        if probability >= MIN_PROBABILITY
    )


def _shares(pieces: Sequence[Span], words: Sequence[Span]) -> Doubles:
    """Share of each piece that lies in each word, [pieces, words]; a row's sum is 1, or 0 if the
    piece is in no word."""
    begin_P, end_P = np.array(pieces, dtype=np.int64).reshape(-1, 2).T
    begin_W, end_W = np.array(words, dtype=np.int64).reshape(-1, 2).T
    end_P = np.maximum(end_P, begin_P + 1)  # of a character's bytes only one has its width
    overlap = np.minimum(end_P[:, None], end_W) - np.maximum(begin_P[:, None], begin_W)
    overlap_PW = np.maximum(overlap, 0).astype(np.float64)
    total_P1 = overlap_PW.sum(axis=1, keepdims=True)
    shares: Doubles = overlap_PW / np.maximum(total_P1, 1.0)
    return shares
