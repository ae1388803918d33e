"""The training loop: updates, validation, checkpoints, and resuming to the bit."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import yaml
from tqdm import tqdm

from training.batching import IdPair, collate
from training.checkpoint import (
    STATE,
    list_checkpoints,
    load_checkpoint,
    save_checkpoint,
    write_atomically,
)
from training.config import Recipe, recipe_from_dict, recipe_to_dict
from training.data import RunData, prepare
from training.errors import CheckpointError, ConfigError
from training.loss import label_smoothed_loss
from training.metrics import MetricsLog
from training.models import build_model
from training.optim import build_optimizer, learning_rate
from training.validation import validate

logger = logging.getLogger(__name__)

CONFIG_FILE = "config.yaml"


def train(recipe: Recipe, run: Path, stop_after: int | None = None) -> Path:
    """Train until max_steps or early stopping; returns the last checkpoint.

    An existing run folder is resumed from its last checkpoint: losses are then equal to the bit to
    those of an unbroken run on the same machine, thread count and torch. `stop_after` ends the
    session early at that step, as a kill would, after a checkpoint.

    Raises CheckpointError where the folder holds a run of another recipe, DivergedError-like
    FloatingPointError where the loss is not finite.
    """
    _claim(recipe, run)
    torch.manual_seed(recipe.loop.seed)
    return Trainer(recipe, run, prepare(recipe, run)).run(stop_after)


class Trainer:
    """State of one run."""

    def __init__(self, recipe: Recipe, folder: Path, data: RunData) -> None:
        self.recipe, self.folder, self.data = recipe, folder, data
        self.device = torch.device(recipe.loop.device)
        self.model = build_model(recipe.model).to(self.device)
        self.optimizer = build_optimizer(self.model, recipe.optim)
        self.step, self.epoch, self.position = 0, 0, 0
        self.best_loss, self.stale = float("inf"), 0
        checkpoints = list_checkpoints(folder)
        if checkpoints:
            self._restore(checkpoints[-1])

    def run(self, stop_after: int | None) -> Path:
        """Train to the end of the schedule; returns the last checkpoint."""
        loop = self.recipe.loop
        last = min(loop.max_steps, stop_after or loop.max_steps)
        log = MetricsLog(self.folder, self.step)
        bar = tqdm(total=loop.max_steps, initial=self.step, disable=not sys.stderr.isatty())
        updates = self._updates()
        window = _Window()
        while self.step < last and not self._stopped_early():
            values = self._update(next(updates))
            window.add(values)
            bar.update()
            if self.step % loop.log_every == 0 or self.step == last:
                log.log("train", self.step, window.take(self.epoch))
            if self.step % loop.validate_every == 0 or self.step == loop.max_steps:
                self._validate(log)
            if self.step % loop.checkpoint_every == 0:
                self._save()
        bar.close()
        log.close()
        return self._save()

    def _update(self, batches: list[list[IdPair]]) -> dict[str, float]:
        """One optimiser update over the given batches; the gradient is a mean over labels."""
        optim = self.recipe.optim
        self.model.train()
        rate = learning_rate(self.step + 1, optim, self.recipe.loop.max_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        collated = [collate(pairs).to(self.device) for pairs in batches]
        num_labels = sum(batch.num_labels for batch in collated)
        total = 0.0
        for batch in collated:
            with torch.autocast(
                self.device.type, torch.bfloat16, enabled=self.recipe.loop.bf16
            ):
                logits = self.model(batch.source_BS, batch.target_BT)
                loss = label_smoothed_loss(logits, batch.labels_BT, optim.label_smoothing)
            (loss / num_labels).backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        norm = torch.nn.utils.clip_grad_norm_(
            self.model.parameters(), optim.clip_norm or float("inf")
        )
        if not bool(torch.isfinite(norm)):
            raise FloatingPointError(
                f"gradient norm is {float(norm)} at step {self.step + 1}; lower optim.peak_lr "
                "or lengthen optim.warmup_steps, then resume"
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return {"loss": total, "labels": num_labels, "gradient_norm": float(norm), "lr": rate}

    def _updates(self) -> Iterator[list[list[IdPair]]]:
        """Groups of batches, from the saved position on, without end."""
        accumulation = self.recipe.optim.accumulation
        while True:
            batches = self.data.train.epoch(self.epoch)
            if not batches:
                raise ConfigError("no training pair is left after cleaning; see corpus_report.json")
            while self.position < len(batches):
                group = batches[self.position : self.position + accumulation]
                self.position += len(group)
                yield group
            self.epoch, self.position = self.epoch + 1, 0

    def _validate(self, log: MetricsLog) -> None:
        values = validate(self.model, self.data, self.recipe)
        log.log("validation", self.step, values)
        logger.info("step %d: %s", self.step, values)
        if values["loss"] < self.best_loss:
            self.best_loss, self.stale = values["loss"], 0
            self._save_to(self.folder / "best")
        else:
            self.stale += 1

    def _stopped_early(self) -> bool:
        patience = self.recipe.loop.patience
        return 0 < patience <= self.stale

    def _save(self) -> Path:
        folder = self.folder / "checkpoints" / f"step_{self.step:08d}"
        self._save_to(folder)
        for old in list_checkpoints(self.folder)[: -self.recipe.loop.keep_checkpoints]:
            shutil.rmtree(old)
        return folder

    def _save_to(self, folder: Path) -> None:
        state: dict[str, Any] = {
            "step": self.step,
            "epoch": self.epoch,
            "position": self.position,
            "best_loss": self.best_loss if self.best_loss != float("inf") else None,
            "stale": self.stale,
            "recipe": recipe_to_dict(self.recipe),
        }
        save_checkpoint(folder, self.model, self.optimizer, state)

    def _restore(self, folder: Path) -> None:
        state = load_checkpoint(folder, self.model, self.optimizer)
        self.step, self.epoch, self.position = state["step"], state["epoch"], state["position"]
        self.best_loss = float("inf") if state["best_loss"] is None else state["best_loss"]
        self.stale = state["stale"]
        logger.info("resumed %s at step %d", self.folder, self.step)


class _Window:
    """Sums between two records of the log."""

    def __init__(self) -> None:
        self._loss, self._labels, self._start = 0.0, 0, time.perf_counter()
        self._last: dict[str, float] = {}

    def add(self, values: dict[str, float]) -> None:
        self._loss += values["loss"]
        self._labels += int(values["labels"])
        self._last = values

    def take(self, epoch: int) -> dict[str, float]:
        seconds = time.perf_counter() - self._start
        record = {
            "loss": self._loss / self._labels,
            "lr": self._last["lr"],
            "gradient_norm": self._last["gradient_norm"],
            "epoch": epoch,
            "labels_per_second": round(self._labels / seconds, 1),
        }
        self._loss, self._labels, self._start = 0.0, 0, time.perf_counter()
        return record


def read_run_recipe(run: Path) -> Recipe:
    """The recipe a run folder was started with, or a checkpoint folder was saved with."""
    if (run / CONFIG_FILE).is_file():
        return recipe_from_dict(yaml.safe_load((run / CONFIG_FILE).read_text()))
    if (run / STATE).is_file():
        return recipe_from_dict(json.loads((run / STATE).read_text())["recipe"])
    raise CheckpointError(f"{run}: neither a run ({CONFIG_FILE}) nor a checkpoint ({STATE})")


def _claim(recipe: Recipe, run: Path) -> None:
    """Write the resolved recipe, or check that the folder's own differs in the loop only."""
    if (run / CONFIG_FILE).exists():
        found = read_run_recipe(run)
        for part in ("model", "data", "tokenizer", "optim"):
            if getattr(found, part) != getattr(recipe, part):
                raise CheckpointError(
                    f"{run} was started with another '{part}'; resume with the same recipe "
                    "or give another --run folder"
                )
    text = yaml.safe_dump(_plain(recipe_to_dict(recipe)), sort_keys=False)
    write_atomically(run / CONFIG_FILE, text.encode())


def _plain(value: Any) -> Any:
    """Tuples to lists, which YAML can write."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
