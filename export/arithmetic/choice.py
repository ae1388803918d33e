"""Chooses the arithmetic of a model for a precision: the numbers of each product, fitted to a
text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic

from export.arithmetic.activation_ranges import measure_ranges
from export.arithmetic.exclusion import Changes, keep_exact, keep_rows
from export.arithmetic.gptq import rounded_weights
from export.arithmetic.half import HALF_TYPES, fit_half, half_twin, head_key
from export.arithmetic.quantize import ModuleT, Products, quantized_twin
from serving.bundle.manifest import Activations
from training.models import Network


@dataclass(frozen=True)
class Fitting(Generic[ModuleT]):
    """The functions and limits with which a model's arithmetic is fitted to a text."""

    run: Callable[[ModuleT], object]
    """Puts the text through a model or a twin; hooks measure ranges meanwhile."""
    changes: Callable[[ModuleT], Changes]
    """Distance of a twin from its checkpoint on the text."""
    limit: float
    """Largest sum of these changes: half of the limit for the whole comparison text."""
    run_batches: Callable[[ModuleT], object] | None = None
    """Does the same as `run` in larger batches. It gives magnitudes, and the inputs for which
    weights are rounded. The default is `run`."""
    rounds_weights: bool = False
    """Whether weights are rounded to the text if all activations have 16 bits."""
    keeps_rows: bool = False
    """Whether to try a scale for each row before fp32 weights: rows that differ, such as those
    after GELU, need scales of their own."""


@dataclass(frozen=True)
class Arithmetic(Generic[ModuleT]):
    """The arithmetic of a bundle."""

    model: ModuleT
    """Model with the weights of the graphs: the checkpoint's, or rounded ones."""
    twin: ModuleT
    """Model that computes the same in PyTorch; for fp32 the checkpoint's own."""
    products: Products = field(default_factory=Products)
    report: Mapping[str, Any] = field(default_factory=dict)
    """Findings for the manifest."""


def choose_arithmetic(
    model: ModuleT,
    fitting: Fitting[ModuleT],
    precision: str,
    activations: Activations,
    *,
    half_head: bool = True,
) -> Arithmetic[ModuleT]:
    """Make a quantised or rounded twin and fit it to a text. Without `half_head` the product that
    gives logits stays fp32 in precisions of 16 bits.

    Raises ParityError if too many products would have to stay fp32.
    """
    run_batches = fitting.run_batches or fitting.run
    if precision in HALF_TYPES:
        fit = fit_half(model, precision, run_batches)
        exact, report = fit.exact, dict(fit.report)
        if isinstance(model, Network):
            exact |= frozenset() if half_head else {head_key(model)}
            report["head"] = "fp32" if head_key(model) in exact else precision
        twin = half_twin(model, HALF_TYPES[precision], exact)
        return Arithmetic(model, twin, Products(exact=exact), report)
    if precision != "int8":
        return Arithmetic(model, model)
    if activations == "row16":
        # All products have them: then the loss is from the rounding of weights, to which many
        # products contribute.
        if fitting.rounds_weights:
            model = rounded_weights(model, lambda: run_batches(model))
        return Arithmetic(model, quantized_twin(model, wide=True), Products(wide=True))
    twin = quantized_twin(model)
    ranges = measure_ranges(twin, lambda: fitting.run(twin)) if activations == "static" else None
    changes = fitting.changes(twin)
    if ranges is not None and fitting.keeps_rows:
        for key in keep_rows(twin, changes, fitting.limit):
            del ranges[key]
    return Arithmetic(model, twin, Products(ranges, keep_exact(twin, changes, fitting.limit)))
