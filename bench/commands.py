"""The verbs of `python -m bench`."""

from __future__ import annotations

import argparse
import shlex
import sys

from bench.engine import Plan, failures, run_engine
from bench.errors import BenchError
from bench.materials import Subject, random_subject, trained_subject
from bench.report import (
    busy_warning,
    look_at_machine,
    score_translations,
    to_markdown,
    write_record,
)
from bench.scenarios import SHAPES, order_scenarios
from serving.options import RANGES
from serving.threads import default_threads

_DEFAULT_SEED = 1
_MAX_BATCH = 1024


def engine(options: argparse.Namespace) -> int:
    """Measure the engine beside its rivals; the table goes to stdout."""
    cores = _cores(options.threads)
    machine = look_at_machine(cores)  # first, before this run itself makes the machine busy
    plan = Plan(
        scenarios=order_scenarios(
            _numbers("--batch", options.batch, _MAX_BATCH),
            _numbers("--beam", options.beam, int(RANGES["beam_size"][1])),
        ),
        repetitions=_at_least_one("--repetitions", options.repetitions),
        cores=cores,
    )
    if options.json is not None and options.json.is_dir():
        raise BenchError(f"--json must name a file, {options.json} is a folder")
    subject = _subject(options)
    _progress(f"load average {machine.load:.2f}")
    if machine.busy:
        _progress(f"warning: {busy_warning(machine)}")
    result = run_engine(subject, plan, _progress)
    bleu = score_translations(subject, result)
    command = shlex.join(["python", "-m", "bench", *_arguments(options)])
    print(to_markdown(command, machine, subject, plan, result, bleu))
    if options.json is not None:
        write_record(options.json, command, machine, subject, plan, result, bleu)
    failed = failures(result, forced=subject.forced)
    for line in failed:
        print(f"error: {line}", file=sys.stderr)
    return 1 if failed else 0


def _subject(options: argparse.Namespace) -> Subject:
    text = (options.source, options.reference)
    if options.checkpoint is None:
        if any(text):
            raise BenchError("--source and --reference need --checkpoint RUN")
        shape = options.shape or "demo"
        if shape not in SHAPES:
            raise BenchError(f"--shape must be demo or base, got {shape!r}")
        seed = _DEFAULT_SEED if options.random_weights is None else options.random_weights
        return random_subject(shape, seed)
    if options.shape is not None or options.random_weights is not None:
        raise BenchError("--checkpoint has its own shape and weights; leave out the other two")
    if not all(text):
        raise BenchError("--checkpoint needs both --source FILE and --reference FILE")
    return trained_subject(options.checkpoint, *text)


def _arguments(options: argparse.Namespace) -> list[str]:
    """The command's arguments, written out."""
    values = vars(options).items()
    given = [(k, v) for k, v in values if k not in ("verb", "json") and v is not None]
    return [
        options.verb,
        *(part for k, v in given for part in (f"--{k.replace('_', '-')}", str(v))),
    ]


def _cores(threads: int | None) -> int:
    available = default_threads()
    if threads is None:
        return available
    if not 1 <= threads <= available:
        raise BenchError(f"--threads must be in [1, {available}] on this machine, got {threads}")
    return threads


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise BenchError(f"{name} must be >= 1, got {value}")
    return value


def _numbers(name: str, text: str, highest: int) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or not all(1 <= number <= highest for number in numbers):
        raise BenchError(
            f"{name} must be numbers in [1, {highest}] with commas between, got {text!r}"
        )
    return numbers


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
