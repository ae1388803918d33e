"""The head of every table: machine, versions and command; and the format of rows."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import onnxruntime
import psutil

from bench.machine.gpu import MeasuredGpu
from bench.machine.processor import USE_MKL, child_environment, cpu_name, cpuinfo
from export.bundles.folder import module_version
from export.comparison.significance import BleuChange

BUSY_SHARE = 0.1
"""Largest share of the processors in use by others for reliable times."""
_LOOK_S = 2.0
_PACKAGES = ("onnxruntime", "ctranslate2", "torch", "sentencepiece", "numpy")


@dataclass(frozen=True)
class Machine:
    """The machine and its load; checked before anything else."""

    cpu: str
    cores: int
    """Physical cores of the machine."""
    processors: int
    """Cores that this process may use."""
    memory_gib: float
    others: float
    """Share of all processors in use in the seconds before the run."""
    gpu: MeasuredGpu | None = None
    """The GPU of the run, if there is one."""
    others_after: float | None = None
    """The same share after the run; None if it has not been checked yet."""

    @property
    def busy(self) -> bool:
        """Whether other work makes times unreliable."""
        return max(self.others, self.others_after or 0.0) > BUSY_SHARE


def look_at_machine(processors: int) -> Machine:
    """The machine in its present state; takes two seconds."""
    return Machine(
        cpu=cpu_name(cpuinfo()),
        cores=psutil.cpu_count(logical=False) or processors,
        processors=processors,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        others=_others(),
    )


def look_again(machine: Machine) -> Machine:
    """The same machine after the run; takes two seconds."""
    return replace(machine, others_after=_others())


def _others() -> float:
    return round(psutil.cpu_percent(interval=_LOOK_S) / 100, 3)


def versions() -> dict[str, str]:
    """Versions of Python and of the installed engines. ONNX Runtime's shows its CUDA version, and
    CTranslate2's whether it multiplies with MKL."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(ImportError):
            found[name] = module_version(name)
    if onnxruntime.cuda_version:
        found["onnxruntime"] += f" (CUDA {onnxruntime.cuda_version})"
    if "ctranslate2" in found and child_environment("int8").get(USE_MKL) == "1":
        found["ctranslate2"] += " (int8 with MKL)"
    return found


def head_lines(command: str, machine: Machine, subject_line: str) -> Iterator[str]:
    """The head of a table: command, subject, machine, versions and a warning."""
    yield from (f"`{command}`", "", subject_line)
    after = "" if machine.others_after is None else f", {machine.others_after:.0%} after it"
    yield (
        f"{machine.cpu}, {machine.cores} cores ({machine.processors} used), "
        f"{machine.memory_gib} GiB; {machine.others:.0%} in use before the run{after}."
    )
    if machine.gpu is not None:
        gpu = machine.gpu
        yield (
            f"{gpu.name}, {gpu.memory_mib} MiB, driver {gpu.driver}; measured in this run: "
            f"{gpu.bandwidth / 1e9:.0f} GB/s in copies, {gpu.operations / 1e12:.0f} TFLOP/s in "
            "fp16 matrix products."
        )
    yield ", ".join(f"{name} {number}" for name, number in versions().items()) + "."
    if machine.busy:
        yield from ("", f"**{busy_warning(machine)}**")


def table_line(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def table_head(columns: Sequence[str], texts: int = 1) -> list[str]:
    """The first two lines of a Markdown table: text in its first columns, numbers in the others."""
    kinds = ["---"] * texts + ["---:"] * (len(columns) - texts)
    return [table_line(columns), table_line(kinds)]


def busy_warning(machine: Machine) -> str:
    """The warning for a machine that is not idle."""
    return (
        f"the machine was busy ({max(machine.others, machine.others_after or 0.0):.0%} of its "
        f"processors in use, at most {BUSY_SHARE:.0%} is idle): these times are not to be quoted"
    )


def written_change(change: BleuChange) -> str:
    """A change of BLEU with its interval."""
    return f"{change.mean:+.2f} ({change.low:+.2f} to {change.high:+.2f})"
