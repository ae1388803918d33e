"""The precision that nobody has named: the smallest that loses little enough, with the reason."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from export.bundles.subject import Form
from export.errors import ExportError, ParityError
from serving.bundle.manifest import Activations, Manifest

logger = logging.getLogger(__name__)


def write_first(write: Callable[[Form], Manifest], form: Form) -> Manifest:
    """What `write` makes of the first form that loses little enough: int8, that with activations of
    16 bits, fp32; the activations of `form`, if it names any, are the only ones of int8.

    Raises ExportError for another device than the CPU, ParityError where fp32 loses too much, and
    what `write` raises.
    """
    if form.target != "cpu":
        raise ExportError(
            f"--precision auto is for --target cpu; for {form.target} name one: fp16, bf16, w8a16 "
            "or fp32"
        )
    *tried, last = _forms(form)
    why = "it loses less than the limits allow"
    for chosen in tried:
        try:
            return _announced(write(chosen), chosen, why)
        except ParityError as error:
            reason = str(error).partition("; no bundle was written")[0]
            why = f"{_text(chosen)} loses too much ({reason})"
            logger.info("%s; trying the next", why)
    return _announced(write(last), last, why)


def _forms(form: Form) -> list[Form]:
    activations: list[Activations | None] = (
        [form.activations] if form.activations else [None, "row16"]
    )
    int8 = [replace(form, precision="int8", activations=each) for each in activations]
    return [*int8, replace(form, precision="fp32", activations=None)]


def _announced(manifest: Manifest, chosen: Form, why: str) -> Manifest:
    logger.info("precision auto chose %s: %s", _text(chosen), why)
    return manifest


def _text(form: Form) -> str:
    wide = form.activations == "row16"
    return f"{form.precision} with activations of 16 bits" if wide else form.precision
