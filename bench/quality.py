"""Quality of several trained systems, each with several seeds, on one test set."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from export.quality import BleuChange, mean_bleu_change
from serving.errors import InvalidOptionError
from serving.search.options import SearchOptions
from training.analysis import FrequencyBucket, LengthBucket, f1_by_frequency, quality_by_length
from training.checkpoint import find_checkpoint
from training.config import TranslationRecipe
from training.corpus import Pair, read_pairs
from training.evaluation import training_counts
from training.metrics import training_seconds
from training.quality import CorpusScores, measure_quality
from training.run import load_trained, read_run_recipe
from training.translation import translate


@dataclass(frozen=True)
class TrainedSystem:
    """One recipe and its runs, which differ in their seed."""

    name: str
    runs: list[Path]


@dataclass(frozen=True)
class RunResult:
    """One run on the test set."""

    run: str
    checkpoint: str
    parameters: int
    training_hours: float
    tokens_per_second: float
    """Pieces of the best outputs, without eos, over the time of the whole test set."""
    quality: CorpusScores
    lengths: list[LengthBucket]
    frequencies: list[FrequencyBucket]
    translations: list[str]


@dataclass(frozen=True)
class SystemResult:
    """The runs of one system."""

    name: str
    runs: list[RunResult]
    change: BleuChange | None
    """From the first system, run by run; None for the first."""


def parse_system(text: str) -> TrainedSystem:
    """Read NAME=RUN,RUN,...

    Raises BenchError where it is not of that form.
    """
    name, _, runs = text.partition("=")
    folders = runs.split(",")
    if not name or not all(folders):
        raise BenchError(f"--system must be NAME=RUN,RUN,... with one run at least, got {text!r}")
    return TrainedSystem(name, [Path(folder) for folder in folders])


def compare_systems(
    systems: list[TrainedSystem],
    source: Path,
    reference: Path,
    beam_size: int,
    progress: Callable[[str], None],
) -> list[SystemResult]:
    """Translate `source` with every run and score it; the first system is the baseline.

    Words are counted in the training text of the baseline's first run. Raises BenchError or a
    TrainingError where a run or text cannot be used, before the first translation where possible.
    """
    _check(systems)
    try:
        options = SearchOptions(beam_size=beam_size)
    except InvalidOptionError as error:
        raise BenchError(str(error)) from error
    pairs = read_pairs(source, reference)
    counts = training_counts(read_run_recipe(systems[0].runs[0]))
    results: list[SystemResult] = []
    for system in systems:
        runs = []
        for number, run in enumerate(system.runs, 1):
            progress(f"{system.name}, run {number} of {len(system.runs)}: {run}")
            runs.append(_measure(run, pairs, options, counts))
        change = _change(results[0].runs, runs, pairs) if results else None
        results.append(SystemResult(system.name, runs, change))
    return results


def _check(systems: list[TrainedSystem]) -> None:
    """Find what is wrong with a run before hours of decoding."""
    names = [system.name for system in systems]
    if len(set(names)) < len(names):
        raise BenchError(f"every --system must have a name of its own, got {', '.join(names)}")
    for system in systems:
        recipe = read_run_recipe(system.runs[0])
        model = recipe.model
        if isinstance(recipe, TranslationRecipe) and recipe.data.is_multilingual:
            raise BenchError(
                f"{system.runs[0]}: its model translates in {len(recipe.data.directions)} "
                "directions; give runs of models of one"
            )
        for run in system.runs:
            find_checkpoint(run)
            training_seconds(run)
            if read_run_recipe(run).model != model:
                raise BenchError(
                    f"{run}: the runs of system {system.name!r} must have one model, this one's "
                    f"differs from that of {system.runs[0]}; give it a --system of its own"
                )


def _measure(
    run: Path, pairs: list[Pair], options: SearchOptions, counts: Mapping[str, int]
) -> RunResult:
    trained = load_trained(run)
    sources, references = ([pair[side] for pair in pairs] for side in (0, 1))
    start = time.perf_counter()
    translations = translate(trained.model, trained.tokenizer, sources, options, progress=True)
    seconds = time.perf_counter() - start
    # The search's own pieces are not kept; a text's best pieces are as many but for a few.
    tokens = sum(map(len, trained.tokenizer.encode_batch(translations)))
    return RunResult(
        run=str(run),
        checkpoint=trained.checkpoint.name,
        parameters=sum(value.numel() for value in trained.model.parameters()),
        training_hours=training_seconds(run) / 3600,
        tokens_per_second=tokens / seconds,
        quality=measure_quality(translations, references),
        lengths=quality_by_length(sources, references, translations),
        frequencies=f1_by_frequency(references, translations, counts),
        translations=translations,
    )


def _change(baseline: list[RunResult], runs: list[RunResult], pairs: list[Pair]) -> BleuChange:
    """Of the runs that both have, the first with the first."""
    texts = [(old.translations, new.translations) for old, new in zip(baseline, runs, strict=False)]
    return mean_bleu_change(texts, [reference for _, reference in pairs])
