"""Terms that a translation must or must not hold, as sequences of ids.

Required terms follow Post & Vilar 2018, "Fast lexically constrained decoding with dynamic beam
allocation": beams are shared out among hypotheses that have come equally far with the terms, so
that those with a term compete with each other and not with those without.

Shape letters: K beams, V vocabulary, N candidates.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from serving.arrays import Floats
from serving.search.logits import Best, best_continuations, forbid_ends

Ids = tuple[int, ...]
_Endings = dict[int, dict[Ids, list[int]]]
"""The last ids of terms, by the number of ids before them and by these ids."""


@dataclass(frozen=True)
class Constraints:
    """Terms that the hypotheses of a sentence must or must not contain, as sequences of ids.

    The scores of hypotheses stay the model's.
    """

    required: tuple[Ids, ...] = ()
    forbidden: tuple[Ids, ...] = ()
    """Terms that are forbidden everywhere."""
    forbidden_after: tuple[Ids, ...] = ()
    """Terms that are forbidden at the beginning and after one of `signs`, where a word has no space
    before it."""
    signs: frozenset[int] = field(default_factory=frozenset)
    """Ids of pieces that end with a sign, such as a bracket. A word after them has no space."""

    @property
    def without_required(self) -> Constraints | None:
        """Only the forbidden terms; None if there are none."""
        if not (self.forbidden or self.forbidden_after):
            return None
        return replace(self, required=())

    def missing(self, tokens: Sequence[int]) -> int:
        """Number of required terms that the tokens do not contain."""
        return sum(not _holds(tokens, term) for term in self.required)

    def restrict(self, log_probs_V: Floats, history: Sequence[int], ends: Sequence[int]) -> None:
        """Set to -inf, in place: ids that would complete a forbidden term and, while a required
        term is missing, ids that end a hypothesis."""
        for length, endings in self._endings.items():
            _forbid(log_probs_V, history, length, endings)
        for length, endings in self._endings_after.items():
            before = len(history) - length - 1
            if before < 0 or history[before] in self.signs:
                _forbid(log_probs_V, history, length, endings)
        if self.missing(history):
            forbid_ends(log_probs_V, ends)

    @functools.cached_property
    def _endings(self) -> _Endings:
        """The ids that would complete a forbidden term, indexed so that few of many terms are
        looked at."""
        return _by_beginning(self.forbidden)

    @functools.cached_property
    def _endings_after(self) -> _Endings:
        return _by_beginning(self.forbidden_after)

    def progress(self, tokens: Sequence[int]) -> int:
        """Number of tokens of required terms in the hypothesis: all tokens of complete terms, and
        for the others the longest beginning of the term with which the hypothesis ends."""
        done = under_way = 0
        for term in self.required:
            if _holds(tokens, term):
                done += len(term)
            else:
                starts = range(len(term) - 1, 0, -1)
                under_way = max(
                    under_way, next((n for n in starts if _ends_with(tokens, term[:n])), 0)
                )
        return done + under_way

    def next_tokens(self, history: Sequence[int]) -> set[int]:
        """The tokens that begin or continue a required term that the history does not contain
        yet."""
        return {
            term[count]
            for term in self.required
            if not _holds(history, term)
            for count in range(len(term))
            if _ends_with(history, term[:count])
        }


def allocate(
    log_probs_KV: Floats,
    scores_K: Floats,
    histories: Sequence[Sequence[int]],
    constraints: Constraints,
    count: int,
) -> Best:
    """Up to `count` candidates: first those that get the K beams, best first, then the others, best
    first. `histories` are the ids of each beam; a dead beam's score is -inf."""
    beams, vocab_size = log_probs_KV.shape
    total_KV = log_probs_KV + scores_K[:, None]
    _, tokens, parents = best_continuations(log_probs_KV, scores_K, count)
    pool = set(zip(parents.tolist(), tokens.tolist(), strict=True))
    for beam in np.flatnonzero(np.isfinite(scores_K)).tolist():
        pool |= {(beam, token) for token in constraints.next_tokens(histories[beam])}
        pool.add((beam, int(total_KV[beam].argmax())))
    ranked = sorted(
        (place for place in pool if total_KV[place] > -np.inf),
        key=lambda place: (-total_KV[place], place[0] * vocab_size + place[1]),
    )
    banks: dict[int, list[tuple[int, int]]] = {}
    for beam, token in ranked:
        banks.setdefault(constraints.progress([*histories[beam], token]), []).append((beam, token))
    chosen = set(_share_out(banks, sum(map(len, constraints.required)), beams))
    order = [place for place in ranked if place in chosen]
    order = [*order, *(place for place in ranked if place not in chosen)][:count]
    parents_N, tokens_N = np.array(order, dtype=np.int32).reshape(-1, 2).T
    scores_N: Floats = total_KV[parents_N, tokens_N]
    return scores_N, tokens_N, parents_N


def _share_out(
    banks: dict[int, list[tuple[int, int]]], most: int, beams: int
) -> list[tuple[int, int]]:
    """Places (beam, token) for the beams of the next step, divided among banks.

    A bank is the number of required tokens that a hypothesis contains, from 0 to `most`; its places
    are sorted, best first. All banks get equally many beams, and the highest one also gets the
    remainder. Beams that a bank cannot use go to the remaining places of the others, highest bank
    first.
    """
    share, rest = divmod(beams, most + 1)
    chosen: list[tuple[int, int]] = []
    left: list[tuple[int, int]] = []
    for bank in sorted(banks, reverse=True):
        size = share + (rest if bank == max(banks) else 0)
        chosen += banks[bank][:size]
        left += banks[bank][size:]
    return [*chosen, *left[: beams - len(chosen)]]


def _by_beginning(terms: Iterable[Ids]) -> _Endings:
    found: _Endings = {}
    for *beginning, last in terms:
        lasts = found.setdefault(len(beginning), {})
        lasts.setdefault(tuple(beginning), []).append(last)
    return found


def _forbid(
    log_probs_V: Floats, history: Sequence[int], length: int, endings: dict[Ids, list[int]]
) -> None:
    """Set to -inf the ids that follow, in a term, the last `length` ids of the history."""
    if length <= len(history):
        lasts = endings.get(tuple(history[len(history) - length :]))
        if lasts:
            log_probs_V[lasts] = -np.inf


def _ends_with(tokens: Sequence[int], end: Sequence[int]) -> bool:
    return len(tokens) >= len(end) and list(tokens[len(tokens) - len(end) :]) == list(end)


def _holds(tokens: Sequence[int], term: Sequence[int]) -> bool:
    """Whether the tokens contain the term. `index` finds its first token much faster than a loop;
    this runs for each term at each step of each beam."""
    size, start, last = len(term), 0, len(tokens) - len(term)
    while start <= last:
        try:
            start = tokens.index(term[0], start, last + 1)
        except ValueError:
            return False
        if list(tokens[start : start + size]) == list(term):
            return True
        start += 1
    return False
