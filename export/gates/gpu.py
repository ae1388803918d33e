"""Compares a GPU bundle with its checkpoint on the CPU, because an export needs no GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime

from export.arithmetic.half import HALF_TYPES
from export.errors import ExportError
from export.gates.reference_run import run_reference
from serving.bundle.manifest import Manifest
from serving.runtime.device import runs_on_cpu
from training.models import Network

_LOGITS = ("logits_max_difference", "logits_mean_difference")
_DEVICE = "on a CUDA device: none of these graphs has run there"
_NO_BF16 = "ONNX Runtime's CPU provider has no bf16 attention"
_SESSION = f"the graphs in a session, with step logits, searches and test texts: {_NO_BF16}"


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
        return {"gates_not_run": [_DEVICE, _SESSION]}
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
    # The logits would be those of a model compared with itself.
    figures = {name: value for name, value in measure_twin().items() if name not in _LOGITS}
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
