"""What this service computes on, and which bundles that leaves out."""

from __future__ import annotations

import os
from pathlib import Path

import onnxruntime

from serving.bundle.manifest import Manifest
from serving.errors import BundleError, SettingsError
from serving.runtime.ort import CpuDevice
from serving.runtime.session import Device, DeviceUse

SWITCH = "MACARON_DEVICE"
"""The environment variable that says what bundles may run on. `auto`: on the device for which they
were exported; `cpu`: on the CPU, whatever they were exported for."""


def runs_on_cpu(precision: str) -> bool:
    """Whether graphs of a precision run on the CPU, whatever they are for.

    All do but those in bf16, for which ONNX Runtime's CPU provider has no attention.
    """
    return precision != "bf16"


def open_device(folder: Path, manifest: Manifest) -> Device:
    """The device that a bundle runs on; raises as `check_device` does."""
    check_device(folder, manifest)
    return CpuDevice(DeviceUse("cpu", f"the bundle is for {manifest.target}"))


def check_device(folder: Path, manifest: Manifest) -> None:
    """Raise BundleError for a bundle that this service cannot run, or should not run unasked.

    There is no session but the CPU's. It computes fp32 and fp16 graphs of any target right, yet
    more slowly than a bundle of its own; others (`runs_on_cpu`) not at all. Raises SettingsError
    where the switch has another value than `auto` and `cpu`.
    """
    switch = os.environ.get(SWITCH, "").strip().lower() or "auto"
    if switch not in ("auto", "cpu"):
        raise SettingsError(
            f"{SWITCH} must be auto or cpu, got {switch!r}: this version computes on the CPU alone"
        )
    if not runs_on_cpu(manifest.precision):
        raise BundleError(
            f"{folder}: a {manifest.precision} bundle needs a session on {manifest.target}, and "
            f"this service computes on the CPU alone, which has no {manifest.precision}; export "
            "the checkpoint with --target cpu"
        )
    if manifest.target != "cpu" and switch != "cpu":
        raise BundleError(
            f"{folder}: the bundle is for {manifest.target}, and this service computes on the CPU "
            f"alone (ONNX Runtime {onnxruntime.__version__} has "
            f"{', '.join(onnxruntime.get_available_providers())}); export the checkpoint with "
            f"--target cpu, or set {SWITCH}=cpu to run these graphs on the CPU, which is slower"
        )
