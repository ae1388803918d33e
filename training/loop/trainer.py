"""The training loop: updates, validation, checkpoints, and resuming to the bit."""

from __future__ import annotations

import logging
import shutil
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from training.errors import (
    BrokenCheckpointError,
    CheckpointError,
    DivergedError,
    EndedError,
    RankLostError,
)
from training.loop.averaging import WeightAverage
from training.loop.budget import settle_budget
from training.loop.gradients import GradientSum
from training.loop.optim import build_optimizer, head_dropout_rate, set_rates
from training.loop.progress import LogWindow, Reporter
from training.loop.ranks import TrainingRanks
from training.loop.speed import matrix_seconds
from training.loop.updates import Ahead, Place, Update, iterate_updates
from training.models import Network, Trainable, build_trainable, check_model
from training.recipe.config import Recipe, recipe_to_dict
from training.runs.checkpoint import (
    generator_states,
    list_checkpoints,
    load_checkpoint,
    recover_checkpoint,
    restore_generators,
    save_checkpoint,
)
from training.runs.claim import check_claim, has_begun, write_claim
from training.runs.folder import check_compiler, find_device
from training.runs.initial_weights import (
    begin_with,
    check_initial_weights,
    inherit_attribution,
    initial_checkpoint,
)
from training.runs.selection import BestSoFar, rank_checkpoints
from training.runs.trackers import find_tracker
from training.tasks.task import Task, prepare_task

logger = logging.getLogger(__name__)

COMPILER = "inductor"
"""The backend of `torch.compile`."""


def train(
    recipe: Recipe, run: Path, stop_after: int | None = None, ranks: TrainingRanks | None = None
) -> Path:
    """Train until max_steps or early stopping; returns the last checkpoint.

    An existing run folder is resumed from its last checkpoint. Its losses then equal those of an
    unbroken run to the bit, on the same machine, thread count and torch. `stop_after` saves a
    checkpoint at that step and returns. With `ranks` this process is one of several that train
    together.

    Raises RankLostError if another process has ended, CheckpointError if the folder holds a run of
    another recipe or text, DivergedError if a gradient is not finite, ConfigError or CorpusError if
    the recipe cannot be followed.
    """
    ranks = ranks or TrainingRanks()
    # A mistake in the recipe should show before the work. Only rank 0 reports it: if it ends here,
    # the others find it lost.
    with ranks.first_alone():
        find_device(ranks.device(recipe.loop.device))
        check_model(recipe.model)
        if recipe.loop.compile:
            check_compiler(recipe.loop.device)
    recipe = settle_budget(recipe, run, ranks)
    with ranks.first_alone():
        if ranks.is_first:
            check_initial_weights(recipe, run)
            recipe = inherit_attribution(recipe, run)
            check_claim(recipe, run)
            if recipe.loop.tracker is not None:
                find_tracker(recipe.loop.tracker)
        torch.manual_seed(recipe.loop.seed)
        data = prepare_task(recipe, run)
    ranks.check_same({"text": data.digest, "validation text": data.validation_digest})
    with ranks.first_alone():
        trainer = Trainer(recipe, run, data, ranks)
    ranks.check_same({"checkpoint": trainer.step})
    if ranks.is_first:
        data.write(run)  # only now it is certain that the text belongs to this run
        write_claim(recipe, run)
    return trainer.run(stop_after)


