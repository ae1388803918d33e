"""What a precision comes to for one model: which products have which numbers, fitted to a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic

from export.arithmetic.activation_ranges import measure_language_ranges, measure_translation_ranges
from export.arithmetic.exclusion import keep_exact_language, keep_exact_translation
from export.arithmetic.gptq import rounded_weights
from export.arithmetic.half import HALF_TYPES, fit_half_language, fit_half_translation, half_twin
from export.arithmetic.quantize import ModuleT, Products, quantized_twin
from serving.bundle.manifest import Activations
from serving.search.sentence import Sentence
from training.models import CausalLanguageModel, TranslationModel
from training.results.perplexity import Window, score_windows


@dataclass(frozen=True)
class Arithmetic(Generic[ModuleT]):
    """What a bundle computes."""

    twin: ModuleT
    """Computes it in PyTorch; for fp32 it is the checkpoint's own model."""
    products: Products = field(default_factory=Products)
    report: Mapping[str, Any] = field(default_factory=dict)
    """What was found on the way, for the manifest."""
    rounded: ModuleT | None = None
    """The model whose weights the graphs have, where these are not the checkpoint's own."""


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
        return Arithmetic(rounded, Products(exact=fit.exact), fit.report)
    if precision != "int8":
        return Arithmetic(model)
    if activations == "row16":
        return wide_arithmetic(model)
    twin = quantized_twin(model)
    ranges = measure_translation_ranges(twin, sentences) if activations == "static" else None
    exact = keep_exact_translation(model, twin, sentences)
    return Arithmetic(twin, Products(ranges, exact))


def choose_language_arithmetic(
    model: CausalLanguageModel, windows: list[Window], precision: str, activations: Activations
) -> Arithmetic[CausalLanguageModel]:
    """Make a twin, quantised or rounded, and fit it to windows of a text."""
    if precision in HALF_TYPES:
        fit = fit_half_language(model, precision, windows)
        rounded = half_twin(model, HALF_TYPES[precision], fit.exact)
        return Arithmetic(rounded, Products(exact=fit.exact), fit.report)
    if precision != "int8":
        return Arithmetic(model)
    if activations == "row16":
        rounded = rounded_weights(model, lambda: score_windows(model, windows))
        return replace(wide_arithmetic(rounded), rounded=rounded)
    twin = quantized_twin(model)
    ranges = measure_language_ranges(twin, windows) if activations == "static" else None
    exact = keep_exact_language(model, twin, windows)
    return Arithmetic(twin, Products(ranges, exact))


def wide_arithmetic(model: ModuleT) -> Arithmetic[ModuleT]:
    """Activations of 16 bits, which need not be fitted to anything. All products have them: what is
    lost then is the rounding of weights, to which many products contribute."""
    return Arithmetic(quantized_twin(model, wide=True), Products(wide=True))
