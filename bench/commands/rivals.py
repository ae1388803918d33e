"""Verbs that measure other products that people would use instead, each product in its own
environment."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.commands.machine import idle_machine, status, tell, watched
from bench.commands.options import (
    at_least_one,
    command_of,
    cores_of,
    named_paths,
    numbers,
    read_texts,
)
from bench.errors import BenchError
from bench.machine.gpu import look_at_gpu


def pythons_of(texts: Sequence[str], products: Sequence[str]) -> dict[str, Path]:
    """Read options of the form NAME=PYTHON; NAME may be several names with commas between.

    Raises BenchError for a name that is not one of the products, and for one that is given twice.
    """
    found: dict[str, Path] = {}
    for names, python in named_paths("--rival", texts).items():
        for name in names.split(","):
            if name not in products:
                raise BenchError(f"--rival must name one of {', '.join(products)}, got {name!r}")
            if name in found:
                raise BenchError(f"--rival must name {name} once, got it twice")
            found[name] = python
    return found


def _texts_by_name(files: Sequence[Path]) -> dict[str, list[str]]:
    """The texts of each file, by its name without the suffix; raises BenchError for one of two."""
    names = [file.stem for file in files]
    if len(set(names)) < len(names):
        raise BenchError(f"files of --texts must have names of their own, got {', '.join(names)}")
    return dict(zip(names, map(read_texts, files), strict=True))


def language_rivals(options: argparse.Namespace) -> int:
    """Time a language model in a GGUF file, in turns with llama.cpp; the tables go to stdout."""
    from bench.runs.rivals.language import (
        LLAMA,
        LanguageRivalsPlan,
        compare_language,
        language_rivals_markdown,
    )

    cores = cores_of(options.threads)
    if not options.gguf.is_file():
        raise BenchError(f"--gguf must name a file of GGUF, {options.gguf} is not one")
    plan = LanguageRivalsPlan(
        file=options.gguf,
        bundle=options.bundle,
        texts=read_texts(options.texts),
        pythons=pythons_of(options.rival, (LLAMA,)),
        repetitions=at_least_one("--repetitions", options.repetitions),
        threads=cores,
    )
    machine = idle_machine(cores, busy=options.busy)
    with tempfile.TemporaryDirectory(prefix="macaron-bench-") as folder:
        found = compare_language(plan, Path(folder), tell)
    machine = watched(machine)
    print(language_rivals_markdown(command_of(options), machine, plan, found))
    return status(machine, busy=options.busy)


def encoder_rivals(options: argparse.Namespace) -> int:
    """Time a sentence embedder, in turns with the products that run it; the tables go to stdout."""
    from bench.runs.rivals.encoders import (
        PRODUCTS,
        SENTENCES,
        EncoderRivalsPlan,
        compare_encoders,
        encoder_rivals_markdown,
    )

    cores, device = cores_of(options.threads), options.device or "cpu"
    if device == "cuda" and options.materials:
        raise BenchError("--materials are the files of rivals on a CPU; leave out --device cuda")
    plan = EncoderRivalsPlan(
        source=options.source,
        bundle=options.bundle,
        texts=_texts_by_name(options.texts),
        batches=numbers("--batch", options.batch, 1024),
        pythons=pythons_of(options.rival, PRODUCTS if device == "cpu" else (SENTENCES,)),
        repetitions=at_least_one("--repetitions", options.repetitions),
        threads=cores,
        device=device,
    )
    gpu = look_at_gpu() if device == "cuda" else None
    machine = idle_machine(cores, busy=options.busy, gpu=gpu)
    with tempfile.TemporaryDirectory(prefix="macaron-bench-") as folder:
        found = compare_encoders(plan, options.materials or Path(folder), tell)
    machine = watched(machine)
    print(encoder_rivals_markdown(command_of(options), machine, plan, found))
    return status(machine, busy=options.busy)


def student_rivals(options: argparse.Namespace) -> int:
    """Time a student of Bergamot, in turns with other runtimes for it; the tables go to stdout."""
    from bench.runs.rivals.students import (
        PRODUCTS,
        StudentRivalsPlan,
        compare_students,
        student_rivals_markdown,
    )

    plan = StudentRivalsPlan(
        source=options.source,
        bundle=options.bundle,
        texts=read_texts(options.texts),
        pythons=pythons_of(options.rival, PRODUCTS),
        repetitions=at_least_one("--repetitions", options.repetitions),
    )
    machine = idle_machine(1, busy=options.busy)
    with tempfile.TemporaryDirectory(prefix="macaron-bench-") as folder:
        found = compare_students(plan, Path(folder), tell)
    machine = watched(machine)
    print(student_rivals_markdown(command_of(options), machine, plan, found))
    return status(machine, busy=options.busy)


def server_rivals(options: argparse.Namespace) -> int:
    """Load this project's server, in turns with LibreTranslate's; the tables go to stdout."""
    from bench.runs.rivals.servers import (
        PRODUCTS,
        ServerRivalsPlan,
        compare_servers,
        server_rivals_markdown,
    )

    cores = cores_of(None)
    plan = ServerRivalsPlan(
        bundle=options.bundle,
        run=options.checkpoint,
        texts=list(dict.fromkeys(read_texts(options.texts))),
        clients=numbers("--clients", options.clients, 1024),
        seconds=at_least_one("--seconds", options.seconds),
        pythons=pythons_of(options.rival, PRODUCTS),
        repetitions=at_least_one("--repetitions", options.repetitions),
        cores=cores,
    )
    machine = idle_machine(cores, busy=options.busy)
    with tempfile.TemporaryDirectory(prefix="macaron-bench-") as folder:
        found = compare_servers(plan, Path(folder), tell)
    machine = watched(machine)
    print(server_rivals_markdown(command_of(options), machine, plan, found))
    return status(machine, busy=options.busy)


def detector_rivals(options: argparse.Namespace) -> int:
    """Compare the engine's detector of languages with other detectors, in turns; the tables go to
    stdout."""
    from bench.runs.rivals.detectors import (
        PRODUCTS,
        DetectorRivalsPlan,
        compare_detectors,
        detector_rivals_markdown,
    )
    from training.corpora.pairs import read_lines

    plan = DetectorRivalsPlan(
        texts={
            code: read_lines(file) for code, file in named_paths("--texts", options.texts).items()
        },
        count=at_least_one("--count", options.count),
        pythons=pythons_of(options.rival, PRODUCTS),
        repetitions=at_least_one("--repetitions", options.repetitions),
        seed=options.seed,
    )
    machine = idle_machine(1, busy=options.busy)
    found = compare_detectors(plan, tell)
    machine = watched(machine)
    print(detector_rivals_markdown(command_of(options), machine, plan, found))
    return status(machine, busy=options.busy)
