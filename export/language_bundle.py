"""A language model's checkpoint to a bundle: graph, vocabulary, parity, perplexity, manifest."""

from __future__ import annotations

import dataclasses
import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from export.calibration import calibrate
from export.errors import ExportError, ParityError
from export.exclusion import keep_exact
from export.folder import commit, new_folder, package_versions
from export.graphs import choose_activations, write_language_graphs
from export.parity import check_logits
from export.quantize import StaticRange, quantized_twin
from serving.bundle.manifest import (
    Activations,
    Manifest,
    Quality,
    TokenizerFiles,
    read_manifest,
    write_manifest,
)
from serving.runtime.language_stepper import LanguageStepper
from serving.search.prefix_tree import PrefixTree
from serving.search.prompts import chunks
from serving.search.sampled_batch import step_inputs
from serving.threads import default_threads
from training.config import recipe_to_dict
from training.models import CausalLanguageModel
from training.perplexity import Window, rolling_windows, score_windows
from training.run import (
    TOKENIZER_FILE,
    VALIDATION_TEXT,
    VOCABULARY_FILE,
    TrainedLanguageModel,
    load_language_model,
)
from training.text_data import read_documents

logger = logging.getLogger(__name__)

GENERATION_DEFAULTS = {"max_length": 64, "temperature": 1.0}
MAX_PERPLEXITY_CHANGE = {"fp32": 1e-4, "int8": 0.005}
"""Relative, on the validation text."""
_LOGIT_WINDOWS, _CALIBRATED_WINDOWS, _SCORED_TOKENS = 8, 32, 40_000


@dataclass(frozen=True)
class LanguageParity:
    """What was found; the manifest keeps it."""

    tokens: int
    logits_max_difference: float
    logits_mean_difference: float
    """Of steps with caches; int8 is compared with the same arithmetic in PyTorch."""
    perplexity_checkpoint: float
    perplexity_bundle: float

    @property
    def perplexity_change(self) -> float:
        """Relative."""
        return self.perplexity_bundle / self.perplexity_checkpoint - 1.0


def export_language_bundle(
    path: Path,
    out: Path,
    *,
    precision: str,
    target: str,
    activations: Activations | None = None,
    priority: int = 0,
    text: Path | None = None,
    tests: tuple[tuple[str, Path], ...] = (),
    force: bool = False,
) -> Manifest:
    """Write the bundle `out` of a language model's checkpoint.

    It is compared with the checkpoint on `text` (default: the run's validation text), and its
    rolling perplexity is measured on `tests`. Raises ExportError (ParityError) without leaving
    anything behind.
    """
    activations = choose_activations(precision, target, activations)
    if out.exists() and not force:
        raise ExportError(f"{out} exists already; give --force to replace it")
    trained = load_language_model(path)
    text = text or _validation_text(trained.checkpoint)
    documents = _documents(trained, text, cleaned=text.name == VALIDATION_TEXT)
    words = trained.recipe.tokenizer.kind == "words"
    file = VOCABULARY_FILE if words else TOKENIZER_FILE
    with new_folder(out) as folder:
        int8 = precision == "int8"
        twin = quantized_twin(trained.model) if int8 else trained.model
        windows = _first_tokens(rolling_windows(documents, trained.recipe.data.segment_length))
        some = windows[_LOGIT_WINDOWS:][:_CALIBRATED_WINDOWS] or windows
        ranges = _calibrate(twin, some) if activations == "static" else None
        exact = _keep_exact(trained.model, twin, some) if int8 else frozenset()
        manifest = write_language_graphs(
            trained.model, folder, name=out.name, precision=precision, ranges=ranges, exact=exact
        )
        (folder / file).write_bytes(trained.tokenizer.serialized())
        stepper = LanguageStepper(folder, manifest, default_threads())
        parity = measure_language(trained.model, twin, stepper, windows)
        logger.info("parity on %s: %s", text.name, parity)
        check_language(parity, precision)
        tokens = {"kind": "words" if words else "sentencepiece"}
        tokens |= {"source_file": file, "target_file": file}
        found = {k: float(f"{v:.5g}") for k, v in dataclasses.asdict(parity).items()}
        found["fp32_products"] = len(exact)
        manifest = manifest.model_copy(
            update={
                "tokenizer": TokenizerFiles.model_validate(tokens),
                "search": GENERATION_DEFAULTS,
                "parity": {"data": text.name, **found},
                "quality": tuple(_quality(trained, stepper, *test) for test in tests),
                "priority": priority,
                "attribution": trained.recipe.data.attribution,
                "recipe": recipe_to_dict(trained.recipe),
                "versions": package_versions(),
                "commit": commit(),
            }
        )
        write_manifest(folder, manifest)
    return read_manifest(out)


def measure_language(
    model: CausalLanguageModel,
    twin: CausalLanguageModel,
    stepper: LanguageStepper,
    windows: list[Window],
) -> LanguageParity:
    """Compare a bundle with its checkpoint on windows of a text.

    `twin` computes in PyTorch what the bundle's precision computes; for fp32 it is the checkpoint.
    """
    largest, total, count = 0.0, 0.0, 0
    for window in windows[:_LOGIT_WINDOWS]:
        difference = np.abs(_logits(twin, window) - _step_logits(stepper, window))
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


