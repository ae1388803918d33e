"""The training loop: updates, validation, checkpoints, and resuming to the bit."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from training.averaging import WeightAverage
from training.checkpoint import (
    list_checkpoints,
    load_checkpoint,
    recover_checkpoint,
    save_checkpoint,
)
from training.claim import check_claim, write_claim
from training.config import DataConfig, Recipe, recipe_to_dict
from training.errors import BrokenCheckpointError, CheckpointError, ConfigError, DivergedError
from training.metrics import MetricsLog
from training.models import build_network, check_model
from training.optim import build_optimizer, learning_rate
from training.progress import LiveLine, LogWindow
from training.run import find_device
from training.selection import BestSoFar, rank_checkpoints
from training.speed import matrix_seconds
from training.task import Task, prepare_task

logger = logging.getLogger(__name__)


def train(recipe: Recipe, run: Path, stop_after: int | None = None) -> Path:
    """Train until max_steps or early stopping; returns the last checkpoint.

    An existing run folder is resumed from its last checkpoint: losses are then equal to the bit to
    those of an unbroken run on the same machine, thread count and torch. `stop_after` ends the
    session early, after a checkpoint at that step.

    Raises CheckpointError where the folder holds a run of another recipe or text, DivergedError
    where a gradient is not finite, ConfigError or CorpusError where the recipe cannot be followed.
    """
    find_device(recipe.loop.device)  # what is wrong with the recipe should show before the work
    check_model(recipe.model)
    check_claim(recipe, run)
    torch.manual_seed(recipe.loop.seed)
    data = prepare_task(recipe, run)
    trainer = Trainer(recipe, run, data)
    data.write(run)  # not before it is clear that the text is this run's
    write_claim(recipe, run)
    return trainer.run(stop_after)


class Trainer:
    """A run while it trains: model, optimiser, and how far it has come."""

    def __init__(self, recipe: Recipe, folder: Path, data: Task) -> None:
        self.recipe, self.folder, self.data = recipe, folder, data
        self.device = find_device(recipe.loop.device)
        self.model = build_network(recipe.model).to(self.device)
        self.model.checkpointing = recipe.loop.activation_checkpointing
        self.optimizer = build_optimizer(self.model, recipe.optim)
        self.step, self.epoch, self.position = 0, 0, 0
        decay = recipe.optim.ema_decay
        self.average = WeightAverage(self.model, decay) if decay else None
        self.best = BestSoFar(recipe.loop.best_by)
        self.validated: dict[str, float | str] = {}
        self.halved = False  # whether batches are computed in two halves, for want of memory
        self.window = LogWindow(self.device)
        self.saved: Path | None = None
        recover_checkpoint(folder / "best")
        self._restore_last()

    def run(self, stop_after: int | None) -> Path:
        """Train to the end of the schedule; returns the last checkpoint."""
        loop = self.recipe.loop
        last = min(loop.max_steps, stop_after or loop.max_steps)
        log = MetricsLog(self.folder, self.step)
        line = LiveLine(self.step, loop.max_steps)
        updates = self._updates()
        while self.step < last and not self._stopped_early():
            batches = next(updates)
            if self.window.seconds_per_label is None:
                self.window.seconds_per_label = matrix_seconds(
                    self.model, self.data, batches, self.device, bf16=loop.bf16
                )
            self.window.add(self._update(batches))
            line.advance()
            if self.step % loop.log_every == 0 or self.step == loop.max_steps:
                record = self.window.take(self.epoch)
                log.log("train", self.step, {**record})
                line.show(self.step, record, log.last_validation)
            if self.step % loop.validate_every == 0 or self.step == loop.max_steps:
                self._validate(log)
            if self.step % loop.checkpoint_every == 0 or (self.validated and loop.keep_best):
                self._save()
        line.close()
        log.close()
        return self.saved or self._save()

    def _update(self, batches: list[Any]) -> dict[str, float]:
        """One optimiser update over the given batches; the gradient is a mean over labels."""
        optim = self.recipe.optim
        rate = learning_rate(self.step + 1, optim, self.recipe.loop.max_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        total, num_labels = self._compute_gradient(batches)
        norm = torch.nn.utils.clip_grad_norm_(
            self.model.parameters(), optim.clip_norm or float("inf")
        )
        if not bool(torch.isfinite(norm)):
            raise self._diverged(f"gradient norm is {float(norm)} at step {self.step + 1}")
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.saved, self.validated = None, {}
        if self.average is not None:
            self.average.update(self.step)
        return {"loss": total, "labels": num_labels, "gradient_norm": float(norm), "lr": rate}

    def _compute_gradient(self, batches: list[Any]) -> tuple[float, int]:
        """Leave the gradient of the mean loss in the parameters; returns the sum and the labels.

        Where the device's memory does not suffice, the rows of each batch are taken in two halves
        from here on, which gives the same gradient.
        """
        try:
            return self._sum_gradients(batches)
        except torch.OutOfMemoryError as error:
            self._halve_batches(batches, error)
        # Not before the error is gone, which holds the tensors that had been made.
        self.optimizer.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return self._sum_gradients(batches)

    def _sum_gradients(self, batches: list[Any]) -> tuple[float, int]:
        self.model.train()
        parts = [part for batch in batches for part in (halve(batch) if self.halved else [batch])]
        collated = [self.data.collate(part, self.device) for part in parts]
        num_labels = sum(batch.num_labels for batch in collated)
        total = 0.0
        for batch in collated:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.loop.bf16):
                loss = self.data.loss(self.model, batch, self.recipe.optim.label_smoothing)
            (loss / num_labels).backward()
            total += float(loss.detach())
        return total, num_labels

    def _halve_batches(self, batches: list[Any], error: torch.OutOfMemoryError) -> None:
        data = self.recipe.data
        if isinstance(data, DataConfig):
            name, budget = "data.token_budget", data.token_budget
        else:
            name, budget = "data.batch_size", data.batch_size
        if self.halved or all(len(batch) < 2 for batch in batches):
            raise ConfigError(
                f"{self.device} ran out of memory with half of {name} = {budget} too; lower it in "
                "another --run folder, or set loop.activation_checkpointing=true and resume"
            ) from error
        self.halved = True
        logger.warning(
            "%s ran out of memory: each batch is computed in two halves from here on, as with %s = "
            "%d and twice the accumulation; what is learnt is the same",
            self.device,
            name,
            budget // 2,
        )

    def _diverged(self, what: str) -> DivergedError:
        """The error that tells what is no longer finite, with what helps."""
        first = ""
        if self.saved is not None:  # nothing has been learnt since, and the next try ends here too
            first = f"delete {self.saved}, with whose weights it begins, "
        return DivergedError(
            f"{what}; {first}lower optim.peak_lr or lengthen optim.warmup_steps, then resume"
        )

    def _check_weights(self) -> None:
        """Raise DivergedError where a weight is not finite: no update would mend it."""
        for name, weight in self.model.named_parameters():
            if not bool(torch.isfinite(weight).all()):
                raise self._diverged(f"{name} is no longer finite at step {self.step}")

    def _updates(self) -> Iterator[list[Any]]:
        """Groups of batches, from the saved position on, without end."""
        accumulation = self.recipe.optim.accumulation
        while True:
            batches = self.data.epoch(self.epoch)
            while self.position < len(batches):
                group = batches[self.position : self.position + accumulation]
                self.position += len(group)
                yield group
            self.epoch, self.position = self.epoch + 1, 0

    def _validate(self, log: MetricsLog) -> None:
        self._check_weights()
        with self.average.applied() if self.average else nullcontext():
            values = self.data.validate(self.model)
        self.validated = values
        log.log("validation", self.step, values)
        shown = ", ".join(f"{k} {v:.4g}" for k, v in values.items() if not isinstance(v, str))
        logger.info("step %d: %s", self.step, shown)
        if self.best.improved(values):
            self._save_to(self.folder / "best")

    def _stopped_early(self) -> bool:
        return 0 < self.recipe.loop.patience <= self.best.stale

    def _save(self) -> Path:
        self._check_weights()
        folder = self.folder / "checkpoints" / f"step_{self.step:08d}"
        self._save_to(folder)
        # One that comes after this was broken when the run was resumed: the whole ones count.
        whole = [path for path in list_checkpoints(self.folder) if path.name <= folder.name]
        loop = self.recipe.loop
        best = rank_checkpoints(self.folder, loop.best_by)[: loop.keep_best]
        for old in set(whole[: -loop.keep_checkpoints]) - set(best):
            shutil.rmtree(old)
        self.saved = folder
        return folder

    def _save_to(self, folder: Path) -> None:
        state: dict[str, Any] = {
            "step": self.step,
            "epoch": self.epoch,
            "position": self.position,
            **self.best.state(),
            "validated": self.validated,
            "window": self.window.sums,
            "halved": self.halved,
            "corpus": self.data.digest,
            "validation": self.data.validation_digest,
            "machine": self._machine(),
            "recipe": recipe_to_dict(self.recipe),
        }
        averaged = None if self.average is None else self.average.tensors
        save_checkpoint(folder, self.model, self.optimizer, state, averaged)

    def _restore_last(self) -> None:
        """Go on from the last checkpoint that can be read; one that a crash or a full disk has cut
        off is passed over with a warning. Where there is none yet, the best one is the last."""
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
                        f"{error}; there is no other to go on from: delete {place}, then the run "
                        "goes on from what else it holds, or begins anew"
                    ) from error
                logger.warning("%s; the checkpoint before it is used in its place", error)

    def _restore(self, folder: Path) -> None:
        try:
            averaged = None if self.average is None else self.average.tensors
            state = load_checkpoint(folder, self.model, self.optimizer, averaged)
            self.step, self.epoch, self.position = state["step"], state["epoch"], state["position"]
            self.best.restore(state)
            self.saved = folder
        except KeyError as error:
            raise BrokenCheckpointError(f"{folder}: cannot be read: it has no {error}") from error
        self.halved = state.get("halved", False)
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
        if found != self._machine():
            logger.warning(
                "%s was saved with %s, this is %s: losses may differ in their last bits",
                folder,
                found,
                self._machine(),
            )
        logger.info("resumed %s at step %d", self.folder, self.step)

    def _machine(self) -> dict[str, str | int]:
        """What, besides the run folder, decides the last bits of a loss."""
        return {
            "torch": torch.__version__,
            "device": self.device.type,
            "threads": torch.get_num_threads(),
        }


def halve(batch: Any) -> list[Any]:
    """The rows of a batch in two halves, or in one where there is one row only."""
    middle = (len(batch) + 1) // 2
    return [half for half in (batch[:middle], batch[middle:]) if len(half)]
