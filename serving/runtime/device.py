"""The device that this service computes on, and which bundles it accepts."""

from __future__ import annotations

import os
from pathlib import Path

from serving.bundle.manifest import Manifest
from serving.errors import BundleError
from serving.runtime.device_switch import SWITCH, wanted
from serving.runtime.gpu.cuda_switches import streams_wanted
from serving.runtime.ort import CpuDevice
from serving.runtime.session import ON_CPU, Device, DeviceUse


def runs_on_cpu(precision: str) -> bool:
    """Whether the CPU can run graphs of this precision, whatever device they were exported for.

    It runs all except bf16, for which ONNX Runtime's CPU provider has no attention.
    """
    return precision != "bf16"


def computes_on_cpu(manifest: Manifest) -> bool:
    """Whether this service runs a bundle on processors rather than on a GPU."""
    return manifest.target == "cpu" or wanted() == "cpu"


def batches_at_once(manifest: Manifest, workers: int) -> int:
    """Number of batches of a bundle that are decoded at the same time, at most `wanted`. On a GPU
    it is limited to the number of streams, because CUDA graphs are captured for each. Raises
    SettingsError for an invalid number of streams."""
    return workers if computes_on_cpu(manifest) else min(workers, streams_wanted(os.environ))


def open_device(folder: Path, manifest: Manifest, cache_bytes: int = 0, batches: int = 1) -> Device:
    """Open the device for a bundle that decodes several batches at the same time; their caches may
    take `cache_bytes` together.

    Raises as `check_device` does, and BundleError if the device is unusable or has too little
    memory.
    """
    check_device(folder, manifest)
    target = manifest.target
    if target == "cpu":
        return CpuDevice(ON_CPU)
    if wanted() == "cpu":
        return CpuDevice(DeviceUse("cpu", f"the bundle is for {target}, but {SWITCH}=cpu"))
    # Not needed on the CPU.
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
    """Raise BundleError for a bundle that this service cannot run, or runs on request only, as far
    as the installed ONNX Runtime shows.

    The CPU computes fp32 and fp16 graphs of any target correctly, but slower than a bundle of its
    own, and others (`runs_on_cpu`) not at all. Raises SettingsError for an invalid value of the
    switch.
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
    """Advice for a bundle whose device is missing."""
    other = "export the checkpoint with --target cpu"
    if not runs_on_cpu(manifest.precision):
        return other
    return f"{other}, or set {SWITCH}=cpu to run these graphs on the CPU, which is slower"
