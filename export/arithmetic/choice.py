"""What a precision comes to for one model: which products have which numbers, fitted to a text."""

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
    """The text to which a model's arithmetic is fitted, and how."""

    run: Callable[[ModuleT], object]
    """Puts the text through a model or a twin: what is seen then gives the ranges."""
    changes: Callable[[ModuleT], Changes]
    """How far a twin is from its checkpoint on the text."""
    limit: float
    """Of the sum of these changes: half of what a bundle may differ by on all that it is compared
    on."""
    run_batches: Callable[[ModuleT], object] | None = None
    """As `run`, several parts of the text at once: it gives magnitudes, and the inputs to which
    weights are rounded. By default it is `run`."""
    rounds_weights: bool = False
    """Whether weights are rounded to the text where all activations have 16 bits."""
    keeps_rows: bool = False
    """Whether products may get a scale for each row before others get fp32 weights: rows that are
    unlike, such as those behind GELU, are better off with scales of their own."""


@dataclass(frozen=True)
class Arithmetic(Generic[ModuleT]):
    """What a bundle computes."""

    model: ModuleT
    """Has the weights of the graphs: the checkpoint's own, or what these were rounded to."""
    twin: ModuleT
    """Computes it in PyTorch; for fp32 it is the checkpoint's own model."""
    products: Products = field(default_factory=Products)
    report: Mapping[str, Any] = field(default_factory=dict)
    """What was found on the way, for the manifest."""


def choose_arithmetic(
    model: ModuleT,
    fitting: Fitting[ModuleT],
    precision: str,
    activations: Activations,
    *,
    half_head: bool = True,
) -> Arithmetic[ModuleT]:
    """Make a twin, quantised or rounded, and fit it to a text. Without `half_head` the product that
    gives logits stays fp32 where others have 16 bits.

    Raises ParityError where too many products would have to stay fp32.
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
        # All products have them: what is lost then is the rounding of weights, to which many
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
