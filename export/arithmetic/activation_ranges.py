"""Ranges of activations: for each int8 product one static scale, from its inputs on some text.

A static scale saves the operators that find each row's own scale. It fits where rows are alike; a
product whose rows differ much keeps a scale for each row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from export.arithmetic.quantize import QuantizedLinear, StaticRange, run_watched
from serving.search.beams.sentence import Sentence
from serving.search.options import SearchOptions
from serving.translation.offline import decode_in_batches
from training.decoding.stepper import TorchStepper
from training.models import TranslationModel

MOST_SPREAD = 4.0
"""The largest value of all rows over the root mean square of the rows' own largest ones, at most:
with it, a usual row has lost two of the eight bits."""

logger = logging.getLogger(__name__)


class _Watch:
    """What the rows of one product's input were."""

    def __init__(self) -> None:
        self.peak, self.least, self._squares, self._rows = 0.0, 0.0, 0.0, 0

    def __call__(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        x: Tensor = inputs[0]
        peaks_M = x.detach().abs().amax(-1).flatten().double()
        self.peak = max(self.peak, float(peaks_M.max()))
        self.least = min(self.least, float(x.min()))
        self._squares += float(peaks_M.square().sum())
        self._rows += peaks_M.numel()

    @property
    def spread(self) -> float:
        """How much larger the largest row is than a usual one."""
        usual = (self._squares / max(1, self._rows)) ** 0.5
        return self.peak / usual if usual > 0 else float("inf")


def measure_ranges(twin: nn.Module, run: Callable[[], object]) -> dict[bytes, StaticRange]:
    """Give products of a quantised twin static scales, by what `run` puts through them.

    Returns the range of each by the key of its weights. Products that `run` does not reach,
    or whose rows differ too much, keep a scale for each row.
    """
    watches: dict[QuantizedLinear, _Watch] = {}
    hooks = []
    for module in twin.modules():
        if isinstance(module, QuantizedLinear):
            watches[module] = _Watch()
            hooks.append(module.register_forward_pre_hook(watches[module]))
    run_watched(run, hooks)
    ranges: dict[bytes, StaticRange] = {}
    for module, watch in watches.items():
        if watch.spread <= MOST_SPREAD:
            module.range = StaticRange(watch.peak, signed=watch.least < 0)
            ranges[module.key] = module.range
    logger.info("static activations: %d of %d products", len(ranges), len(watches))
    return ranges


def measure_translation_ranges(
    twin: TranslationModel, sentences: Sequence[Sentence], max_length: int | None = None
) -> dict[bytes, StaticRange]:
    """`measure_ranges` in beam searches of sentences."""
    return measure_ranges(twin, lambda: search_from(twin, sentences, max_length))


def search_from(
    model: TranslationModel, sentences: Sequence[Sentence], max_length: int | None = None
) -> None:
    """Run beam searches for what goes through the model in them."""
    options = SearchOptions(max_length=max_length, loop_guard=False)
    searches = dict(enumerate(replace(sentence, options=options) for sentence in sentences))
    list(decode_in_batches(TorchStepper(model), searches))
