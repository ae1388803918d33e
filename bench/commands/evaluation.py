"""Verbs that measure the quality of translations."""

from __future__ import annotations

import argparse
import random

import torch

from bench.commands.machine import idle_machine, look, status, tell, watched
from bench.commands.options import (
    MAX_BATCH,
    at_least_one,
    check_file,
    command_of,
    cores_of,
    named_paths,
    numbers,
)
from bench.errors import BenchError
from bench.runs.evaluation.quality import compare_systems, parse_system
from bench.runs.evaluation.quality_report import quality_markdown, write_quality_record
from serving.encoding.reader import Embedder
from serving.translation.translator import Translator
from training.corpora.pairs import read_pairs


def quality(options: argparse.Namespace) -> int:
    """Compare trained systems on a test set; the tables go to stdout."""
    cores = cores_of(options.threads)
    check_file("--json", options.json)
    systems = [parse_system(text) for text in options.system]
    machine = look(cores)
    torch.set_num_threads(cores)
    results = compare_systems(systems, options.source, options.reference, options.beam_size, tell)
    sentences = len(results[0].runs[0].translations)
    subject = f"{options.source.name}, {sentences} sentences, beam {options.beam_size}."
    command = command_of(options)
    print(quality_markdown(command, machine, subject, results))
    if options.json is not None:
        write_quality_record(options.json, command, machine, subject, results)
    return 0


def verification(options: argparse.Namespace) -> int:
    """Measure what `verify` finds, and the time that it takes; the table goes to stdout."""
    from bench.runs.evaluation.verification import (
        VerificationPlan,
        measure_verification,
        verification_markdown,
        write_verification,
    )

    check_file("--json", options.json)
    if len(options.source) != len(options.reference):
        raise BenchError(
            f"--reference must be given once for each --source, {len(options.source)} times, got "
            f"{len(options.reference)}"
        )
    source, _, target = options.languages.partition("-")
    files = zip(options.source, options.reference, strict=True)
    pairs = [pair for each in files for pair in read_pairs(*each)]
    translator = Translator(options.bundle, threads=cores_of(options.threads))
    plan = VerificationPlan(
        sample=at_least_one("--sentences", options.sentences),
        repetitions=at_least_one("--repetitions", options.repetitions),
        seed=options.seed,
        minutes=at_least_one("--minutes", options.minutes),
    )
    result = measure_verification(translator, (source, target), pairs, plan, tell)
    print(verification_markdown([result]))
    if options.json is not None:
        write_verification(options.json, [result])
    return 0


def terms(options: argparse.Namespace) -> int:
    """Measure how often the terms of a glossary are used where they belong; the table goes to
    stdout."""
    from bench.runs.evaluation.terms import measure_terms, terms_markdown

    source, _, target = options.languages.partition("-")
    if {source, target} != {"de", "en"}:
        raise BenchError(f"--languages must be de-en or en-de, got {options.languages}")
    translator = Translator(options.bundle, threads=cores_of(options.threads))
    count = at_least_one("--sentences", options.sentences)
    results = measure_terms(translator, (source, target), count, options.seed, tell)
    print(terms_markdown(options.languages, results))
    return 0


def estimation(options: argparse.Namespace) -> int:
    """Measure the quality of a bundle's probabilities; the tables go to stdout."""
    from bench.runs.evaluation.estimation import estimation_markdown, measure_estimation

    if options.read is not None:
        return _reading(options)
    if not (options.source and options.languages):
        raise BenchError(
            "--languages, --source, --reference and --name, or --read alone, must be given"
        )
    counts = {len(given) for given in (options.source, options.reference, options.name)}
    if len(counts) > 1:
        raise BenchError(
            f"--reference and --name must be given once for each --source, {len(options.source)} "
            f"times, got {len(options.reference)} and {len(options.name)}"
        )
    source, _, target = options.languages.partition("-")
    count = at_least_one("--sentences", options.sentences)
    translator = Translator(options.bundle, threads=cores_of(options.threads))
    results = []
    for name, *files in zip(options.name, options.source, options.reference, strict=True):
        pairs = read_pairs(*files)
        chosen = random.Random(options.seed).sample(pairs, min(count, len(pairs)))
        results.append(
            measure_estimation(translator, (source, target), name, chosen, options.seed, tell)
        )
    print(estimation_markdown(options.languages, results))
    return 0


