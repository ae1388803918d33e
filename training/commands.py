"""The verbs of `python -m training`: each prints its result to stdout and returns 0."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from serving.arrays import Floats
from serving.threads import default_threads
from training.corpora.labelled import parse_columns
from training.corpora.pairs import read_pairs
from training.derive.data_report import prepare_run, report_data
from training.derive.pruning import prune as prune_run
from training.derive.scaling import Probe, read_probe
from training.derive.scaling import scale as choose_size
from training.errors import ConfigError, EndedError, RankLostError
from training.loop.launch import check_devices, launch
from training.loop.ranks import TrainingRanks, is_one_of_many
from training.loop.trainer import train as train_run
from training.recipe.config import (
    VOCABULARIES,
    FineTuningRecipe,
    Recipe,
    load_recipe,
    recipe_to_dict,
)
from training.results.comparison import compare_systems, render_comparison
from training.results.evaluation import EvaluationText
from training.results.evaluation import evaluate as evaluate_checkpoint
from training.results.page import check_free_page
from training.results.perplexity import evaluate_text
from training.runs.checkpoint import (
    average_checkpoints,
    find_checkpoint,
    list_checkpoints,
    save_weights,
    write_atomically,
)
from training.runs.folder import read_run_recipe
from training.runs.replacing import check_free
from training.runs.selection import best_checkpoints
from training.tasks.finetuning import evaluate_labels

logger = logging.getLogger(__name__)
Number = TypeVar("Number", int, float)


def train(options: argparse.Namespace) -> int:
    """Train or resume, in one process or several; prints the last checkpoint."""
    recipe, run = _recipe_and_run(options)
    if options.processes > 1:
        return _launch(options, recipe, run)
    _set_threads(options)
    ranks = TrainingRanks.join(recipe.loop.device)
    if not ranks.is_first:
        logging.getLogger().setLevel(logging.WARNING)
    try:
        folder = train_run(recipe, run, options.stop_after, ranks)
    except (RankLostError, EndedError, KeyboardInterrupt):  # which rank 0 reports
        if ranks.is_first:
            raise
        return 1
    finally:
        ranks.leave()
    if ranks.is_first:
        print(folder)
    return 0


def finetune(options: argparse.Namespace) -> int:
    """Fit an encoder to labelled text in each trial of a grid; prints one JSON object."""
    from training.derive import grid

    _set_threads(options)
    found, dev = grid.find_files(options.task)
    name = options.task.name.partition(".")[0]
    run = options.run or Path("runs") / f"{options.base.name}-{name}"
    results = grid.finetune(
        options.base,
        grid.Labelled(
            found,
            options.dev or dev,
            options.kind,
            None if options.columns is None else parse_columns(options.columns),
        ),
        run,
        grid.Grid(
            rates=tuple(_numbers("--lr", options.lr, float)),
            epochs=tuple(_numbers("--epochs", options.epochs, int)),
            batches=tuple(_numbers("--batch", options.batch, int)),
            seeds=tuple(_numbers("--seeds", options.seeds, int)),
        ),
        options.overrides,
        options.metric,
    )
    print(json.dumps({"run": str(run), **results}))
    return 0


def _numbers(name: str, text: str, kind: Callable[[str], Number]) -> list[Number]:
    try:
        found = [kind(word) for word in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"{name} must be numbers separated by commas, got {text!r}") from error
    if name != "--seeds" and not all(number > 0 for number in found):
        raise ConfigError(f"{name} must be numbers above 0, got {text!r}")
    return found


def _launch(options: argparse.Namespace, recipe: Recipe, run: Path) -> int:
    if is_one_of_many():
        raise ConfigError("torchrun has started several processes already; leave --processes out")
    check_devices(recipe.loop.device, options.processes)
    threads = options.threads or max(1, default_threads() // options.processes)
    words = ["train", options.recipe, *options.overrides, "--run", str(run)]
    words += ["--threads", str(threads)]
    if options.stop_after:
        words += ["--stop-after", str(options.stop_after)]
    return launch(words, options.processes)


def tokenizer(options: argparse.Namespace) -> int:
    """Do the work of `train` up to its first step, then print the path of the vocabulary."""
    recipe, run = _recipe_and_run(options)
    prepare_run(recipe, run)
    print(run / VOCABULARIES[recipe.tokenizer.kind])
    return 0


def data(options: argparse.Namespace) -> int:
    """Prepare the data as `tokenizer` does, then print a report of the training data, as tables or
    as one JSON object."""
    recipe, run = _recipe_and_run(options)
    print(report_data(recipe, run, as_json=options.json))
    return 0


def evaluate(options: argparse.Namespace) -> int:
    """Score a checkpoint on a test set; prints one JSON object."""
    _set_threads(options)
    if options.protocol is not None:
        return _evaluate_text(options)
    if isinstance(read_run_recipe(find_checkpoint(options.checkpoint)), FineTuningRecipe):
        return _evaluate_labels(options)
    if options.reference is None:
        raise ConfigError(
            "a translation model is evaluated on SOURCE and REFERENCE, got SOURCE only; "
            "a language model on one text, with --protocol bptt, sliding or rolling"
        )
    if options.window is not None:
        raise ConfigError("--window belongs to --protocol, which is not given")
    if options.tokenized and options.bleu is None:
        raise ConfigError("--tokenized belongs to --bleu, which is not given")
    scores = evaluate_checkpoint(
        options.checkpoint,
        EvaluationText(
            options.source,
            options.reference,
            (options.source_language, options.target_language),
            tokenized=options.tokenized,
            domains=options.domains,
        ),
        beam_size=options.beam_size,
        output=options.output,
        force=options.force,
        device=options.device,
        analyses=() if options.analysis is None else options.analysis.split(","),
        bleu=() if options.bleu is None else options.bleu.split(","),
    )
    print(json.dumps(scores))
    return 0


def _evaluate_labels(options: argparse.Namespace) -> int:
    given = _given_of_translation(options)
    if given:
        raise ConfigError(f"{given[0]} belongs to translation models, this is an encoder")
    print(json.dumps(evaluate_labels(options.checkpoint, options.source, options.device)))
    return 0


def _given_of_translation(options: argparse.Namespace) -> list[str]:
    """The given options that only the evaluation of a translation model has a use for, by their
    names on the command line."""
    of_translation = {
        "reference": "reference",
        "output": "output",
        "analysis": "analysis",
        "bleu": "--bleu",
        "domains": "domains",
        "source_language": "--from",
        "target_language": "--to",
    }
    return [flag for name, flag in of_translation.items() if getattr(options, name) is not None]


def _evaluate_text(options: argparse.Namespace) -> int:
    given = _given_of_translation(options)
    if given:
        raise ConfigError(f"--protocol scores one text; {given[0]} belongs to translation models")
    scores = evaluate_text(
        options.checkpoint,
        options.source,
        protocol=options.protocol,
        window=options.window,
        device=options.device,
    )
    print(json.dumps(scores))
    return 0


def average(options: argparse.Namespace) -> int:
    """Average a run's last or best checkpoints into RUN/averaged; prints that folder."""
    out = options.run / "averaged"
    check_free(out, force=options.force)
    recipe = read_run_recipe(options.run)
    if options.best is not None:
        folders = best_checkpoints(options.run, options.best, recipe.loop.best_by)
    else:
        folders = list_checkpoints(options.run)[-options.last :]
    weights = average_checkpoints(folders)
    names = [folder.name for folder in folders]
    logger.info("averaged %s", ", ".join(names))
    save_weights(out, weights, {"averaged": names, "recipe": recipe_to_dict(recipe)})
    print(out)
    return 0


