"""Perplexity of a language model under the three usual protocols.

The protocols differ in the context that a token has, and so in their figures: compare only figures
of the same protocol. Shape letters: B windows, T tokens of a window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from serving.arrays import Int32s
from serving.search.ids import EOS_ID
from training.batches.segments import cut_columns, join_documents
from training.errors import ConfigError, CorpusError
from training.models import CausalLanguageModel
from training.runs.folder import load_language_model
from training.tasks.language import read_documents
from training.tasks.loss import label_smoothed_loss

PROTOCOLS = ("bptt", "sliding", "rolling")
_BPTT_COLUMNS, _BPTT_LENGTH = 20, 70  # Wang et al. 2020
_BATCH_TOKENS = 2048
_IGNORED = -1


class Window(NamedTuple):
    """Tokens that a model reads from position 0 on; only the last `scored` labels count."""

    tokens: Int32s
    """Inputs, and one token more: labels are one to the right."""
    scored: int


def evaluate_text(
    path: Path, text: Path, *, protocol: str, window: int | None = None, device: str = "cpu"
) -> dict[str, Any]:
    """Perplexity of a run's or checkpoint's language model on a text, one document per line.

    The text is cleaned as the run's recipe says. `window` is the largest number of tokens that the
    model reads at once; by default 70 for `bptt`, else the length of the training segments. Words
    are the parts between white space in the cleaned text. Raises a TrainingError if a file or
    option cannot be used.
    """
    if protocol not in PROTOCOLS:
        raise ConfigError(f"--protocol must be one of {PROTOCOLS}, got {protocol!r}")
    if window is not None and window < 2:
        raise ConfigError(f"--window must be >= 2, got {window}")
    trained = load_language_model(path, device)
    lines, _ = read_documents(text, trained.recipe.data)
    documents = trained.tokenizer.encode_batch(lines)
    words = sum(len(line.split()) for line in lines)
    if protocol == "bptt":
        length = window or _BPTT_LENGTH
        windows = bptt_windows(documents, length)
    else:
        length = window or trained.recipe.data.segment_length
        cut = sliding_windows if protocol == "sliding" else rolling_windows
        windows = cut(documents, length)
    tokens = sum(window.scored for window in windows)
    if not tokens:
        raise CorpusError(f"{text}: too short, no token can be scored; give a longer text")
    loss = score_windows(trained.model, windows) / tokens
    # Columns leave out the rest that does not fill them: their mean stands for the whole text.
    text_tokens = tokens if protocol != "bptt" else sum(len(ids) + 1 for ids in documents)
    return {
        "checkpoint": str(trained.checkpoint),
        "protocol": protocol,
        "window": length,
        "documents": len(documents),
        "tokens": tokens,
        "words": words,
        "loss": loss,
        "perplexity": _exp(loss),
        "word_perplexity": _exp(loss * text_tokens / max(1, words)),
    }


def bptt_windows(documents: list[list[int]], length: int = _BPTT_LENGTH) -> list[Window]:
    """The windows of the papers' tables: the text in 20 columns, cut every `length` tokens; each
    segment starts without context.

    The first token of a column and the rest that does not fill the columns are not scored.
    """
    segments = cut_columns(join_documents(documents), _BPTT_COLUMNS, length)
    return [Window(row, len(row) - 1) for segment in segments for row in segment]


def sliding_windows(documents: list[list[int]], length: int) -> list[Window]:
    """The whole text with eos before and after each document: each token is scored once and, except
    in the first window, has at least half a window of context."""
    stream = np.concatenate([np.array([EOS_ID], dtype=np.int32), join_documents(documents)])
    return list(_slide(stream, length, step=length // 2))


def rolling_windows(documents: list[list[int]], length: int, start: int = EOS_ID) -> list[Window]:
    """The windows of lm-eval's loglikelihood_rolling, document by document: first `start`, then
    windows whose scored tokens do not overlap, each with as much context as fits; no eos is scored.

    `length` is the number of tokens that a model reads at once: lm-eval's `max_length` less 2.
    """
    windows: list[Window] = []
    for ids in documents:
        windows += _slide(np.array([start, *ids], dtype=np.int32), length, step=length)
    return windows


def _slide(stream: Int32s, length: int, step: int) -> Iterator[Window]:
    """Windows of up to `length` inputs; the first scores all its labels, others the last `step`."""
    end = min(length, len(stream) - 1)
    if end:
        yield Window(stream[: end + 1], end)
    while end < len(stream) - 1:
        scored = min(step, len(stream) - 1 - end)
        end += scored
        yield Window(stream[end - length : end + 1], scored)


@torch.no_grad()
def score_windows(model: CausalLanguageModel, windows: list[Window]) -> float:
    """Sum of the negative log-likelihoods of all scored labels, in nats."""
    model.eval()
    device = next(model.parameters()).device
    total = 0.0
    for batch in _batches(windows):
        width = max(len(window.tokens) for window in batch) - 1
        # Causal attention: padding on the right of a row changes nothing before it.
        inputs_BT = np.full((len(batch), width), EOS_ID, dtype=np.int64)
        labels_BT = np.full((len(batch), width), _IGNORED, dtype=np.int64)
        for row, (tokens, scored) in enumerate(batch):
            last = len(tokens) - 1
            inputs_BT[row, :last] = tokens[:-1]
            labels_BT[row, last - scored : last] = tokens[len(tokens) - scored :]
        states_BTD = model.states(torch.from_numpy(inputs_BT).to(device))
        labels = torch.from_numpy(labels_BT).to(device)
        total += float(label_smoothed_loss(model, states_BTD, labels, 0.0, ignored_id=_IGNORED))
    return total


def _batches(windows: list[Window]) -> Iterator[list[Window]]:
    """Windows of similar length together, up to `_BATCH_TOKENS` tokens."""
    batch: list[Window] = []
    for window in sorted(windows, key=lambda window: len(window.tokens)):
        if batch and (len(batch) + 1) * len(window.tokens) > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch


def _exp(loss: float) -> float:
    return math.exp(min(loss, 50.0))
