"""Fits a pre-trained encoder to labelled text in a grid of trials, and keeps the best one."""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from training.corpora.labelled import (
    Column,
    check_kind,
    find_columns,
    find_kind,
    find_labels,
    read_sheet,
    scores,
)
from training.errors import ConfigError, CorpusError, StorageError, reason_of
from training.loop.trainer import train
from training.models.configs.bert import BertConfig
from training.recipe.config import (
    FineTuningRecipe,
    LabelledConfig,
    PretrainingRecipe,
    Recipe,
    apply_override,
    expand,
    recipe_from_dict,
    recipe_to_dict,
)
from training.recipe.encoder_sections import CLASSES, METRICS
from training.runs.checkpoint import find_checkpoint, list_checkpoints, write_atomically
from training.runs.folder import read_run_recipe
from training.runs.log import read_metrics
from training.tasks.finetuning import read_splits

logger = logging.getLogger(__name__)

RESULTS = "results.json"
TRIALS = "trials"
_TRAIN, _DEV = "train", ("dev", "val", "valid", "validation")
_WARMUP = 0.1
"""Share of warm-up updates (Devlin et al. 2019)."""


@dataclass(frozen=True)
class Grid:
    """The grid: every combination of learning rate, number of epochs, batch size and seed."""

    rates: tuple[float, ...] = (5e-5,)
    epochs: tuple[int, ...] = (3,)
    batches: tuple[int, ...] = (32,)
    seeds: tuple[int, ...] = (1,)

    def trials(self) -> list[Trial]:
        """All combinations; those that differ only in their seed are adjacent."""
        return [
            Trial(*each)
            for each in itertools.product(self.rates, self.epochs, self.batches, self.seeds)
        ]


@dataclass(frozen=True)
class Trial:
    """One combination of settings in a grid search."""

    rate: float
    epochs: int
    batch: int
    seed: int

    @property
    def name(self) -> str:
        """Name of the trial's folder."""
        return f"lr{self.rate:g}-epochs{self.epochs}-batch{self.batch}-seed{self.seed}"


@dataclass(frozen=True)
class Labelled:
    """The files of a task and their content."""

    train: Path
    validation: Path | None
    kind: str | None = None
    columns: tuple[Column, ...] | None = None


def find_files(task: Path) -> tuple[Path, Path | None]:
    """Training and validation table of a task: a file, or a folder with `train.*` and optionally
    `dev.*`, `val.*`, `valid.*` or `validation.*`.

    Raises ConfigError if there is no such file, or several.
    """
    if not task.is_dir():
        return task, None
    train = _file_of(task, (_TRAIN,))
    if train is None:
        raise ConfigError(f"{task}: holds no {_TRAIN}.*; give the table itself")
    return train, _file_of(task, _DEV)


def _file_of(folder: Path, stems: Sequence[str]) -> Path | None:
    found = sorted(path for stem in stems for path in folder.glob(f"{stem}.*"))
    if len(found) > 1:
        raise ConfigError(f"{folder}: holds {', '.join(p.name for p in found)}; name one of them")
    return found[0] if found else None


