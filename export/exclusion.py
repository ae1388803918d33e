"""Which products keep fp32 weights: the fewest without which int8 would cost too much."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from torch import nn

from export.language_parity import MAX_PERPLEXITY_CHANGE
from export.parity import MAX_LOG_PROB_CHANGE, search_all, total_log_probs
from export.quantize import QuantizedLinear
from serving.search.options import SearchOptions
from serving.search.sentence import Sentence
from training.models import CausalLanguageModel, TranslationModel
from training.perplexity import Window, score_windows
from training.stepper import TorchStepper

LOG_PROB_CHANGE = MAX_LOG_PROB_CHANGE / 2
"""What a translation model may come to on the text that decides: half of what it may later on all
of the development set."""
PERPLEXITY_CHANGE = MAX_PERPLEXITY_CHANGE["int8"] / 2
"""The same of a language model."""

logger = logging.getLogger(__name__)


def keep_exact(twin: nn.Module, change: Callable[[], float], limit: float) -> frozenset[bytes]:
    """Give products of a quantised twin their fp32 weights back until `change` is within the limit.

    `change` tells how far the twin is from its checkpoint, on some text; 0 is equal. Those come
    first that bring the twin nearest to it by themselves. Returns the keys of their weights: none
    where the twin is near enough as it is, all where nothing less will do.
    """

    def mend(product: QuantizedLinear, *, mended: bool) -> None:
        product.exact = mended

    return _mend_until(_products(twin), mend, change, limit, "fp32 weights")


def keep_rows(twin: nn.Module, change: Callable[[], float], limit: float) -> frozenset[bytes]:
    """`keep_exact` by milder means: products of static activations get a scale for each row."""
    ranges = {product: product.range for product in _products(twin) if product.range is not None}

    def mend(product: QuantizedLinear, *, mended: bool) -> None:
        product.range = None if mended else ranges[product]

    return _mend_until(list(ranges), mend, change, limit, "scales for each row")


class _Mend(Protocol):
    """Mends a product, or undoes that."""

    def __call__(self, product: QuantizedLinear, *, mended: bool) -> None: ...


def _products(twin: nn.Module) -> list[QuantizedLinear]:
    return [module for module in twin.modules() if isinstance(module, QuantizedLinear)]


def _mend_until(
    products: Sequence[QuantizedLinear],
    mend: _Mend,
    change: Callable[[], float],
    limit: float,
    what: str,
) -> frozenset[bytes]:
    """Mend products, the most useful first, until `change` is within the limit; returns the keys of
    their weights."""
    if abs(change()) <= limit:
        return frozenset()
    alone: dict[QuantizedLinear, float] = {}
    for product in products:
        mend(product, mended=True)
        alone[product] = abs(change())
        mend(product, mended=False)
    kept: list[QuantizedLinear] = []
    for product in sorted(products, key=alone.__getitem__):
        mend(product, mended=True)
        kept.append(product)
        if abs(change()) <= limit:
            break
    logger.info("%s: %d of %d products", what, len(kept), len(products))
    return frozenset(product.key for product in kept)


def keep_exact_translation(
    model: TranslationModel, twin: TranslationModel, sentences: Sequence[Sentence]
) -> frozenset[bytes]:
    """`keep_exact` by the log-probability of the checkpoint's own outputs, nats a
    token."""
    options = SearchOptions(loop_guard=False)
    sentences = [replace(sentence, options=options) for sentence in sentences]
    checkpoint, stepper = TorchStepper(model), TorchStepper(twin)
    outputs = search_all(checkpoint, sentences)
    own = total_log_probs(checkpoint, sentences, outputs).sum()
    tokens = sum(len(output) + 1 for output in outputs)

    def change() -> float:
        return float(total_log_probs(stepper, sentences, outputs).sum() - own) / tokens

    return keep_exact(twin, change, LOG_PROB_CHANGE)


def keep_exact_language(
    model: CausalLanguageModel, twin: CausalLanguageModel, windows: list[Window]
) -> frozenset[bytes]:
    """`keep_exact` by the relative change of perplexity on windows of a text."""
    own, tokens = score_windows(model, windows), sum(window.scored for window in windows)

    def change() -> float:
        return math.expm1((score_windows(twin, windows) - own) / tokens)

    return keep_exact(twin, change, PERPLEXITY_CHANGE)