def check_language(parity: LanguageParity, precision: str) -> None:
    """Raise ParityError, naming the figure and its limit, where a bundle is not good enough."""
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
    """Sum of the negative log-likelihoods of all scored labels, in nats."""
    total = 0.0
    by_chunks: dict[int, list[Window]] = {}
    for window in windows:
        by_chunks.setdefault(chunks(window.tokens[:-1].tolist()), []).append(window)
    for group in by_chunks.values():
        for start in range(0, len(group), 8):
            batch = group[start : start + 8]
            prompts = [window.tokens[:-1].tolist() for window in batch]
            labels = [window.tokens[1:].tolist() for window in batch]
            prompted, scores = stepper.score(prompts, labels)
            stepper.free(prompted.state)
            for row, window in enumerate(batch):
                count = len(window.tokens) - 1
                part = scores.labels_BP[row, count - window.scored : count]
                total -= float(part.astype(np.float64).sum())
    return total


def _calibrate(twin: CausalLanguageModel, windows: list[Window]) -> dict[bytes, StaticRange]:
    """Static scales."""

    def run() -> None:
        for window in windows:
            _logits(twin, window)

    return calibrate(twin, run)


def _keep_exact(
    model: CausalLanguageModel, twin: CausalLanguageModel, windows: list[Window]
) -> frozenset[bytes]:
    """Products that keep fp32 weights, by the change of perplexity."""
    own, tokens = score_windows(model, windows), sum(window.scored for window in windows)

    def change() -> float:
        return math.expm1((score_windows(twin, windows) - own) / tokens)

    return keep_exact(twin, change, MAX_PERPLEXITY_CHANGE["int8"] / 2)


def _quality(
    trained: TrainedLanguageModel, stepper: LanguageStepper, name: str, text: Path
) -> Quality:
    """The bundle's rolling perplexity, a token and a word."""
    documents = _documents(trained, text, cleaned=False)
    lines, _ = read_documents(text, trained.recipe.data)
    windows = rolling_windows(documents, trained.recipe.data.segment_length)
    loss = bundle_loss(stepper, windows)
    tokens, words = sum(w.scored for w in windows), sum(len(line.split()) for line in lines)
    word_perplexity = math.exp(loss / max(1, words))
    logger.info("%s: word perplexity %.2f", name, word_perplexity)
    return Quality(
        data=name,
        metric="word perplexity",
        value=round(word_perplexity, 2),
        signature="rolling, eos before each document and not scored",
        note=f"{words} words, {tokens} tokens, perplexity a token {math.exp(loss / tokens):.2f}",
    )


def _validation_text(checkpoint: Path) -> Path:
    for folder in (checkpoint, checkpoint.parent, checkpoint.parent.parent):
        if (folder / VALIDATION_TEXT).is_file():
            return folder / VALIDATION_TEXT
    raise ExportError(
        f"{checkpoint}: its run holds no {VALIDATION_TEXT} to compare on; give --text FILE"
    )


def _documents(trained: TrainedLanguageModel, text: Path, *, cleaned: bool) -> list[list[int]]:
    if cleaned:
        lines = text.read_text(encoding="utf-8").splitlines()
    else:
        lines, _ = read_documents(text, trained.recipe.data)
    documents = [ids for ids in trained.tokenizer.encode_batch(lines) if ids]
    if not documents:
        raise ExportError(f"{text}: holds no text to compare on")
    return documents


def _first_tokens(windows: list[Window]) -> list[Window]:
    """The first windows, up to a number of tokens that takes a minute or so."""
    kept, total = [], 0
    for window in windows:
        kept.append(window)
        total += window.scored
        if total >= _SCORED_TOKENS:
            break
    return kept


@torch.no_grad()
def _logits(model: CausalLanguageModel, window: Window) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Logits [T,V] of the model as it is trained."""
    ids = torch.from_numpy(window.tokens[:-1].astype(np.int64))[None]
    result: np.ndarray[Any, np.dtype[np.float32]] = model.eval()(ids)[0].numpy()
    return result


def _step_logits(stepper: LanguageStepper, window: Window) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Logits [T,V] of the bundle, decoded token by token with a cache."""
    tokens = window.tokens[:-1].tolist()
    state = stepper.encode([()])
    tree = PrefixTree(np.zeros(1, np.int64), 1, stepper.repack_every, reach=stepper.reach)
    found = []
    for token in tokens:
        outputs = stepper.next(state, step_inputs(tree, np.array([token])), 1)
        found.append(outputs.logits_BV[0].copy())
        tree.advance(np.zeros((1, 1), np.int64), np.ones(1, np.int64))
        repack = tree.repack(np.zeros(1, np.int64))
        if repack is not None:
            stepper.repack(state, repack)
    stepper.free(state)
    return np.stack(found)