def prune(options: argparse.Namespace) -> int:
    """Write a run with fewer layers; prints one JSON object."""
    _set_threads(options)
    sides = ("encoder", "decoder")
    given = {side: getattr(options, f"keep_{side}") for side in sides}
    depths = {side: getattr(options, f"{side}_layers") for side in sides}
    pruned = prune_run(
        options.run,
        options.out,
        keep={side: layers for side, layers in given.items() if layers is not None},
        depths={side: depth for side, depth in depths.items() if depth is not None},
        method=options.method,
        sentences=options.sentences,
        force=options.force,
    )
    print(json.dumps(asdict(pruned), default=str))
    return 0


def report(options: argparse.Namespace) -> int:
    """Draw the curves of runs; prints the page's path."""
    from training.results.report import write_report  # matplotlib is slow to import

    page = options.output or options.runs[0] / "report.html"
    if options.output is not None:
        check_free_page(page, [page.with_suffix(".png")], force=options.force)
    write_report(options.runs, page)
    print(page)
    return 0


def compare(options: argparse.Namespace) -> int:
    """Score the outputs of several systems on one test set; prints one JSON object."""
    if options.page is not None:
        check_free_page(options.page, force=options.force)
    pairs = read_pairs(options.source, options.reference)
    sources, references = ([pair[side] for pair in pairs] for side in (0, 1))
    names = [path.name for path in options.outputs]
    if len(set(names)) < len(names):
        names = [str(path) for path in options.outputs]
    if len(set(names)) < len(names) or len(names) < 2:
        raise ConfigError(f"compare needs two or more different OUTPUT files, got {names}")
    outputs = {
        name: [target for _, target in read_pairs(options.source, path)]
        for name, path in zip(names, options.outputs, strict=True)
    }
    compared = compare_systems(sources, references, outputs)
    if options.page is not None:
        text = render_comparison(compared, sources, references, outputs, options.worst)
        write_atomically(options.page, text.encode())
    print(json.dumps(compared))
    return 0


