"""What a precision comes to for one model: which products have which numbers, fitted to a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

from export.activation_ranges import measure_language_ranges, measure_translation_ranges
from export.exclusion import keep_exact_language, keep_exact_translation
from export.half import HALF_TYPES, fit_half_language, fit_half_translation, half_twin
from export.quantize import ModuleT, StaticRange, quantized_twin
from serving.bundle.manifest import Activations
from serving.search.sentence import Sentence
from training.models import CausalLanguageModel, TranslationModel
from training.perplexity import Window


@dataclass(frozen=True)
class Arithmetic(Generic[ModuleT]):
    """What a bundle computes."""

    twin: ModuleT
    """Computes it in PyTorch; for fp32 it is the checkpoint's own model."""
    ranges: Mapping[bytes, StaticRange] | None = None
    """Of int8 products with static activations, None where no product has them."""
    exact: frozenset[bytes] = frozenset()
    """Products that stay fp32 in an int8 or fp16 bundle."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """What was found on the way, for the manifest."""


def choose_translation_arithmetic(
    model: TranslationModel,
    sentences: Sequence[Sentence],
    precision: str,
    activations: Activations,
) -> Arithmetic[TranslationModel]:
    """Make a twin, quantised or rounded, and fit it to sentences."""
    if precision in HALF_TYPES:
        fit = fit_half_translation(model, precision, sentences)
        rounded = half_twin(model, HALF_TYPES[precision], fit.exact)
        return Arithmetic(rounded, exact=fit.exact, report=fit.report)
    if precision != "int8":
        return Arithmetic(model)
    twin = quantized_twin(model)
    ranges = measure_translation_ranges(twin, sentences) if activations == "static" else None
    return Arithmetic(twin, ranges, keep_exact_translation(model, twin, sentences))


def choose_language_arithmetic(
    model: CausalLanguageModel, windows: list[Window], precision: str, activations: Activations
) -> Arithmetic[CausalLanguageModel]:
    """Make a twin, quantised or rounded, and fit it to windows of a text."""
    if precision in HALF_TYPES:
        fit = fit_half_language(model, precision, windows)
        rounded = half_twin(model, HALF_TYPES[precision], fit.exact)
        return Arithmetic(rounded, exact=fit.exact, report=fit.report)
    if precision != "int8":
        return Arithmetic(model)
    twin = quantized_twin(model)
    ranges = measure_language_ranges(twin, windows) if activations == "static" else None
    return Arithmetic(twin, ranges, keep_exact_language(model, twin, windows))