def finetune(
    base: Path,
    task: Labelled,
    run: Path,
    grid: Grid,
    overrides: Sequence[str] = (),
    metric: str | None = None,
) -> dict[str, Any]:
    """Fit an encoder to labelled text in each trial of a grid. The best trial by `metric` on the
    validation lines becomes `run`. Returns the results of all trials, which `results.json` stores.

    An interrupted run resumes with the same command. Raises ConfigError or CheckpointError if
    `base` is not an encoder or the folder belongs to another run, CorpusError for errors in the
    text.
    """
    checkpoint = find_checkpoint(base)
    pretrained = read_run_recipe(checkpoint)
    if not isinstance(pretrained, PretrainingRecipe | FineTuningRecipe):
        raise ConfigError(
            f"{base}: an encoder is needed here: architecture must be 'bert', got "
            f"{pretrained.model.architecture!r}"
        )
    data = resolve(task)
    by = metric or (METRICS[data.kind][-1] if data.kind == "regression" else METRICS[data.kind][0])
    recipes = {
        trial: _recipe(run.name, pretrained, checkpoint, data, trial, by, overrides)
        for trial in grid.trials()
    }
    results = run / RESULTS
    plan = [recipe_to_dict(recipe) for recipe in recipes.values()]
    if results.is_file():
        return _finished(results, plan)
    found = _try_all(recipes, run, by)
    best = max(found, key=lambda trial: found[trial][by])
    summary = _summary(found, best, by, data)
    _keep(run / TRIALS / best.name, run)
    write_atomically(results, (json.dumps({**summary, "recipes": plan}, indent=1) + "\n").encode())
    return summary


def resolve(task: Labelled) -> LabelledConfig:
    """The content of a table: given or detected columns and kind, labels and scores.

    Raises CorpusError or ConfigError if they cannot be determined.
    """
    check_kind(task.kind)
    sheet = read_sheet(task.train, task.columns)
    columns = task.columns or find_columns(sheet, task.kind)
    num_texts = len(columns) - (task.kind != "contrastive")
    if not 1 <= num_texts <= 2:
        raise ConfigError(
            f"--columns must name one or two texts{'' if task.kind == 'contrastive' else ' and'}"
            f"{'' if task.kind == 'contrastive' else ' the label'}, got {list(columns)}"
        )
    lines = sheet.lines(columns, num_texts)
    kind = task.kind or find_kind(lines)
    logger.info(
        "%s: %d lines, columns %s, kind %s; the first: %s",
        task.train, len(lines), ", ".join(map(str, columns)), kind,
        [*lines[0].texts, lines[0].label],
    )  # fmt: skip
    range_: tuple[float, float] | None = None
    if kind == "regression":
        values = scores(task.train, lines)
        range_ = (min(values), max(values))
        if range_[0] == range_[1]:
            raise CorpusError(
                f"{task.train}: all lines have the score {range_[0]:g}; give lines of two scores"
            )
    return LabelledConfig(
        train=str(task.train),
        validation=None if task.validation is None else str(task.validation),
        kind=kind,
        columns=columns,
        labels=find_labels(task.train, lines) if kind in CLASSES else (),
        score_range=range_,
    )


def _recipe(
    name: str,
    base: Recipe,
    checkpoint: Path,
    data: LabelledConfig,
    trial: Trial,
    by: str,
    overrides: Sequence[str],
) -> FineTuningRecipe:
    """The recipe of one trial."""
    fields = {field for field in BertConfig.__dataclass_fields__ if field != "architecture"}
    model = {key: value for key, value in asdict(base.model).items() if key in fields}
    if data.kind == "contrastive":
        model["architecture"] = "embedder"
    else:
        model |= {"architecture": "classifier", "num_classes": len(data.labels) or 1}
    positions = int(model["max_positions"])
    data = replace(
        data,
        batch_size=trial.batch,
        max_length=min(data.max_length, positions),
    )
    tree: dict[str, Any] = {
        "name": name,
        "model": model,
        "data": asdict(data),
        "tokenizer": {**asdict(base.tokenizer), "file": None},
        "optim": {
            "peak_lr": trial.rate,
            "schedule": "linear",
            "betas": [0.9, 0.999],
            "eps": 1e-6,
            "weight_decay": 0.01,
            "label_smoothing": 0.0,
        },
        "loop": {
            "keep_checkpoints": 1,
            "best_by": by,
            "seed": trial.seed,
            "initial_weights": str(checkpoint),
            "bf16": base.loop.bf16,
            "device": base.loop.device,
        },
    }
    for override in overrides:
        apply_override(tree, override)
    recipe = recipe_from_dict(tree)
    assert isinstance(recipe, FineTuningRecipe)
    return _with_steps(recipe, trial.epochs)


