"""Log-probabilities of given translations.

Shape letters: B pairs, P tokens of the longest target and its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from serving.errors import DecodingError, RequestError
from serving.queue.limits import BatchLimits, Demand
from serving.runtime.cache_tensors import round_up
from serving.search.ids import SpecialIds
from serving.search.options import Group
from serving.search.stepper import Stepper
from serving.translation.offline import fill_batches
from serving.translation.results import Score
from serving.translation.texts import TextProcessor

_GROUP = Group(beam_size=1, shortlisted=False)
_Pair = tuple[list[int], list[int]]
"""The ids of a source with eos, and of a target without eos."""


def score_pairs(
    texts: TextProcessor,
    stepper: Stepper,
    limits: BatchLimits,
    pairs: Sequence[tuple[str, str]],
    languages: tuple[str | None, str | None] = (None, None),
) -> list[Score]:
    """The log-probability of each target as a translation of its source, in input order.

    `languages` are the languages of sources and targets. Raises RequestError for a text that cannot
    be read or is too long, and DecodingError if the model gives a non-finite score.
    """
    first = texts.first_pieces(languages[1])
    encoded = [
        (
            texts.encode_source(source, *languages),
            [*first, *texts.encode_target(target, "target")],
        )
        for source, target in map(_pair, pairs)
    ]
    demands = {}
    for index, (source, target) in enumerate(encoded):
        length = len(target) + 1
        demands[index] = Demand(_GROUP, max(len(source), length), round_up(length))
        texts.check_memory(demands[index])
    results: dict[int, Score] = {}
    for batch in fill_batches(demands, texts.sizes, limits):
        scores = _token_scores(
            stepper, [encoded[index] for index in batch], texts.manifest.decoding_ids
        )
        for index, token_scores in zip(batch, scores, strict=True):
            pieces = texts.target.pieces(encoded[index][1][len(first) :])
            results[index] = Score(tuple(pieces), token_scores[len(first) :])
    return [results[index] for index in range(len(encoded))]


def _pair(given: object) -> tuple[str, str]:
    """A source and its translation; raises RequestError for anything else."""
    texts = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else []
    if len(texts) != 2:
        raise RequestError(
            f"pairs must be of a source and its translation, got {given!r:.60}", parameter="pairs"
        )
    return texts[0], texts[1]


def _token_scores(
    stepper: Stepper, pairs: Sequence[_Pair], special_ids: SpecialIds
) -> list[tuple[float, ...]]:
    """The log-probability of each token of each target, and of its end."""
    state = stepper.encode([source for source, _ in pairs])
    lengths = [len(target) + 1 for _, target in pairs]
    tokens_BP = np.zeros((len(pairs), max(lengths)), dtype=np.int64)
    labels_BP = np.zeros_like(tokens_BP)
    for row, (length, (_, target)) in enumerate(zip(lengths, pairs, strict=True)):
        tokens_BP[row, :length] = [special_ids.bos, *target]
        labels_BP[row, :length] = [*target, special_ids.eos]
    scores_BP = stepper.prefill(state, tokens_BP, labels_BP).scores_BP
    stepper.free(state)
    found = [scores_BP[row, :length] for row, length in enumerate(lengths)]
    if not all(np.isfinite(scores).all() for scores in found):
        raise DecodingError("the model gave a non-finite score")
    return [tuple(scores.tolist()) for scores in found]
