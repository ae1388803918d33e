"""The verb that looks at all speeds and compares them with the last look."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

from bench.commands.machine import idle_machine, status, tell, watched
from bench.commands.options import at_least_one, command_of, cores_of
from bench.runs.gate.record import gate_markdown, losses, read_last, record_of, write_record
from bench.runs.gate.rows import GatePlan, measure_gate


def gate(options: argparse.Namespace) -> int:
    """Measure every row; the table goes to stdout, the record into a file."""
    cores = cores_of(options.threads)
    plan = GatePlan(at_least_one("--repetitions", options.repetitions), cores)
    command, now = command_of(options), datetime.now(UTC)
    machine = idle_machine(cores, busy=options.busy)
    before = read_last(options.records, machine)
    found = measure_gate(plan, tell)
    machine = watched(machine)
    record = record_of(command, machine, found, now)
    tell(f"the record is {write_record(options.records, record)}")
    print(gate_markdown(command, machine, found, plan.repetitions, before))
    lost = losses(found, before)
    for line in lost:
        print(f"error: slower: {line}", file=sys.stderr)
    return 1 if lost else status(machine, busy=options.busy)
