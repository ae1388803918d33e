"""The GPU that a bench runs on: its name, its memory, and the limits that it has been measured at.

Only the driver and its own tool are asked for names and memory, so that no process needs a library
for it.
"""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass

from bench.errors import BenchError
from serving.runtime.gpu.cuda_driver import DriverError, first_uuid

_QUERY = ("nvidia-smi", "--format=csv,noheader,nounits")
_COPY_BYTES = 2**30
_REPETITIONS = 10


@dataclass(frozen=True)
class MeasuredGpu:
    """The first GPU and the speeds that it reached in this run."""

    name: str
    driver: str
    memory_mib: int
    bandwidth: float
    """Bytes per second that a copy reads and writes."""
    operations: float
    """Floating-point operations a second of fp16 matrix products."""


def look_at_gpu() -> MeasuredGpu:
    """Names and limits of the first GPU; raises BenchError if there is none."""
    import torch

    from training.loop.speed import matrix_speed

    name, driver, memory = _ask("name,driver_version,memory.total")
    if not torch.cuda.is_available():
        raise BenchError(
            f"PyTorch {torch.__version__} does not see the {name}; --device cuda needs a build of "
            "PyTorch for CUDA"
        )
    device = torch.device("cuda")
    return MeasuredGpu(
        name=name,
        driver=driver,
        memory_mib=int(memory),
        bandwidth=_copy_speed(),
        operations=matrix_speed(device, torch.float16),
    )


def used_memory() -> int:
    """Bytes of the first GPU's memory that are in use by any process."""
    (used,) = _ask("memory.used")
    return int(used) * 2**20


def _copy_speed() -> float:
    import torch

    source = torch.empty(_COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    best = 0.0
    for _ in range(_REPETITIONS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        target.copy_(source)
        torch.cuda.synchronize()
        best = max(best, 2 * _COPY_BYTES / (time.perf_counter() - start))
    return best


def _first() -> str:
    """The name of CUDA's first GPU for nvidia-smi, which numbers GPUs in an order of its own and
    ignores CUDA_VISIBLE_DEVICES."""
    try:
        return first_uuid()
    except DriverError:  # nvidia-smi says what is wrong
        return "0"


def _ask(fields: str) -> list[str]:
    asked = (*_QUERY, f"--id={_first()}", f"--query-gpu={fields}")
    try:
        queried = subprocess.run(asked, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stdout", "") or getattr(error, "stderr", "") or str(error)
        raise BenchError(
            f"--device cuda needs a GPU with its driver, and nvidia-smi does not answer: "
            f"{' '.join(said.split())}"
        ) from error
    return [part.strip() for part in queried.stdout.strip().split(",")]
