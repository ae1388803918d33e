"""Compares a language model's bundle with its checkpoint: logits of each step, and perplexity.

Shape letters: B windows, R some of them, T tokens of a window, D model, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from export import progress
from export.comparison.translation import check_logits
from export.errors import ParityError
from export.texts.texts import LOGIT_WINDOWS
from serving.arrays import Floats
from serving.runtime.language_stepper import LanguageStepper
from serving.search.prefix_tree import PrefixTree
from serving.search.sampling.batch import step_inputs
from serving.search.sampling.prompts import chunks
from training.models import CausalLanguageModel
from training.results.perplexity import Window, score_windows

MAX_PERPLEXITY_CHANGE = {"fp32": 1e-4, "int8": 0.005, "fp16": 0.001, "bf16": 0.005, "w8a16": 0.005}
"""Largest relative change of perplexity on the validation text."""
_ROWS = 8


@dataclass(frozen=True)
class LanguageParity:
    """The results of the comparison, for the manifest."""

    tokens: int
    logits_max_difference: float
    logits_mean_difference: float
    """Step logits with caches; int8 is compared with the same arithmetic in PyTorch."""
    perplexity_checkpoint: float
    perplexity_bundle: float

    @property
    def perplexity_change(self) -> float:
        """Relative change of perplexity from the checkpoint; 0 means none."""
        return self.perplexity_bundle / self.perplexity_checkpoint - 1.0

    def to_dict(self) -> dict[str, float]:
        """Plain data, rounded for reading."""
        return {k: float(f"{v:.5g}") for k, v in dataclasses.asdict(self).items()}


def measure_language(
    model: CausalLanguageModel,
    twin: CausalLanguageModel,
    stepper: LanguageStepper,
    windows: list[Window],
) -> LanguageParity:
    """Compare a bundle with its checkpoint on windows of a text.

    `twin` computes the bundle's arithmetic in PyTorch; for fp32 it is the checkpoint.
    """
    largest, total, count = 0.0, 0.0, 0
    compared = windows[:LOGIT_WINDOWS]
    wanted = [_states(twin, window) for window in compared]
    longest = max(map(len, wanted))
    for step, found_BV in enumerate(step_logits(stepper, compared)):
        progress.part(step, 5 * longest)  # the rest takes about four times as long
        rows = [row for row, states_TD in enumerate(wanted) if step < len(states_TD)]
        states_RD = torch.stack([wanted[row][step] for row in rows])
        difference = np.abs(_logits(twin, states_RD) - found_BV[rows])
        largest = float(np.maximum(largest, difference.max()))  # carries a NaN on
        total, count = total + float(difference.sum()), count + difference.size
    tokens = sum(window.scored for window in windows)
    loss = score_windows(model, windows) / tokens
    return LanguageParity(
        tokens=tokens,
        logits_max_difference=largest,
        logits_mean_difference=total / max(1, count),
        perplexity_checkpoint=math.exp(loss),
        perplexity_bundle=math.exp(bundle_loss(stepper, windows) / tokens),
    )


def twin_parity(
    model: CausalLanguageModel, twin: CausalLanguageModel, windows: list[Window]
) -> LanguageParity:
    """Compare the PyTorch twin of a bundle's arithmetic, in place of the bundle, with its
    checkpoint."""
    tokens = sum(window.scored for window in windows)
    losses = [score_windows(each, windows) / tokens for each in (model, twin)]
    return LanguageParity(tokens, 0.0, 0.0, *map(math.exp, losses))


def check_language(parity: LanguageParity, precision: str) -> None:
    """Raise ParityError, with the figure and its limit, if a bundle is not good enough."""
    found = check_logits(
        "lm", precision, parity.logits_max_difference, parity.logits_mean_difference
    )
    limit = MAX_PERPLEXITY_CHANGE[precision]
    if not abs(parity.perplexity_change) <= limit:  # so written, NaN fails it
        found.append(
            f"perplexity changes from {parity.perplexity_checkpoint:.4f} to "
            f"{parity.perplexity_bundle:.4f} ({parity.perplexity_change:+.2%}, limit {limit:.2%})"
        )
    if found:
        raise ParityError("; ".join(found) + "; no bundle was written")


def bundle_loss(stepper: LanguageStepper, windows: list[Window]) -> float:
    """Summed negative log-likelihood of all scored labels, in nats."""
    total = 0.0
    by_chunks: dict[int, list[Window]] = {}
    for window in windows:
        by_chunks.setdefault(chunks(window.tokens[:-1].tolist()), []).append(window)
    for group in by_chunks.values():
        for start in range(0, len(group), _ROWS):
            batch = group[start : start + _ROWS]
            prompts = [window.tokens[:-1].tolist() for window in batch]
            labels = [window.tokens[1:].tolist() for window in batch]
            prompted, scores = stepper.score(prompts, labels)
            stepper.free(prompted.state)
            for row, window in enumerate(batch):
                count = len(window.tokens) - 1
                part = scores.labels_BP[row, count - window.scored : count]
                total -= float(part.astype(np.float64).sum())
    return total


def window_logits(model: CausalLanguageModel, window: Window) -> Floats:
    """Logits [T,V] of the model in its training form."""
    return _logits(model, _states(model, window))


@torch.no_grad()
def _states(model: CausalLanguageModel, window: Window) -> Tensor:
    """States [T,D] of the model in its training form."""
    return model.eval().states(torch.from_numpy(window.tokens[:-1].astype(np.int64))[None])[0]


@torch.no_grad()
def _logits(model: CausalLanguageModel, states_RD: Tensor) -> Floats:
    """Logits [R,V] of some states."""
    result: Floats = model.output_logits(states_RD[None])[0].numpy()
    return result


def step_logits(stepper: LanguageStepper, windows: Sequence[Window]) -> Iterator[Floats]:
    """Logits [B,V] of the bundle after each token of the windows, decoded token by token with a
    cache. After a window's end its row has numbers of no meaning."""
    rows, longest = len(windows), max(len(window.tokens) for window in windows) - 1
    tokens_BT = np.zeros((rows, longest), np.int64)
    for row, window in enumerate(windows):
        tokens_BT[row, : len(window.tokens) - 1] = window.tokens[:-1]
    state = stepper.encode([()] * rows)
    tree = PrefixTree(
        np.zeros(rows, np.int64),
        1,
        stepper.repack_every,
        reach=stepper.reach,
        lookback=stepper.lookback,
    )
    for tokens_B in tokens_BT.T:
        yield stepper.next(state, step_inputs(tree, tokens_B), 1).logits_BV
        tree.advance(np.zeros((rows, 1), np.int64), np.ones(rows, np.int64))
        repack = tree.repack(np.arange(rows))
        if repack is not None:
            stepper.repack(state, repack)
    stepper.free(state)
