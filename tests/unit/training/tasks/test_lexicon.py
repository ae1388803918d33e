"""IBM model 1, against loops."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest

from serving.search.ids import PAD_ID
from training.tasks import lexicon
from training.tasks.lexicon import IdPair, learn_lexicon


def learn_slowly(
    pairs: list[IdPair], rounds: int, tension: float | None = None
) -> dict[tuple[int, int], float]:
    """Expectation maximisation, link by link."""
    probability: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(rounds):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        totals: dict[int, float] = defaultdict(float)
        for source, target in pairs:
            for place, t in enumerate(target):
                words = [PAD_ID, *source]
                prior = prior_slowly(place, len(source), len(target), tension)
                normaliser = sum(probability[s, t] * p for s, p in zip(words, prior, strict=True))
                for s, p in zip(words, prior, strict=True):
                    share = probability[s, t] * p / normaliser
                    counts[s, t] += share
                    totals[s] += share
        probability = defaultdict(float, {k: c / totals[k[0]] for k, c in counts.items()})
    return probability


def prior_slowly(
    place: int, source_length: int, target_length: int, tension: float | None
) -> list[float]:
    """Of the empty word and of each source position."""
    if tension is None:
        return [1.0] * (1 + source_length)
    distances = [
        abs((place + 0.5) / target_length - (i + 0.5) / source_length) for i in range(source_length)
    ]
    near = [math.exp(-tension * distance) for distance in distances]
    return [0.08, *(0.92 * each / sum(near) for each in near)]


def random_pairs(count: int) -> list[IdPair]:
    """A target has the source's pieces plus 100, in any order, and sometimes one more."""
    generator = np.random.default_rng(4)
    pairs = []
    for _ in range(count):
        source = generator.integers(4, 14, generator.integers(1, 6)).tolist()
        target = [piece + 100 for piece in generator.permutation(source).tolist()]
        pairs.append((source, target + [99] * int(generator.integers(0, 2))))
    return pairs


@pytest.mark.parametrize("tension", [None, 0.0, 4.0])
def test_it_equals_the_slow_loop(tension: float | None) -> None:
    pairs = [*random_pairs(30), ([5, 5], [105, 105]), ([], [99]), ([6], [])]
    wanted, found = learn_slowly(pairs, 5, tension), learn_lexicon(pairs, tension)
    keys = list(zip(found.source_P.tolist(), found.target_P.tolist(), strict=True))
    assert set(keys) == set(wanted)
    assert found.probability_P == pytest.approx([wanted[key] for key in keys])


def test_translations_come_out_first() -> None:
    found = learn_lexicon(random_pairs(300))
    first = dict(zip(found.source_P[::-1], found.target_P[::-1], strict=True))
    assert first == {PAD_ID: 99} | {piece: piece + 100 for piece in range(4, 14)}
    for piece in range(4, 14):
        own = found.probability_P[found.source_P == piece]
        assert own.sum() == pytest.approx(1)
        assert (np.diff(own) <= 0).all()


def test_a_large_text_is_thinned_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = random_pairs(300)
    links = sum((len(source) + 1) * len(target) for source, target in pairs)
    third = learn_lexicon(pairs[::3])
    monkeypatch.setattr(lexicon, "MAX_LINKS", links // 3 + 1)
    thinned = learn_lexicon(pairs)
    assert thinned.probability_P == pytest.approx(third.probability_P)


def test_no_pairs_make_an_empty_lexicon() -> None:
    assert learn_lexicon([]).source_P.size == 0
