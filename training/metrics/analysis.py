"""Breaks translation quality down by domain, source length, place in the sentence, word frequency.

Words are cased tokens of sacreBLEU's 13a, as BLEU counts them; a source's length is in words
between spaces, which needs no tokenizer of its language. A word of the reference is matched as
often as the translation of that sentence holds it (BLEU's clipped unigrams).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from training.metrics.bleu import measure_quality

ANALYSES = ("length", "position", "frequency")

# Label and highest value of each bucket.
_LENGTHS = {"0": 0, "1-5": 5, "6-10": 10, "11-15": 15, "16-20": 20, "21-30": 30, "31+": math.inf}
_FREQUENCIES = {
    "0": 0, "1": 1, "2-5": 5, "6-20": 20, "21-100": 100, "101-1000": 1000, ">1000": math.inf
}  # fmt: skip
_PARTS = 5

_tokenize = Tokenizer13a()


@dataclass(frozen=True)
class LengthBucket:
    """Corpus scores of the sentences with a source length in one range."""

    words: str
    sentences: int
    bleu: float
    chrf: float
    length_ratio: float


@dataclass(frozen=True)
class DomainBucket:
    """Corpus scores of the sentences of one domain."""

    domain: str
    sentences: int
    bleu: float
    chrf: float
    length_ratio: float


@dataclass(frozen=True)
class PositionBucket:
    """Matched reference words in one fifth of their sentences."""

    part: str
    words: int
    matched: float
    """Matched share, 0 to 1."""


@dataclass(frozen=True)
class FrequencyBucket:
    """F1 of the words in one range of counts in the training target text; shares are 0 to 1."""

    frequency: str
    reference_words: int
    translation_words: int
    precision: float
    """Matched words over words of the translations."""
    recall: float
    """Matched words over words of the references."""
    f1: float


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Count of each word."""
    return Counter(word for text in texts for word in _words(text))


def quality_by_length(
    sources: list[str], references: list[str], translations: list[str]
) -> list[LengthBucket]:
    """Scores by source length in words; buckets without a sentence are left out."""
    labels = [_bucket(len(source.split()), _LENGTHS) for source in sources]
    scores = _scores_by(labels, references, translations)
    return [LengthBucket(label, *scores[label]) for label in _LENGTHS if label in scores]


def quality_by_domain(
    domains: list[str], references: list[str], translations: list[str]
) -> list[DomainBucket]:
    """Scores by the given domain of each sentence, in order of first appearance."""
    scores = _scores_by(domains, references, translations)
    return [DomainBucket(domain, *found) for domain, found in scores.items()]


def _scores_by(
    labels: list[str], references: list[str], translations: list[str]
) -> dict[str, tuple[int, float, float, float]]:
    """Sentences, BLEU, chrF and length ratio of each label."""
    rows: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        rows.setdefault(label, []).append(row)
    found = {}
    for label, chosen in rows.items():
        quality = measure_quality(
            [translations[i] for i in chosen], [references[i] for i in chosen]
        )
        found[label] = (len(chosen), quality.bleu, quality.chrf, quality.length_ratio)
    return found


def matches_by_position(references: list[str], translations: list[str]) -> list[PositionBucket]:
    """Share of reference words that are matched, by fifths of the reference.

    Word i (from 0) of n has the position (i + 1/2) / n. If a word occurs r times and m of them are
    matched, each occurrence counts m / r: it is unknown which of them is missing, and matching the
    first ones would favour the beginnings. Fifths without a word are left out.
    """
    words, matched = [0] * _PARTS, [0.0] * _PARTS
    for reference, translation in zip(references, translations, strict=True):
        tokens = _words(reference)
        wanted, found = Counter(tokens), Counter(_words(translation))
        for index, token in enumerate(tokens):
            part = _PARTS * (2 * index + 1) // (2 * len(tokens))
            words[part] += 1
            matched[part] += min(1.0, found[token] / wanted[token])
    return [
        PositionBucket(_part_label(part), words[part], matched[part] / words[part])
        for part in range(_PARTS)
        if words[part]
    ]


def f1_by_frequency(
    references: list[str], translations: list[str], training_counts: Mapping[str, int]
) -> list[FrequencyBucket]:
    """F1 of words by their count in the training target text (Neubig et al. 2019, compare-mt).

    Buckets without a reference word are left out, so they are the same for all systems.
    """
    totals = {label: {"reference": 0, "translation": 0, "matched": 0} for label in _FREQUENCIES}
    for reference, translation in zip(references, translations, strict=True):
        wanted, found = Counter(_words(reference)), Counter(_words(translation))
        sides = {"reference": wanted, "translation": found, "matched": wanted & found}
        for side, counts in sides.items():
            for word, count in counts.items():
                totals[_bucket(training_counts.get(word, 0), _FREQUENCIES)][side] += count
    return [
        FrequencyBucket(
            frequency=label,
            reference_words=total["reference"],
            translation_words=total["translation"],
            precision=total["matched"] / max(1, total["translation"]),
            recall=total["matched"] / total["reference"],
            f1=2 * total["matched"] / (total["reference"] + total["translation"]),
        )
        for label, total in totals.items()
        if total["reference"]
    ]


def _words(text: str) -> list[str]:
    words: list[str] = _tokenize(text.rstrip()).split()
    return words


def _bucket(value: int, buckets: Mapping[str, float]) -> str:
    return next(label for label, highest in buckets.items() if value <= highest)


def _part_label(part: int) -> str:
    return f"{100 * part // _PARTS}-{100 * (part + 1) // _PARTS} %"
