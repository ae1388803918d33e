"""PyTorch compiled: runs the batches of `bench.systems.pytorch.eager` through `torch.compile`.

The compiler is imported only where it is used, because PyTorch eager is measured without it.
"""

from __future__ import annotations

from typing import Any

from bench.errors import BenchError
from training.runs.folder import missing_compiler

_RECOMPILES = 64
"""A form is compiled for each pattern of sizes 0, 1 and more, with and without padding; by default
PyTorch goes back to eager after eight."""
_SOURCE = ("encode", "encode_source", "project_source")


def check_compiler(device: str) -> None:
    """Raise BenchError if `torch.compile` would find nothing to make kernels with."""
    missing = missing_compiler(device)
    if missing is not None:
        raise BenchError(
            f"--compiled needs {missing} for torch.compile, which is not found; install it, or "
            "leave --compiled out"
        )


def compiled(function: Any) -> Any:
    """The function, compiled at its first calls, for sizes of any kind and with weights laid out
    for the processor, as PyTorch advises for inference."""
    import torch
    import torch._dynamo
    import torch._inductor.config

    config = torch._dynamo.config
    config.recompile_limit, config.fail_on_recompile_limit_hit = _RECOMPILES, True
    torch._inductor.config.freezing = True  # as an option of this call it is not seen everywhere
    return torch.compile(function, dynamic=True)


def compile_source(model: Any) -> None:
    """Compile the parts of a model that read a source, in place."""
    for name in _SOURCE:
        if hasattr(model, name):
            setattr(model, name, compiled(getattr(model, name)))
