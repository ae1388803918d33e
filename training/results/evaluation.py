"""Quality of a trained model on a test set."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from serving.errors import InvalidOptionError
from serving.lines import one_line
from serving.search.options import SearchOptions
from training.corpora.pairs import read_pairs
from training.decoding.translate import translate
from training.errors import ConfigError, TrainingError
from training.metrics.analysis import (
    ANALYSES,
    count_words,
    f1_by_frequency,
    matches_by_position,
    quality_by_domain,
    quality_by_length,
)
from training.metrics.bleu import PAPER_BLEU, measure_edit_rate, measure_paper_bleu, measure_quality
from training.metrics.fidelity import measure_fidelity
from training.recipe.config import Recipe, TranslationRecipe
from training.runs.checkpoint import write_atomically
from training.runs.folder import Trained, load_trained
from training.runs.replacing import check_free
from training.tasks.translation import read_corpus
from training.tasks.validation import direction_prefixes


@dataclass(frozen=True)
class EvaluationText:
    """A text with its human translation, line by line, and the facts known about it."""

    source: Path
    reference: Path
    languages: tuple[str | None, str | None] = (None, None)
    """Languages of `source` and `reference`; a model of several directions needs them."""
    tokenized: bool = False
    """Whether words and punctuation are separated by spaces."""
    domains: Path | None = None
    """A file that names the domain of each line."""


def evaluate(
    path: Path,
    text: EvaluationText,
    *,
    beam_size: int = 5,
    output: Path | None = None,
    force: bool = False,
    device: str = "cpu",
    analyses: Collection[str] = (),
    bleu: Collection[str] = (),
) -> dict[str, Any]:
    """Translate a text's source with a run's or checkpoint's model and score it against the
    reference.

    Returns the scores with their signatures, the sentence count, the seconds of decoding and the
    scores of `PAPER_BLEU` that `bleu` names. Under "analysis" are those of `ANALYSES` that
    `analyses` names and, if domains are named, the scores of each. `output` receives the
    translations in input order. Raises a TrainingError if a file cannot be used, and, before any
    work, for an unknown analysis or an `output` that exists without `force` or is read.
    """
    options = _checked(beam_size, analyses, bleu)
    if output is not None:
        read = (text.source, text.reference, text.domains)
        check_free(output, [each for each in read if each is not None], force=force)
    pairs = read_pairs(text.source, text.reference)
    named = None
    if text.domains is not None:
        named = [name for _, name in read_pairs(text.source, text.domains)]
    trained = load_trained(path, device)
    # Read before the long work: its files may be gone.
    prefix = prefix_between(trained, *text.languages)
    counts = training_counts(trained.recipe) if "frequency" in analyses else Counter[str]()
    sources, references = ([pair[side] for pair in pairs] for side in (0, 1))
    start = time.perf_counter()
    translations = translate(
        trained.model,
        trained.tokenizer,
        sources,
        options,
        prefixes=[prefix] * len(sources),
        progress=True,
    )
    seconds = time.perf_counter() - start
    if output is not None:
        lines = "".join(f"{one_line(found)}\n" for found in translations)
        write_atomically(output, lines.encode())
    scores = {
        "checkpoint": str(trained.checkpoint),
        "sentences": len(pairs),
        "beam_size": beam_size,
        **_scores(sources, references, translations),
        **measure_paper_bleu(bleu, translations, references, tokenized=text.tokenized),
        "seconds": round(seconds, 3),
    }
    analysis = _analysis(analyses, sources, references, translations, counts, named)
    if analysis:
        scores["analysis"] = {
            name: [asdict(bucket) for bucket in buckets] for name, buckets in analysis.items()
        }
    return scores


def _scores(sources: list[str], references: list[str], translations: list[str]) -> dict[str, Any]:
    """All figures that are reported for a test set."""
    return {
        **asdict(measure_quality(translations, references)),
        **asdict(measure_edit_rate(translations, references)),
        **asdict(measure_fidelity(sources, translations)),
    }


def _analysis(
    analyses: Collection[str],
    sources: list[str],
    references: list[str],
    translations: list[str],
    counts: Counter[str],
    named: list[str] | None,
) -> dict[str, Sequence[Any]]:
    """The analyses named in `analyses`, and one by domain if `named` gives the domains. `counts`
    are the counts of words in the training text."""
    analysis: dict[str, Sequence[Any]] = {}
    if "length" in analyses:
        analysis["length"] = quality_by_length(sources, references, translations)
    if "position" in analyses:
        analysis["position"] = matches_by_position(references, translations)
    if "frequency" in analyses:
        analysis["frequency"] = f1_by_frequency(references, translations, counts)
    if named is not None:
        analysis["domain"] = quality_by_domain(named, references, translations)
    return analysis


def prefix_between(trained: Trained, source: str | None, target: str | None) -> list[int]:
    """The ids before each source of a text between these languages; a language may be None if it is
    clear.

    Raises ConfigError if the model has not been trained on that direction, or if several directions
    fit.
    """
    directions = trained.recipe.data.directions
    fitting = [
        number
        for number, (first, second) in enumerate(directions)
        if source in (None, first) and target in (None, second)
    ]
    if len(fitting) != 1:
        given = f"{source or 'any language'} to {target or 'any language'}"
        there = ", ".join(" to ".join(direction) for direction in directions)
        raise ConfigError(
            f"{trained.checkpoint}: its model translates {there}; name one of these with --from "
            f"and --to, got {given}"
        )
    return direction_prefixes(trained.recipe.data, trained.tokenizer)[fitting[0]]


def _checked(beam_size: int, analyses: Collection[str], bleu: Collection[str]) -> SearchOptions:
    """The options of the search; raises ConfigError for values that are not allowed."""
    for option, names, known in (
        ("--analysis", analyses, ANALYSES),
        ("--bleu", bleu, PAPER_BLEU),
    ):
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ConfigError(
                f"{option} must be names of {list(known)} separated by commas, got {unknown[0]!r}"
            )
    try:
        return SearchOptions(beam_size=beam_size)
    except InvalidOptionError as error:
        raise ConfigError(str(error)) from error


def training_counts(recipe: Recipe) -> Counter[str]:
    """Count how often each word occurs in the target text that a recipe trains on.

    Raises ConfigError if that text cannot be read, or if the recipe is not of a translation model.
    """
    if not isinstance(recipe, TranslationRecipe):
        raise ConfigError(
            f"{recipe.name}: a translation recipe is needed, this is a language model's"
        )
    try:
        pairs = read_corpus(recipe).train
    except TrainingError as error:
        raise ConfigError(
            f"the analysis by frequency counts words in the run's training text: {error}"
        ) from error
    return count_words(target for _, target in pairs)
