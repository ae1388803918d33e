"""Quality of several trained systems, each with several seeds, on one test set."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from export.comparison.significance import BleuChange, mean_bleu_change
from serving.errors import InvalidOptionError
from serving.search.options import SearchOptions
from training.corpora.pairs import Pair, read_lines, read_pairs
from training.decoding.translate import translate
from training.metrics.analysis import (
    FrequencyBucket,
    LengthBucket,
    f1_by_frequency,
    quality_by_length,
)
from training.metrics.bleu import CorpusScores, measure_quality
from training.recipe.config import TranslationRecipe
from training.results.evaluation import training_counts
from training.runs.checkpoint import find_checkpoint
from training.runs.folder import load_trained, read_run_recipe
from training.runs.log import training_seconds


@dataclass(frozen=True)
class TrainedSystem:
    """A recipe and its runs, which differ in their seed. A file of translations made elsewhere may
    take the place of a run."""

    name: str
    runs: list[Path]


@dataclass(frozen=True)
class RunResult:
    """The results of one run on the test set. Values that a file of translations does not have are
    None."""

    run: str
    checkpoint: str | None
    parameters: int | None
    training_hours: float | None
    tokens_per_second: float | None
    """Pieces of the best outputs, without eos, divided by the time for the whole test set."""
    quality: CorpusScores
    lengths: list[LengthBucket]
    frequencies: list[FrequencyBucket]
    """The buckets by frequency; empty if the baseline's training text is not known."""
    translations: list[str]


@dataclass(frozen=True)
class SystemResult:
    """The runs of one system."""

    name: str
    runs: list[RunResult]
    change: BleuChange | None
    """Difference from the first system, run by run; None for the first."""


def parse_system(text: str) -> TrainedSystem:
    """Parse NAME=RUN,RUN,..., where each run may be a file of translations.

    Raises BenchError for another form.
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

    Words are counted in the training text of the baseline's first run, if it is a run. Raises
    BenchError or a TrainingError if a run or text is unusable, if possible before the first
    translation.
    """
    _check(systems, source)
    try:
        options = SearchOptions(beam_size=beam_size)
    except InvalidOptionError as error:
        raise BenchError(str(error)) from error
    pairs = read_pairs(source, reference)
    first = systems[0].runs[0]
    counts = None if first.is_file() else training_counts(read_run_recipe(first))
    results: list[SystemResult] = []
    for system in systems:
        runs = []
        for number, run in enumerate(system.runs, 1):
            progress(f"{system.name}, run {number} of {len(system.runs)}: {run}")
            runs.append(_measure(run, pairs, options, counts))
        change = _change(results[0].runs, runs, pairs) if results else None
        results.append(SystemResult(system.name, runs, change))
    return results


def _check(systems: list[TrainedSystem], source: Path) -> None:
    """Check a run or a file before hours of decoding."""
    names = [system.name for system in systems]
    if len(set(names)) < len(names):
        raise BenchError(f"every --system must have a name of its own, got {', '.join(names)}")
    for system in systems:
        runs = []
        for run in system.runs:
            if run.is_file():
                read_pairs(source, run)
            else:
                runs.append(run)
        if not runs:
            continue
        recipe = read_run_recipe(runs[0])
        model = recipe.model
        if isinstance(recipe, TranslationRecipe) and recipe.data.is_multilingual:
            raise BenchError(
                f"{runs[0]}: its model translates in {len(recipe.data.directions)} "
                "directions; give runs of models of one"
            )
        for run in runs:
            find_checkpoint(run)
            training_seconds(run)
            if read_run_recipe(run).model != model:
                raise BenchError(
                    f"{run}: the runs of system {system.name!r} must have one model, this one's "
                    f"differs from that of {runs[0]}; give it a --system of its own"
                )


@dataclass(frozen=True)
class _Output:
    """A run's translations of the test set, and the properties of the run."""

    translations: list[str]
    checkpoint: str | None = None
    parameters: int | None = None
    training_hours: float | None = None
    tokens_per_second: float | None = None


def _measure(
    run: Path, pairs: list[Pair], options: SearchOptions, counts: Mapping[str, int] | None
) -> RunResult:
    sources, references = ([pair[side] for pair in pairs] for side in (0, 1))
    output = _Output(read_lines(run)) if run.is_file() else _translate(run, sources, options)
    texts = output.translations
    return RunResult(
        run=str(run),
        checkpoint=output.checkpoint,
        parameters=output.parameters,
        training_hours=output.training_hours,
        tokens_per_second=output.tokens_per_second,
        quality=measure_quality(texts, references),
        lengths=quality_by_length(sources, references, texts),
        frequencies=[] if counts is None else f1_by_frequency(references, texts, counts),
        translations=texts,
    )


def _translate(run: Path, sources: list[str], options: SearchOptions) -> _Output:
    trained = load_trained(run)
    start = time.perf_counter()
    translations = translate(trained.model, trained.tokenizer, sources, options, progress=True)
    seconds = time.perf_counter() - start
    # The pieces of the search are not kept; the tokenized text has nearly the same number.
    tokens = sum(map(len, trained.tokenizer.encode_batch(translations)))
    return _Output(
        translations=translations,
        checkpoint=trained.checkpoint.name,
        parameters=sum(value.numel() for value in trained.model.parameters()),
        training_hours=training_seconds(run) / 3600,
        tokens_per_second=tokens / seconds,
    )


def _change(baseline: list[RunResult], runs: list[RunResult], pairs: list[Pair]) -> BleuChange:
    """The mean difference between runs that both systems have, pairwise in order."""
    texts = [(old.translations, new.translations) for old, new in zip(baseline, runs, strict=False)]
    return mean_bleu_change(texts, [reference for _, reference in pairs])
