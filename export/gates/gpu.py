"""Where a bundle for a GPU is compared with its checkpoint, as the export needs none."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime

from export.arithmetic.half import HALF_TYPES
from export.comparison.language import LanguageParity, check_language, twin_parity
from export.comparison.translation import check, measure
from export.errors import ExportError
from export.gates.reference_run import run_reference
from export.texts.dev_set import DevSet
from export.texts.vocabulary import Vocabulary
from serving.bundle.manifest import DecoderKind, Manifest
from serving.runtime.device import runs_on_cpu
from training.decoding.stepper import TorchStepper
from training.models import CausalLanguageModel, Network, TranslationModel
from training.results.perplexity import Window

_LOGITS = ("logits_max_difference", "logits_mean_difference")
_DEVICE = "on a CUDA device: none of these graphs has run there"
_NO_BF16 = "ONNX Runtime's CPU provider has no bf16 attention"
_SESSION = f"the graphs in a session, with step logits, searches and test texts: {_NO_BF16}"


def check_tests(precision: str, tests: int) -> None:
    """Raise ExportError where a bundle cannot be scored on test texts."""
    if tests and not runs_on_cpu(precision):
        raise ExportError(
            f"--precision {precision} cannot be scored on test texts here, for {_NO_BF16}; leave "
            "out the test texts"
        )


def on_cpu(manifest: Manifest) -> Manifest:
    """The manifest for a run of the graphs on the CPU, whatever they are for."""
    return manifest.model_copy(update={"target": "cpu"})


def told(manifest: Manifest) -> dict[str, Any]:
    """For the manifest of a GPU's bundle: where its gates ran, and which did not run."""
    if manifest.target == "cpu":
        return {}
    if not runs_on_cpu(manifest.precision):
        return {"gates_not_run": [_DEVICE, _SESSION]}
    provider = f"onnxruntime {onnxruntime.__version__}, CPUExecutionProvider"
    return {"run_on": provider, "gates_not_run": [_DEVICE]}


def compare_rounded(
    model: TranslationModel,
    twin: TranslationModel,
    precision: str,
    vocabulary: Vocabulary,
    dev: DevSet,
) -> dict[str, Any]:
    """The figures of whole searches in PyTorch with all roundings of 16 bits, for the manifest;
    nothing for other precisions.

    ONNX Runtime's CPU provider leaves many roundings out: it computes products in fp32 and drops
    the casts between them. Raises ParityError where they cost too much.
    """
    if precision not in HALF_TYPES:
        return {}
    stepper = TorchStepper(twin)
    parity = measure(TorchStepper(model), stepper, stepper, vocabulary, dev)
    kind: DecoderKind = model.decoder_kind
    check(parity, kind, precision)
    return {"rounded_in_pytorch": _without_logits(parity.to_dict())}


def compare_rounded_language(
    model: CausalLanguageModel, twin: CausalLanguageModel, precision: str, windows: list[Window]
) -> dict[str, Any]:
    """`compare_rounded` for a language model: its perplexity."""
    if precision not in HALF_TYPES:
        return {}
    parity = twin_parity(model, twin, windows)
    check_language(parity, precision)
    return {"rounded_in_pytorch": _without_logits(language_figures(parity))}


def compare_in_reference(
    twin: Network,
    folder: Path,
    manifest: Manifest,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
) -> dict[str, Any]:
    """The figures of `run_reference` for the manifest; nothing for precisions of 32 bits."""
    if manifest.precision not in HALF_TYPES:
        return {}
    run = run_reference(twin, folder, manifest, sources, targets)
    figures = {k: float(f"{v:.4g}") for k, v in dataclasses.asdict(run).items()}
    return {"onnx_reference": figures | {"tokens": run.tokens}}


def language_figures(parity: LanguageParity) -> dict[str, float]:
    """Plain data, rounded for reading."""
    return {k: float(f"{v:.5g}") for k, v in dataclasses.asdict(parity).items()}


def _without_logits(found: dict[str, Any]) -> dict[str, Any]:
    """Of a model that was compared with itself."""
    return {name: value for name, value in found.items() if name not in _LOGITS}
