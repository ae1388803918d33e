"""Verbs that measure training."""

from __future__ import annotations

import argparse
import importlib.util

from bench.commands.machine import idle_machine, status, tell, watched
from bench.commands.options import (
    at_least_one,
    command_of,
    cores_of,
    numbers,
)
from bench.errors import BenchError
from bench.machine.gpu import look_at_gpu
from bench.runs.training.attention_layer import attention_markdown, time_attention
from bench.runs.training.training_speed import (
    TrainingPlan,
    measure_matrix_speed,
    time_training,
    training_markdown,
)
from training.models import PRESETS


def attention(options: argparse.Namespace) -> int:
    """Time one attention layer, forward and backward."""
    cores = cores_of(options.threads)
    lengths = numbers("--length", options.length, 2**16)
    repetitions = at_least_one("--repetitions", options.repetitions)
    machine = idle_machine(cores, busy=options.busy)
    found = time_attention(lengths, repetitions, cores, tell)
    machine = watched(machine)
    print(attention_markdown(command_of(options), machine, found))
    return status(machine, busy=options.busy)


def training(options: argparse.Namespace) -> int:
    """Time updates of a model in training, in turns with its peer."""
    baselines = [name for name in PRESETS if name.startswith("transformer_")]
    if options.preset not in baselines:
        raise BenchError(f"--preset must be one of {', '.join(baselines)}, got {options.preset!r}")
    cores = cores_of(options.threads)
    plan = TrainingPlan(
        preset=options.preset,
        vocab_size=at_least_one("--vocab-size", options.vocab_size),
        token_budget=at_least_one("--token-budget", options.token_budget),
        updates=at_least_one("--updates", options.updates),
        repetitions=at_least_one("--repetitions", options.repetitions),
        threads=cores,
        bf16=options.bf16,
        device=options.device or "cpu",
    )
    if importlib.util.find_spec("transformers") is None:
        raise BenchError("the peer is not installed: pip install transformers")
    gpu = look_at_gpu() if plan.device == "cuda" else None
    machine = idle_machine(cores, busy=options.busy, gpu=gpu)
    speed = measure_matrix_speed(plan)
    found = time_training(plan, tell)
    machine = watched(machine)
    print(training_markdown(command_of(options), machine, plan, speed, found))
    return status(machine, busy=options.busy)