def _reading(options: argparse.Namespace) -> int:
    from bench.runs.evaluation.reading import measure_reading, read_marks, reading_markdown

    read = read_marks(options.read)
    translator = Translator(options.bundle, threads=cores_of(options.threads))
    print(reading_markdown([measure_reading(translator, read, tell)]))
    return 0


def dictionary(options: argparse.Namespace) -> int:
    """Measure whether rare words, names, numbers and dates come out right; the table goes to
    stdout."""
    from bench.runs.evaluation.dictionary import (
        dictionary_markdown,
        measure_dictionary,
        read_dictionary,
    )

    source, _, target = options.languages.partition("-")
    if not source or not target:
        raise BenchError(f"--languages must be SOURCE-TARGET, got {options.languages!r}")
    way, threads = f"{source}>{target}", cores_of(options.threads)
    lines = [line for path in options.lines for line in read_dictionary(path, way)]
    names = [line for path in options.names for line in read_dictionary(path, way)]
    systems = {
        name: Translator(folder, threads=threads)
        for name, folder in named_paths("--system", options.system).items()
    }
    results = measure_dictionary(systems, (source, target), lines, [*names, *lines], tell)
    print(dictionary_markdown(results))
    return 0


def similarity(options: argparse.Namespace) -> int:
    """Measure the quality of the vectors of bundles; the table goes to stdout."""
    from bench.runs.evaluation.similarity import measure_similarity, similarity_markdown

    pairs, scored = named_paths("--pairs", options.pairs), named_paths("--scores", options.scores)
    if not pairs and not scored:
        raise BenchError("--pairs or --scores must be given at least once, got neither")
    threads = cores_of(options.threads)
    systems = {
        name: Embedder(folder, threads=threads)
        for name, folder in named_paths("--system", options.system).items()
    }
    print(similarity_markdown(measure_similarity(systems, pairs, scored, tell)))
    return 0


def perplexity(options: argparse.Namespace) -> int:
    """Measure how well bundles of language models predict text; the table goes to stdout."""
    from bench.runs.evaluation.perplexity import measure_perplexity, perplexity_markdown
    from serving.generation.generator import Generator

    texts = named_paths("--text", options.text)
    wikitexts = named_paths("--wikitext", options.wikitext)
    if not texts and not wikitexts:
        raise BenchError("--text or --wikitext must be given at least once, got neither")
    if both := sorted(texts.keys() & wikitexts.keys()):
        raise BenchError(f"each text must have a name of its own, got {both[0]!r} twice")
    threads = cores_of(options.threads)
    systems = {
        name: Generator(folder, threads=threads)
        for name, folder in named_paths("--system", options.system).items()
    }
    print(perplexity_markdown(measure_perplexity(systems, texts, wikitexts, tell)))
    return 0


def bundles(options: argparse.Namespace) -> int:
    """Measure translation bundles in turns; the table goes to stdout."""
    from bench.runs.evaluation.bundles import (
        BundlesPlan,
        bundles_markdown,
        draw_bundles,
        time_bundles,
    )

    cores = cores_of(options.threads)
    check_file("--plot", options.plot)
    pairs = read_pairs(options.source, options.reference)
    plan = BundlesPlan(
        bundles=named_paths("--system", options.system),
        pairs=pairs,
        batches=numbers("--batch", options.batch, MAX_BATCH),
        beam_size=options.beam_size,
        repetitions=at_least_one("--repetitions", options.repetitions),
        threads=cores,
    )
    machine = idle_machine(cores, busy=options.busy)
    found = time_bundles(plan, tell)
    machine = watched(machine)
    subject = (
        f"{options.source.name}, {len(pairs)} sentences, beam {plan.beam_size}, "
        f"{cores} thread{'s' if cores > 1 else ''}; median of {plan.repetitions}."
    )
    print(bundles_markdown(command_of(options), machine, subject, plan, found))
    if options.plot is not None:
        draw_bundles(found, max(plan.batches), options.plot)
    return status(machine, busy=options.busy)
