"""Chooses the precision if none is named: the smallest whose loss is within the limits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from export.bundles.subject import Form
from export.errors import ExportError, ParityError
from serving.bundle.manifest import Activations, Manifest

logger = logging.getLogger(__name__)


def write_first(write: Callable[[Form], Manifest], form: Form) -> Manifest:
    """The result of `write` with the first form whose loss is within the limits: int8, int8 with
    16-bit activations, fp32. If `form` names activations, int8 has only these.

    Raises ExportError for a device other than the CPU, ParityError if fp32 loses too much, and the
    errors of `write`.
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
