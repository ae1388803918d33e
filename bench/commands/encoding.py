"""Verbs that measure encoders."""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from pathlib import Path

from bench.commands.machine import idle_machine, status, tell, watched
from bench.commands.options import (
    at_least_one,
    command_of,
    cores_of,
    numbers,
    read_texts,
)
from bench.errors import BenchError


def encoders(options: argparse.Namespace) -> int:
    """Time another project's encoder, in turns with its peers."""
    from bench.runs.encoding.encoders import EncoderPlan, encoders_markdown, time_encoders

    cores = cores_of(options.threads)
    plan = EncoderPlan(
        source=options.source,
        bundle=options.bundle,
        texts=read_texts(options.texts),
        batches=tuple(numbers("--batch", options.batch, 1024)),
        repetitions=at_least_one("--repetitions", options.repetitions),
        threads=cores,
    )
    for peer in ("transformers", "ctranslate2"):
        if importlib.util.find_spec(peer) is None:
            raise BenchError(f"a peer is not installed: pip install {peer}")
    machine = idle_machine(cores, busy=options.busy)
    with tempfile.TemporaryDirectory() as folder:
        found = time_encoders(plan, Path(folder), tell)
    machine = watched(machine)
    print(encoders_markdown(command_of(options), machine, plan, found))
    return status(machine, busy=options.busy)


def encoder_server(options: argparse.Namespace) -> int:
    """Time an encoder over HTTP, in turns with its engine without HTTP."""
    from bench.runs.encoding.encoder_server import (
        EncoderServerPlan,
        encoder_server_markdown,
        time_encoder_server,
    )

    cores = cores_of(options.threads)
    plan = EncoderServerPlan(
        bundle=options.bundle,
        texts=read_texts(options.texts),
        batches=numbers("--batch", options.batch, 1024),
        repetitions=at_least_one("--repetitions", options.repetitions),
        seconds=at_least_one("--seconds", options.seconds),
        threads=cores,
    )
    machine = idle_machine(cores, busy=options.busy)
    found = time_encoder_server(plan, tell)
    machine = watched(machine)
    print(encoder_server_markdown(command_of(options), machine, plan, found))
    return status(machine, busy=options.busy)
