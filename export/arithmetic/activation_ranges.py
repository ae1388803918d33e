"""Static activation ranges: one scale for each int8 product, from its inputs on a text.

A static scale saves the operators that find a scale for each row. It fits if all rows are alike; a
product with very different rows keeps a scale for each row.
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
"""Largest ratio of the overall maximum to the root mean square of the rows' own maxima: at this
ratio a usual row has lost two of the eight bits."""

logger = logging.getLogger(__name__)


class _Watch:
    """Statistics of the rows that enter one product."""

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
        """Ratio of the largest row to a usual one."""
        usual = (self._squares / max(1, self._rows)) ** 0.5
        return self.peak / usual if usual > 0 else float("inf")


def measure_ranges(twin: nn.Module, run: Callable[[], object]) -> dict[bytes, StaticRange]:
    """Give products of a quantised twin static scales, measured while `run` runs.

    Returns the range of each, by the key of its weights. A product that `run` does not reach, or
    whose rows differ too much, keeps a scale for each row.
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
    """`measure_ranges` during beam searches of sentences."""
    return measure_ranges(twin, lambda: search_from(twin, sentences, max_length))


def search_from(
    model: TranslationModel, sentences: Sequence[Sentence], max_length: int | None = None
) -> None:
    """Run beam searches, to put typical activations through the model."""
    options = SearchOptions(max_length=max_length, loop_guard=False)
    searches = dict(enumerate(replace(sentence, options=options) for sentence in sentences))
    list(decode_in_batches(TorchStepper(model), searches))
