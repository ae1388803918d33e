"""A random segmentation of each text in each epoch: subword regularisation for unigram models (Kudo
2018), BPE-dropout for merges (Provilkov et al. 2020).

SentencePiece can sample too, but its generator, although seeded, differs from process to process
(0.2.3), so a resumed run would see other pieces than an unbroken one.
"""

from __future__ import annotations

import math
import random
import re
from bisect import bisect
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import sentencepiece

from serving.bundle.tokenizer import Tokenizer
from serving.search.ids import UNK_ID

_SPACE = "\u2581"  # stands for a space in pieces
_UNKNOWN_PENALTY = 10.0  # SentencePiece's: an unknown character costs this more than any piece


class _Arrivals(NamedTuple):
    """Ways to reach one position of a word: a start, a piece, and the sum of shares up to it."""

    starts: list[int]
    pieces: list[tuple[int, ...]]
    shares: list[float]


class _Sampler:
    """Draws the pieces of each word on its own: a word's pieces do not depend on its neighbours."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._model = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.serialized())
        self._scores: dict[str, tuple[int, float]] = {}
        for id_ in range(tokenizer.vocab_size):
            if not (
                self._model.is_control(id_)
                or self._model.is_unknown(id_)
                or self._model.is_byte(id_)
                or self._model.is_unused(id_)
            ):
                self._scores[self._model.id_to_piece(id_)] = (id_, self._model.get_score(id_))
        self._bytes = [self._model.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        across = any(_SPACE in piece[1:] for piece in self._scores)
        self._words = re.compile(".+" if across else f"{_SPACE}?[^{_SPACE}]+|{_SPACE}", re.DOTALL)

    def sample(self, texts: Iterable[str], seed: str) -> list[list[int]]:
        """Piece ids of each text, without bos and eos; equal arguments always give equal ids."""
        draw = random.Random(seed).random
        sampled = []
        for text in texts:
            ids: list[int] = []
            for word in self._words.findall(self._model.normalize(text)):
                ids += self._draw_word(word, draw)
            sampled.append(ids)
        return sampled

    def _draw_word(self, word: str, draw: Callable[[], float]) -> list[int]:
        raise NotImplementedError

    def _spell(self, character: str) -> tuple[int, ...]:
        """The bytes of a character that is not a piece, or unk if the model has no bytes."""
        if UNK_ID in self._bytes:
            return (UNK_ID,)
        return tuple(self._bytes[byte] for byte in character.encode())


class UnigramSampler(_Sampler):
    """Draws segmentations of a unigram model with probability proportional to P(pieces)^alpha.

    All segmentations are drawn from: forward filtering, backward sampling over the lattice (Kudo
    2018, section 3.2, with l unlimited), which is built once per word.
    """

    def __init__(self, tokenizer: Tokenizer, alpha: float) -> None:
        super().__init__(tokenizer)
        self._alpha = alpha
        self._longest = max(map(len, self._scores))
        self._unknown = min(score for _, score in self._scores.values()) - _UNKNOWN_PENALTY
        self._lattice = lru_cache(maxsize=50_000)(self._build_lattice)

    def _draw_word(self, word: str, draw: Callable[[], float]) -> list[int]:
        lattice = self._lattice(word)
        end, pieces = len(word), []
        while end:
            arrivals = lattice[end]
            choice = 0
            if len(arrivals.starts) > 1:
                # Shares are not rescaled to end at 1, so that rounding cannot overshoot.
                choice = bisect(arrivals.shares, draw() * arrivals.shares[-1])
                choice = min(choice, len(arrivals.starts) - 1)
            pieces.append(arrivals.pieces[choice])
            end = arrivals.starts[choice]
        return [id_ for piece in reversed(pieces) for id_ in piece]

    def _build_lattice(self, word: str) -> list[_Arrivals]:
        """The ways to reach each position, with their shares of the probability mass there."""
        mass = [0.0]  # log of the sum over segmentations of word[:position] of P^alpha
        lattice = [_Arrivals([], [], [])]
        for end in range(1, len(word) + 1):
            starts, pieces, weights = [], [], []
            for start in range(max(0, end - self._longest), end):
                known = self._scores.get(word[start:end])
                if known is None and end - start > 1:
                    continue
                id_, score = known or (UNK_ID, self._unknown)
                starts.append(start)
                pieces.append((id_,) if known else self._spell(word[start]))
                weights.append(mass[start] + self._alpha * score)
            highest = max(weights)
            shares = list(accumulate(math.exp(weight - highest) for weight in weights))
            mass.append(highest + math.log(shares[-1]))
            lattice.append(_Arrivals(starts, pieces, shares))
        return lattice


class BpeSampler(_Sampler):
    """Merges characters as the model does, but leaves out each possible merge of each step with
    probability `dropout`; a word is done when a step has no merge left (Provilkov et al. 2020,
    algorithm 1)."""

    def __init__(self, tokenizer: Tokenizer, dropout: float) -> None:
        super().__init__(tokenizer)
        self._dropout = dropout

    def _draw_word(self, word: str, draw: Callable[[], float]) -> list[int]:
        pieces = list(word)
        while True:
            best, highest = -1, -math.inf
            for place in range(len(pieces) - 1):
                known = self._scores.get(pieces[place] + pieces[place + 1])
                if known is not None and draw() >= self._dropout and known[1] > highest:
                    best, highest = place, known[1]
            if best < 0:
                break
            pieces[best : best + 2] = [pieces[best] + pieces[best + 1]]
        ids: list[int] = []
        for piece in pieces:
            known = self._scores.get(piece)
            ids += self._spell(piece) if known is None else (known[0],)
        return ids


@lru_cache(maxsize=1)
def make_sampler(
    tokenizer: Tokenizer, subword_alpha: float, bpe_dropout: float
) -> UnigramSampler | BpeSampler | None:
    """The sampler of a recipe, or None if texts keep their best segmentation.

    The last sampler is cached together with the words that it has split, because streamed text asks
    for it again and again.
    """
    if subword_alpha:
        return UnigramSampler(tokenizer, subword_alpha)
    return BpeSampler(tokenizer, bpe_dropout) if bpe_dropout else None
