"""The machine during a measurement, and progress reports on stderr."""

from __future__ import annotations

import sys
from dataclasses import replace

from bench.errors import BenchError
from bench.machine.gpu import MeasuredGpu
from bench.reports.report import Machine, busy_warning, look_again, look_at_machine


def look(processors: int) -> Machine:
    """Look at the machine, of which a verb uses `processors` cores; warns if it is busy."""
    machine = look_at_machine(processors)
    if machine.busy:
        tell(f"warning: {busy_warning(machine)}")
    return machine


def idle_machine(processors: int, *, busy: bool, gpu: MeasuredGpu | None = None) -> Machine:
    """The machine; raises BenchError if it is busy, unless it may be `busy`."""
    machine = replace(look(processors), gpu=gpu)
    if machine.busy and not busy:
        raise BenchError("stop other programs, or give --busy to measure anyway")
    return machine


def watched(machine: Machine) -> Machine:
    """Look at the machine after the run; warns if it has become busy."""
    machine = look_again(machine)
    if machine.busy:
        tell(f"warning: {busy_warning(machine)}")
    return machine


def status(machine: Machine, *, busy: bool) -> int:
    """The exit status: 1 for times that are not to be quoted, unless the machine may be `busy`."""
    return 1 if machine.busy and not busy else 0


def tell(line: str) -> None:
    """Write a line to stderr, at once."""
    print(line, file=sys.stderr, flush=True)
