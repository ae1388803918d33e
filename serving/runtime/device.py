"""What this service computes on, and which bundles that leaves out."""

from __future__ import annotations

import os
from pathlib import Path

from serving.bundle.manifest import Manifest
from serving.errors import BundleError, SettingsError
from serving.runtime.gpu.cuda_switches import streams_wanted
from serving.runtime.ort import CpuDevice
from serving.runtime.session import ON_CPU, Device, DeviceUse

SWITCH = "MACARON_DEVICE"
"""The environment variable that says what bundles may run on. `auto`: on the device for which they
were exported, by their engines where they have some; `cpu`: on the CPU, whatever they were exported
for; `cuda`: on a GPU without engines; `tensorrt`: with them. A GPU refuses bundles for the CPU."""
_SWITCHES = ("auto", "cpu", "cuda", "tensorrt")


def runs_on_cpu(precision: str) -> bool:
    """Whether graphs of a precision run on the CPU, whatever they are for.

    All do but those in bf16, for which ONNX Runtime's CPU provider has no attention.
    """
    return precision != "bf16"


def wanted() -> str:
    """What the switch says; raises SettingsError where that is none of its values."""
    switch = os.environ.get(SWITCH, "").strip().lower() or "auto"
    if switch not in _SWITCHES:
        raise SettingsError(f"{SWITCH} must be {', '.join(_SWITCHES)}, got {switch!r}")
    return switch


def computes_on_cpu(manifest: Manifest) -> bool:
    """Whether a bundle that this service runs takes processors, not a GPU."""
    return manifest.target == "cpu" or wanted() == "cpu"


def batches_at_once(manifest: Manifest, workers: int) -> int:
    """How many batches of a bundle are decoded at once where so many are wanted: on a GPU no more
    than it has streams for, on each of which CUDA graphs are captured anew. Raises SettingsError
    where the number of streams is none."""
    return workers if computes_on_cpu(manifest) else min(workers, streams_wanted(os.environ))


def open_device(folder: Path, manifest: Manifest, cache_bytes: int = 0, batches: int = 1) -> Device:
    """The device that a bundle runs on, of which so many batches are decoded at once, whose caches
    may fill `cache_bytes` together.

    Raises as `check_device` does, and BundleError where the device cannot be used or has too little
    memory.
    """
    check_device(folder, manifest)
    target = manifest.target
    if target == "cpu":
        return CpuDevice(ON_CPU)
    if wanted() == "cpu":
        return CpuDevice(DeviceUse("cpu", f"the bundle is for {target}, but {SWITCH}=cpu"))
    # Who asks for the CPU has no use for them.
    from serving.runtime.gpu.cuda_device import NoDeviceError, open_cuda
    from serving.runtime.gpu.tensorrt_device import open_tensorrt

    by_engines = wanted() == "tensorrt" or (wanted() == "auto" and manifest.engines)
    opened = open_tensorrt if by_engines else open_cuda
    try:
        return opened(folder, manifest, cache_bytes, batches)
    except NoDeviceError as error:
        raise BundleError(
            f"{folder}: the bundle is for {target}, but {error}; {_way_out(manifest)}"
        ) from error


def check_device(folder: Path, manifest: Manifest) -> None:
    """Raise BundleError for a bundle that this service cannot run, or should not run unasked, as
    far as the installed ONNX Runtime tells.

    The CPU computes fp32 and fp16 graphs of any target right, yet more slowly than a bundle of its
    own; others (`runs_on_cpu`) not at all. Raises SettingsError where the switch has another value
    than it may.
    """
    target, precision, switch = manifest.target, manifest.precision, wanted()
    if target == "cpu" and switch not in ("auto", "cpu"):
        raise BundleError(
            f"{folder}: {SWITCH}={switch}, and the bundle is for the CPU; export the checkpoint "
            f"with --target cuda, or set {SWITCH}=auto"
        )
    if (target == "cpu" or switch == "cpu") and runs_on_cpu(precision):
        return
    from serving.runtime.gpu.cuda_device import PACKAGE_NEEDED, PROVIDER, installed

    version, providers = installed()
    if switch != "cpu" and target == "cuda" and PROVIDER in providers:
        return
    if not runs_on_cpu(precision):
        raise BundleError(
            f"{folder}: a {precision} bundle needs a session on {target}, and this service "
            f"computes on the CPU alone, which has no {precision}; {_way_out(manifest)}"
        )
    raise BundleError(
        f"{folder}: the bundle is for {target}, and this service computes on the CPU alone (ONNX "
        f"Runtime {version} has {', '.join(providers)}; {PACKAGE_NEEDED}); "
        f"{_way_out(manifest)}"
    )


def _way_out(manifest: Manifest) -> str:
    """What to do with a bundle whose device is not there."""
    other = "export the checkpoint with --target cpu"
    if not runs_on_cpu(manifest.precision):
        return other
    return f"{other}, or set {SWITCH}=cpu to run these graphs on the CPU, which is slower"