def _with_steps(recipe: FineTuningRecipe, epochs: int) -> FineTuningRecipe:
    """The recipe with the number of updates that `epochs` epochs take, and a validation after each
    epoch."""
    train, _ = read_splits(recipe.data)
    batches = math.ceil(len(train) / recipe.data.batch_size)
    if recipe.data.kind == "contrastive" and len(train) % recipe.data.batch_size == 1:
        batches -= 1  # a single line has nothing to be compared with
    each = max(1, math.ceil(batches / recipe.optim.accumulation))
    steps = epochs * each
    optim = replace(recipe.optim, warmup_steps=max(1, round(_WARMUP * steps)))
    loop = replace(
        recipe.loop,
        max_steps=steps,
        log_every=max(1, each // 10),
        validate_every=each,
        checkpoint_every=max(each, 100),
    )
    return replace(recipe, optim=optim, loop=loop)


def _try_all(recipes: dict[Trial, FineTuningRecipe], run: Path, by: str) -> dict[Trial, Any]:
    """The best validation of each trial; only the weights of the best trial are kept."""
    found: dict[Trial, Any] = {}
    for number, (trial, recipe) in enumerate(recipes.items(), 1):
        folder = run / TRIALS / trial.name
        logger.info("trial %d of %d: %s", number, len(recipes), trial.name)
        if not (folder / RESULTS).is_file():
            train(recipe, folder)
            records = [r for r in read_metrics(folder) if r["kind"] == "validation"]
            values = max(records, key=lambda record: record[by])
            figures = {k: v for k, v in values.items() if k not in ("kind", "time")}
            write_atomically(folder / RESULTS, json.dumps(figures).encode() + b"\n")
        found[trial] = json.loads((folder / RESULTS).read_text())
        for key, note in found[trial].items():
            if key.endswith("_note"):
                logger.warning("%s %s", key.removesuffix("_note"), note)
        best = max(found, key=lambda each: found[each][by])
        for other in found.keys() - {best}:
            _drop_weights(run / TRIALS / other.name)
    return found


def _drop_weights(folder: Path) -> None:
    for path in (*list_checkpoints(folder), folder / "best"):
        shutil.rmtree(path, ignore_errors=True)


def _keep(trial: Path, run: Path) -> None:
    """Move a trial's files to the run's own folder."""
    try:
        for path in trial.iterdir():
            if path.name != RESULTS:
                os.replace(path, run / path.name)
    except OSError as error:
        raise StorageError(f"{run}: cannot be written: {reason_of(error)}") from error


def _finished(results: Path, plan: list[dict[str, Any]]) -> dict[str, Any]:
    """The result of an earlier call; raises ConfigError if it had other trials."""
    found: dict[str, Any] = json.loads(results.read_text())
    if found.pop("recipes") != json.loads(json.dumps(plan)):
        raise ConfigError(
            f"{results.parent} holds the result of another grid or text; give another --run folder"
        )
    return found


def _summary(found: dict[Trial, Any], best: Trial, by: str, data: LabelledConfig) -> dict[str, Any]:
    """The best trial, all trials, and mean and spread over the seeds of each combination."""
    spread: list[dict[str, Any]] = []
    for trial in found:
        setting = {"lr": trial.rate, "epochs": trial.epochs, "batch": trial.batch}
        values = [
            figures[by]
            for other, figures in found.items()
            if replace(other, seed=trial.seed) == trial
        ]
        row = {
            **setting,
            "seeds": len(values),
            "mean": statistics.mean(values),
            "deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
        }
        if row not in spread:
            spread.append(row)
    return {
        "kind": data.kind,
        "columns": list(data.columns),
        "lines": expand(data.train).name,
        "metric": by,
        "best": {"trial": best.name, **found[best]},
        "trials": {trial.name: figures for trial, figures in found.items()},
        "over_seeds": spread,
    }