class Trainer:
    """A run in training: model, optimiser, and position in the text."""

    def __init__(
        self, recipe: Recipe, folder: Path, data: Task, ranks: TrainingRanks | None = None
    ) -> None:
        self.recipe, self.folder, self.data = recipe, folder, data
        self.ranks = ranks or TrainingRanks()
        self.device = find_device(self.ranks.device(recipe.loop.device))
        self.model = self._first_model().to(self.device)
        self.model.checkpointing = recipe.loop.activation_checkpointing
        if recipe.loop.compile:
            assert isinstance(self.model, Network)  # recipes refuse it for others
            self.model.compile_states(COMPILER)
        self.optimizer = build_optimizer(self.model, recipe.optim)
        self.step, self.place = 0, Place()
        decay = recipe.optim.ema_decay
        keeps = bool(decay) and self.ranks.is_first
        self.average = WeightAverage(self.model, decay) if keeps else None
        self.best = BestSoFar(recipe.loop.best_by)
        self.validated: dict[str, float | str] = {}
        self.gradient = GradientSum(recipe, self.model, data, self.device, self.ranks)
        self.window = LogWindow(self.device)
        self.saved: Path | None = None
        if self.ranks.is_first:
            recover_checkpoint(folder / "best")
        self._restore_last()

    def _first_model(self) -> Trainable:
        """A new model. It gets the weights of another run if the recipe names one and this run has
        no checkpoint yet."""
        model = build_trainable(self.recipe.model)
        initial = None if has_begun(self.folder) else initial_checkpoint(self.recipe)
        if initial is not None:
            begin_with(initial, model)
            logger.info("begins with the weights of %s", initial)
        return model

    def run(self, stop_after: int | None) -> Path:
        """Train to the end of the schedule; returns the last checkpoint.

        Raises RankLostError if another process is lost, and EndedError if SIGTERM asks one of
        several to end, after the current update. Both save a checkpoint first.
        """
        last = min(self.recipe.loop.max_steps, stop_after or self.recipe.loop.max_steps)
        with (
            Reporter(self.recipe, self.folder, self.step, self.ranks) as reporter,
            self.ranks.heeding_sigterm() as asked_to_end,
            self.updates() as updates,
        ):
            while self.step < last and not self._stopped_early():
                step, generators = self.step, generator_states(self.device)
                try:
                    self._advance(updates.next(), reporter)
                    self._look(reporter)
                    ending = asked_to_end() and self.step < last
                except RankLostError as error:
                    if self.step == step:  # the update was not made
                        restore_generators(generators, self.device)
                    raise self._lost(error) from error
                if ending:
                    folder = self.saved or self.save()
                    raise EndedError(
                        f"SIGTERM ended this run. {folder} holds its state: start the same command "
                        "to go on"
                    )
            return self.saved or self.save()

    def _lost(self, error: RankLostError) -> RankLostError:
        """Save a checkpoint; returns the error with its folder."""
        if not self.ranks.is_first or not self.step:
            return error
        folder = self.saved or self.save()
        return RankLostError(f"{error}; {folder} holds its state: start the same command to go on")

    def _advance(self, update: Update, reporter: Reporter) -> None:
        """Make one update and measure it."""
        if not self.window.begun and self.ranks.is_first:
            self.window.begin(self._matrix_seconds(update.batches))
        self.window.add(self.update(update))
        reporter.advance()

    def _matrix_seconds(self, batches: list[Any]) -> float | None:
        """Seconds per label at matrix speed; None if there is too little memory to measure it."""
        own = self.gradient.parts(self.ranks.share_of(batches))
        bf16 = self.recipe.loop.bf16
        try:
            seconds = matrix_seconds(self.model, self.data, own, self.device, bf16=bf16)
        except torch.OutOfMemoryError:
            logger.info("%s has too little memory to measure its matrix speed", self.device)
            return None
        return seconds / self.ranks.size

    def _look(self, reporter: Reporter) -> None:
        """Record, validate and save after an update, each when it is due."""
        loop = self.recipe.loop
        ended = self.step == loop.max_steps
        if self.step % loop.log_every == 0 or ended:
            reporter.record(self.step, self.window.take(self.place.epoch))
        if self.step % loop.validate_every == 0 or ended:
            if self.ranks.is_first:
                self._validate(reporter)
            self.best.restore(self.ranks.from_first(self.best.state()))
        if self.step % loop.checkpoint_every == 0 or (self.validated and loop.keep_best):
            self.save()

    def update(self, update: Update) -> dict[str, float]:
        """Do one optimiser update with the mean gradient over all labels."""
        optim = self.recipe.optim
        step, max_steps = self.step + 1, self.recipe.loop.max_steps
        rate = set_rates(self.optimizer, step, optim, max_steps)
        self.model.drop_heads(head_dropout_rate(step, self.recipe.model, optim, max_steps))
        self.ranks.seed(self.recipe.loop.seed, self.step)
        total, num_labels = self.gradient.compute(update)
        norm = torch.nn.utils.clip_grad_norm_(
            self.model.parameters(), optim.clip_norm or float("inf")
        )
        if not bool(torch.isfinite(norm)):
            if not self.ranks.is_first:
                raise RankLostError("rank 0 says why")
            raise self._diverged(f"gradient norm is {float(norm)} at step {self.step + 1}")
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step, self.place = self.step + 1, update.after
        self.saved, self.validated = None, {}
        if self.average is not None:
            self.average.update(self.step)
        return {"loss": total, "labels": num_labels, "gradient_norm": float(norm), "lr": rate}

    def _diverged(self, what: str) -> DivergedError:
        """An error that names what is not finite and proposes a remedy."""
        first = ""
        if self.saved is not None:  # the next try would begin with these weights and end here too
            first = f"delete {self.saved}, with whose weights it begins, "
        return DivergedError(
            f"{what}; {first}lower optim.peak_lr or lengthen optim.warmup_steps, then resume"
        )

    def _check_weights(self) -> None:
        """Raise DivergedError if a weight is not finite: no update can repair that."""
        for name, weight in self.model.named_parameters():
            if not bool(torch.isfinite(weight).all()):
                raise self._diverged(f"{name} is no longer finite at step {self.step}")

    def updates(self) -> Ahead:
        """The next updates, prepared ahead. The caller closes it."""
        size = self.recipe.optim.accumulation * self.ranks.size
        return Ahead(iterate_updates(self.data, self.place, self.step, size, self.gradient.prepare))

    def _validate(self, reporter: Reporter) -> None:
        self._check_weights()
        with self.average.applied() if self.average else nullcontext():
            values = self.data.validate(self.model)
        self.validated = values
        reporter.validation(self.step, values)
        if self.best.improved(values):
            self._save_to(self.folder / "best")

    def _stopped_early(self) -> bool:
        return 0 < self.recipe.loop.patience <= self.best.stale

    def save(self) -> Path:
        """Write a checkpoint and remove old ones, on rank 0 alone; returns its folder."""
        folder = self.folder / "checkpoints" / f"step_{self.step:08d}"
        if self.ranks.is_first:
            self._check_weights()
            self._save_to(folder)
            self._remove_old(folder)
        self.saved = folder
        return folder

    def _remove_old(self, folder: Path) -> None:
        # A later checkpoint was broken when the run was resumed. Only the whole ones count.
        whole = [path for path in list_checkpoints(self.folder) if path.name <= folder.name]
        loop = self.recipe.loop
        best = rank_checkpoints(self.folder, loop.best_by)[: loop.keep_best]
        for old in set(whole[: -loop.keep_checkpoints]) - set(best):
            shutil.rmtree(old)

    def _save_to(self, folder: Path) -> None:
        state: dict[str, Any] = {
            "step": self.step,
            **asdict(self.place),
            **self.best.state(),
            "validated": self.validated,
            "window": self.window.sums,
            "halved": self.gradient.halved,
            "corpus": self.data.digest,
            "validation": self.data.validation_digest,
            "machine": self._machine(),
            "recipe": recipe_to_dict(self.recipe),
        }
        averaged = None if self.average is None else self.average.tensors
        save_checkpoint(folder, self.model, self.optimizer, state, averaged)

    def _restore_last(self) -> None:
        """Load the last checkpoint that can be read. One that a crash or a full disk has cut off is
        skipped with a warning. Without any checkpoint, load the best one."""
        best = self.folder / "best"
        checkpoints = list_checkpoints(self.folder) or ([best] if best.exists() else [])
        for folder in reversed(checkpoints):
            try:
                self._restore(folder)
                return
            except BrokenCheckpointError as error:
                if folder == checkpoints[0]:
                    place = best if folder == best else folder.parent
                    raise BrokenCheckpointError(
                        f"{error}; there is no other to continue from: delete {place}; the run "
                        "then continues from another checkpoint, or starts again"
                    ) from error
                logger.warning("%s; the checkpoint before it is used instead", error)

    def _restore(self, folder: Path) -> None:
        try:
            averaged = None if self.average is None else self.average.tensors
            state = load_checkpoint(folder, self.model, self.optimizer, averaged)
            self.step = state["step"]
            self.place = Place(
                state["epoch"], state["position"], state.get("begun", 0), state.get("part", 0)
            )
            self.best.restore(state)
            self.saved = folder
        except KeyError as error:
            raise BrokenCheckpointError(f"{folder}: cannot be read: it has no {error}") from error
        self.gradient.halved = state.get("halved", False)
        self.window.sums = state.get("window", self.window.sums)
        if state.get("corpus", self.data.digest) != self.data.digest:
            raise CheckpointError(
                f"{folder}: the training text is no longer the one this run began with; "
                "restore it, or start another --run folder"
            )
        if state.get("validation", self.data.validation_digest) != self.data.validation_digest:
            raise CheckpointError(
                f"{folder}: the validation text is no longer the one this run began with, so that "
                "its losses could not be compared; restore it, or start another --run folder"
            )
        found = state.get("machine", self._machine())
        if found != self._machine() and self.ranks.is_first:
            logger.warning(
                "%s was saved with %s, this is %s: losses may differ in their last bits",
                folder,
                found,
                self._machine(),
            )
        logger.info("resumed %s at step %d", self.folder, self.step)

    def _machine(self) -> dict[str, str | int]:
        """The facts about this machine that change the last bits of a loss; the run folder holds
        all other causes."""
        machine: dict[str, str | int] = {
            "torch": torch.__version__,
            "device": self.device.type,
            "threads": torch.get_num_threads(),
        }
        return machine | ({"processes": self.ranks.size} if self.ranks.size > 1 else {})
