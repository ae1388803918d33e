"""Compares an encoder's bundle with its checkpoint: the outputs for texts, and a task's metric.

Shape letters: B texts, W numbers read from each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from export.errors import ParityError
from export.texts.labelled import cosine
from serving.arrays import Floats
from serving.encoding.reader import probabilities
from serving.runtime.text_encoder import EncoderInput, calls, pack
from training.models import TextModel
from training.models.sublayers.attention import Packing

LEAST_COSINE = 0.99
"""Least mean cosine of a bundle's outputs with its checkpoint's."""
MAX_METRIC_CHANGE = 0.5
"""Largest loss of the task's metric, in hundredths."""
MAX_PROBABILITY_CHANGE = 0.02
"""Largest mean change of a class's probability."""
MAX_DIFFERENCE = 1e-3
"""Largest difference of any fp32 output from the checkpoint."""
LEAST_TWIN_COSINE = 0.999
"""Least mean cosine of int8 or of 16 bits with the same arithmetic in PyTorch."""

Read = Callable[[Sequence[EncoderInput]], Floats]
"""Returns the outputs [B,W] for texts."""


@dataclass(frozen=True)
class EncoderParity:
    """The results of the comparison, for the manifest."""

    texts: int
    max_difference: float
    """Largest difference of any output: in fp32 from the checkpoint, otherwise from the same
    arithmetic in PyTorch."""
    cosine_mean: float
    """Cosine with the checkpoint; for classes, of the logits."""
    cosine_least: float
    twin_cosine: float
    """Mean cosine with the same arithmetic in PyTorch."""
    probability_change: float = 0.0
    """Largest mean change of a class's probability; 0 for embeddings."""


@torch.no_grad()
def read_all(model: TextModel, texts: Sequence[EncoderInput]) -> Floats:
    """The model's outputs for each text, [B,W]."""
    found_BW = np.empty((len(texts), model.width), np.float32)
    for numbers in calls([len(text.ids) for text in texts]):
        packed = pack([texts[number] for number in numbers])
        token, position, segment, *rest = map(torch.from_numpy, packed)
        packing = Packing(slots_BS=rest[0], mask_BS=rest[1], rows_M=rest[2], positions_1M=position)
        found_BW[numbers] = model.read_packed(token, segment, packing).numpy()
    return found_BW


def measure_encoder(
    model: TextModel,
    twin: TextModel,
    read: Read,
    texts: Sequence[EncoderInput],
    *,
    classes: bool,
) -> EncoderParity:
    """Compare a bundle, whose outputs `read` gives, with its checkpoint.

    `twin` computes the bundle's arithmetic in PyTorch; for fp32 it is the checkpoint.
    """
    wanted, rounded, found = read_all(model, texts), read_all(twin, texts), read(texts)
    cosines = cosine(wanted, found)
    change = np.abs(probabilities(wanted) - probabilities(found)).max(axis=1) if classes else [0.0]
    return EncoderParity(
        texts=len(texts),
        max_difference=float(np.abs(rounded - found).max()),
        cosine_mean=float(cosines.mean()),
        cosine_least=float(cosines.min()),
        twin_cosine=float(cosine(rounded, found).mean()),
        probability_change=float(np.mean(change)),
    )


def check_encoder(parity: EncoderParity, precision: str, *, classes: bool) -> None:
    """Raise ParityError, with the figure and its limit, if a bundle is not good enough."""
    # Each condition is written so that NaN fails it.
    found = []
    if precision == "fp32" and not parity.max_difference <= MAX_DIFFERENCE:
        found.append(
            f"outputs differ by up to {parity.max_difference:.2g} (limit {MAX_DIFFERENCE:g})"
        )
    # The logit of a single class has no direction.
    if not classes and not parity.cosine_mean >= LEAST_COSINE:
        found.append(
            f"the cosine with the checkpoint is {parity.cosine_mean:.4f} in the mean (limit "
            f"{LEAST_COSINE:g})"
        )
    if not classes and not parity.twin_cosine >= LEAST_TWIN_COSINE:
        found.append(
            f"the cosine with the same arithmetic in PyTorch is {parity.twin_cosine:.4f} in the "
            f"mean (limit {LEAST_TWIN_COSINE:g})"
        )
    if classes and not parity.probability_change <= MAX_PROBABILITY_CHANGE:
        found.append(
            f"probabilities change by {parity.probability_change:.4f} in the mean (limit "
            f"{MAX_PROBABILITY_CHANGE:g})"
        )
    if found:
        raise ParityError("; ".join(found) + "; no bundle was written")


def check_metric(name: str, checkpoint: float, bundle: float) -> None:
    """Raise ParityError if a task's metric, in points, changed too much."""
    if not abs(bundle - checkpoint) <= MAX_METRIC_CHANGE:
        raise ParityError(
            f"{name} changes from {checkpoint:.2f} to {bundle:.2f} (limit {MAX_METRIC_CHANGE:g} "
            "points); no bundle was written"
        )
