"""Compares a GPU bundle with its checkpoint on the CPU, because an export needs no GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime

from export.arithmetic.half import HALF_TYPES
from export.comparison.encoder import check_encoder, measure_encoder
from export.errors import ExportError
from export.gates.reference_run import SENTENCES, beginnings, read_in_reference, run_reference
from serving.bundle.manifest import Manifest
from serving.runtime.device import runs_on_cpu
from serving.runtime.text_encoder import EncoderInput
from training.models import Network, TextModel

_OF_ITSELF = ("logits_max_difference", "logits_mean_difference", "max_difference", "twin_cosine")
_DEVICE = "on a CUDA device: none of these graphs has run there"
_NO_BF16 = "ONNX Runtime's CPU provider has no bf16 attention"
_SESSION = {
    True: f"the graphs in a session, with step logits, searches and test texts: {_NO_BF16}",
    False: f"the graph in a session: {_NO_BF16}",
}
"""The checks in a session that were not run, by whether the model decodes."""


def check_tests(precision: str, tests: int) -> None:
    """Raise ExportError if a bundle cannot be scored on test texts."""
    if tests and not runs_on_cpu(precision):
        raise ExportError(
            f"--precision {precision} cannot be scored on test texts here, for {_NO_BF16}; leave "
            "out the test texts"
        )


def on_cpu(manifest: Manifest) -> Manifest:
    """The manifest for running the graphs on the CPU, whatever their device."""
    return manifest.model_copy(update={"target": "cpu"})


def gate_notes(manifest: Manifest) -> dict[str, Any]:
    """Manifest notes of a GPU bundle: where its gates ran, and which did not run."""
    if manifest.target == "cpu":
        return {}
    if not runs_on_cpu(manifest.precision):
        return {"gates_not_run": [_DEVICE, _SESSION[manifest.step is not None]]}
    provider = f"onnxruntime {onnxruntime.__version__}, CPUExecutionProvider"
    return {"run_on": provider, "gates_not_run": [_DEVICE]}


def compare_rounded(
    precision: str, measure_twin: Callable[[], Mapping[str, Any]]
) -> dict[str, Any]:
    """Manifest figures of `measure_twin`, which compares a model in PyTorch with a twin that rounds
    to 16 bits everywhere; empty for other precisions.

    ONNX Runtime's CPU provider leaves out many roundings: it computes products in fp32 and drops
    the casts between them.
    """
    if precision not in HALF_TYPES:
        return {}
    # These would be of a model compared with itself.
    figures = {name: value for name, value in measure_twin().items() if name not in _OF_ITSELF}
    return {"rounded_in_pytorch": figures}


def compare_in_reference(
    twin: Network,
    folder: Path,
    manifest: Manifest,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
) -> dict[str, Any]:
    """Manifest figures of `run_reference`; empty for precisions of 32 bits."""
    if manifest.precision not in HALF_TYPES:
        return {}
    run = run_reference(twin, folder, manifest, sources, targets)
    figures = {k: float(f"{v:.4g}") for k, v in dataclasses.asdict(run).items()}
    return {"onnx_reference": figures | {"tokens": run.tokens}}


def compare_texts_in_reference(
    twin: TextModel, folder: Path, manifest: Manifest, texts: Sequence[EncoderInput]
) -> dict[str, Any]:
    """Compare an encoder with its twin as `compare_in_reference` does for decoders, on the
    beginnings of the first texts.

    Raises ParityError if the outputs differ from the twin's by more than a limit of
    `check_encoder`.
    """
    if manifest.precision not in HALF_TYPES:
        return {}
    classes = manifest.task == "classify"
    parity = measure_encoder(
        twin,
        twin,
        lambda given: read_in_reference(folder, manifest, given),
        beginnings(texts[:SENTENCES]),
        classes=classes,
    )
    check_encoder(parity, manifest.precision, classes=classes)
    names = ["max_difference", "cosine_least", *["probability_change"][: int(classes)]]
    figures = {name: float(f"{getattr(parity, name):.4g}") for name in names}
    return {"onnx_reference": figures | {"texts": parity.texts}}
