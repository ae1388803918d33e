"""The GPU that a bench runs on: its name, its memory, and the limits that it has been measured at.

Only the driver's own tool is asked for names and memory, so that no process needs a library for it.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.errors import BenchError

if TYPE_CHECKING:  # a worker process may ask for memory, and must hold no engine but its own
    from training.models import TranslationModel

_QUERY = ("nvidia-smi", "--format=csv,noheader,nounits", "--id=0")
_COPY_BYTES = 2**30
_REPETITIONS = 10


@dataclass(frozen=True)
class Gpu:
    """The first GPU and what it reached in this run."""

    name: str
    driver: str
    memory_mib: int
    bandwidth: float
    """Bytes a second that a copy reads and writes."""
    operations: float
    """Floating-point operations a second of fp16 matrix products."""


@dataclass(frozen=True)
class Work:
    """What decoding a call cannot do without."""

    operations: float
    """Of matrix products, without the attention of a step."""
    weight_bytes: float
    """Weights in 16 bits that are read, once for the encoder and once a step."""

    def share(self, seconds: float, gpu: Gpu) -> tuple[float, float]:
        """Shares of the GPU's bandwidth and of its matrix speed that a call of that time uses."""
        return (
            self.weight_bytes / seconds / gpu.bandwidth,
            self.operations / seconds / gpu.operations,
        )


def look_at_gpu() -> Gpu:
    """Names and limits of the first GPU; raises BenchError where there is none."""
    import torch

    from training.speed import matrix_speed

    name, driver, memory = _ask("name,driver_version,memory.total")
    if not torch.cuda.is_available():
        raise BenchError(
            f"PyTorch {torch.__version__} does not see the {name}; --device cuda needs a build of "
            "PyTorch for CUDA"
        )
    device = torch.device("cuda")
    return Gpu(
        name=name,
        driver=driver,
        memory_mib=int(memory),
        bandwidth=_copy_speed(),
        operations=matrix_speed(device, torch.float16),
    )


def used_memory() -> int:
    """Bytes of the first GPU's memory that are in use, by whomever."""
    (used,) = _ask("memory.used")
    return int(used) * 2**20


def work_of(
    model: TranslationModel, batch: Sequence[Sequence[int]], beams: int, steps: int
) -> Work:
    """The work of decoding sources of ids together, padded to the longest, with as many steps for
    all.

    Counted in one run of the encoder and one step of PyTorch eager for the longest.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from bench.eager_models import start_batch

    with torch.inference_mode(), FlopCounterMode(display=False) as encoder:
        begun = start_batch(model, [max(batch, key=len)], 1)
    with torch.inference_mode(), FlopCounterMode(display=False) as step:
        begun.step(torch.zeros(1, 1, dtype=torch.int64), 0)
    sizes = {name: p.numel() for name, p in model.named_parameters() if p.dim() > 1}
    encoding = sum(size for name, size in sizes.items() if _is_for_source(name))
    weights = encoding + steps * (sum(sizes.values()) - encoding)
    operations = encoder.get_total_flops() + steps * beams * step.get_total_flops()
    return Work(float(len(batch) * operations), 2.0 * weights)


def _is_for_source(weight: str) -> bool:
    """Whether a weight of that name is read once a call."""
    return weight.startswith("encoder.") or ".key_value_proj." in weight


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


def _ask(fields: str) -> list[str]:
    try:
        told = subprocess.run(
            [*_QUERY, f"--query-gpu={fields}"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stdout", "") or getattr(error, "stderr", "") or str(error)
        raise BenchError(
            f"--device cuda needs a GPU with its driver, and nvidia-smi does not answer: "
            f"{' '.join(said.split())}"
        ) from error
    return [part.strip() for part in told.stdout.strip().split(",")]