def scale(options: argparse.Namespace) -> int:
    """Choose depth and width for a larger budget; prints one JSON object."""
    probe = _probe(options)
    size = choose_size(probe, options.beta)
    print(json.dumps({"probe": asdict(probe), "beta": options.beta, **asdict(size)}))
    return 0


def distill(options: argparse.Namespace) -> int:
    """Write a teacher's translations of parallel text; prints one JSON object."""
    from training.derive.distillation import Choice, Workers
    from training.derive.distillation import distill as make

    made = make(
        options.teacher,
        options.source,
        options.reference,
        options.out,
        choice=Choice(options.n_best, options.metric),
        direction=(options.source_language, options.target_language),
        workers=Workers(options.workers, options.address),
        force=options.force,
    )
    print(json.dumps(asdict(made), default=str))
    return 0


def backtranslate(options: argparse.Namespace) -> int:
    """Write a teacher's translations of a text beside the text; prints one JSON object."""
    from training.derive.distillation import Workers
    from training.derive.distillation import backtranslate as make

    workers = Workers(options.workers, options.address)
    made = make(
        options.teacher,
        options.text,
        options.out,
        direction=(options.source_language, options.target_language),
        workers=workers,
        force=options.force,
    )
    print(json.dumps(asdict(made), default=str))
    return 0


def pairs(options: argparse.Namespace) -> int:
    """Write the texts of a recipe that mean the same as a table; prints one JSON object."""
    from training.derive.sentence_pairs import make_pairs

    recipe = load_recipe(options.recipe, options.overrides)
    texts_of = options.texts_of and (options.texts_of[0], Path(options.texts_of[1]))
    made = make_pairs(
        recipe, options.out, options.leave_out, texts_of=texts_of, force=options.force
    )
    print(json.dumps(asdict(made), default=str))
    return 0


def vectors(options: argparse.Namespace) -> int:
    """Write a teacher's vectors of texts; prints one JSON object."""
    from serving.encoding.reader import Embedder
    from training.derive.vectors import make_vectors

    def reader(name: str) -> Callable[[Sequence[str]], Floats]:
        return partial(Embedder(name, options.threads).embed, truncate=True)

    made = make_vectors(
        reader(options.teacher),
        options.texts,
        options.out,
        width=options.width,
        like=reader(options.like) if options.like else None,
        force=options.force,
    )
    print(json.dumps(asdict(made), default=str))
    return 0


def _probe(options: argparse.Namespace) -> Probe:
    names = ("depth", "width", "base_loss", "deeper_loss", "wider_loss")
    values = {name: getattr(options, name) for name in names}
    given = [name for name, value in values.items() if value is not None]
    if len(options.runs) == 3 and not given:
        return read_probe(*options.runs)
    if not options.runs and len(given) == len(names):
        return Probe(**values)
    flags = " ".join(f"--{name.replace('_', '-')}" for name in names)
    raise ConfigError(
        f"scale needs three runs (BASE DEEPER WIDER) or all of {flags}, got {len(options.runs)} "
        f"runs and {len(given)} of these options"
    )


def _recipe_and_run(options: argparse.Namespace) -> tuple[Recipe, Path]:
    recipe = load_recipe(options.recipe, options.overrides)
    return recipe, options.run or Path("runs") / recipe.name


def _set_threads(options: argparse.Namespace) -> None:
    if options.threads:
        torch.set_num_threads(options.threads)
