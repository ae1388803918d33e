"""Computes the gradient of an update: summed over batches and processes, in halves if memory is
short."""

from __future__ import annotations

import logging
from typing import Any

import torch

from training.errors import ConfigError
from training.loop.ranks import TrainingRanks
from training.loop.updates import Update
from training.models import Trainable
from training.recipe.config import DataConfig, PretrainingConfig, Recipe, TextConfig
from training.tasks.task import Task

logger = logging.getLogger(__name__)


class GradientSum:
    """Computes the gradient of the mean loss per label over all batches of an update."""

    def __init__(
        self,
        recipe: Recipe,
        model: Trainable,
        data: Task,
        device: torch.device,
        ranks: TrainingRanks,
    ) -> None:
        self._recipe, self._model, self._data = recipe, model, data
        self._device, self._ranks = device, ranks
        self.halved = False
        """Whether each batch is split into two halves, for lack of memory."""

    def prepare(self, batches: list[Any]) -> list[Any]:
        """Convert this process's share of the batches into tensors in host memory, from which a GPU
        can copy them while it computes."""
        own = self._ranks.share_of(batches)
        collated = [self._data.collate(batch, torch.device("cpu")) for batch in own]
        if self._device.type == "cuda":
            collated = [batch.pin_memory() for batch in collated]
        return collated

    def compute(self, update: Update) -> tuple[float, int]:
        """Leave the gradient in the parameters; returns summed loss and labels of all processes.

        Each process computes its share of the batches. If a GPU runs out of memory, it splits each
        batch into two halves from here on, and from the next update on all processes do; the
        gradient is the same.

        Raises ConfigError if the halves do not fit either, or cannot be made.
        """
        own = self._ranks.share_of(update.batches)
        collated = update.prepared
        if collated is None or self.halved:
            collated = self._collate(own)
        (labels,) = self._ranks.sum([sum(batch.num_labels for batch in collated)])
        collated = [batch.to(self._device) for batch in collated]
        loss = self._add_up_or_halve(own, collated, int(labels))
        self._ranks.sum_gradients(self._model.parameters())
        total, halved = self._ranks.sum([loss, float(self.halved)])
        self.halved = halved > 0
        return total, int(labels)

    def parts(self, batches: list[Any]) -> list[Any]:
        """The parts that are computed at once: whole batches, or the halves of each."""
        return [part for batch in batches for part in (halve(batch) if self.halved else [batch])]

    def _collate(self, batches: list[Any]) -> list[Any]:
        return [self._data.collate(part, self._device) for part in self.parts(batches)]

    def _add_up_or_halve(self, batches: list[Any], collated: list[Any], labels: int) -> float:
        while True:
            try:
                return self._add_up(collated, labels)
            except torch.OutOfMemoryError as error:
                self._halve(batches, error)
            # The error, which referenced the tensors, is gone here.
            self._model.zero_grad(set_to_none=True)
            if self._device.type == "cuda":
                torch.cuda.empty_cache()
            collated = self._collate(batches)

    def _add_up(self, collated: list[Any], labels: int) -> float:
        self._model.train()
        total, smoothing = 0.0, self._recipe.optim.label_smoothing
        for batch in collated:
            with torch.autocast(self._device.type, torch.bfloat16, enabled=self._recipe.loop.bf16):
                loss = self._data.loss(self._model, batch, smoothing)
            penalty, self._model.penalty = self._model.penalty, None
            whole = loss if penalty is None else loss + batch.num_labels * penalty
            (whole / labels).backward()
            total += float(loss.detach())
        return total

    def _halve(self, batches: list[Any], error: torch.OutOfMemoryError) -> None:
        name, budget, longest = _sizes(self._recipe)
        instead = "in another --run folder, or set loop.activation_checkpointing=true and resume"
        if all(len(part) < 2 for part in self.parts(batches)):
            raise ConfigError(
                f"{self._device} ran out of memory with batches of one row, of {longest} at most; "
                f"lower that {instead}"
            ) from error
        if self.halved:
            raise ConfigError(
                f"{self._device} ran out of memory with half of {name} = {budget} too; lower it "
                f"{instead}"
            ) from error
        self.halved = True
        logger.warning(
            "%s ran out of memory: each batch is computed in two halves from here on, as with %s = "
            "%d and twice the accumulation; what is learnt is the same",
            self._device,
            name,
            budget // 2,
        )


def _sizes(recipe: Recipe) -> tuple[str, int, str]:
    """The option that decides the batch size, its value, and the size of one row."""
    data = recipe.data
    if isinstance(data, DataConfig):
        return "data.token_budget", data.budget, f"data.max_pieces = {data.max_pieces}"
    if isinstance(data, TextConfig):
        longest = f"data.segment_length = {data.segment_length}"
        return "data.batch_size", data.batch_size, longest
    longest = f"data.max_length = {data.max_length}"
    if isinstance(data, PretrainingConfig):
        return "data.token_budget", data.token_budget, longest
    if (
        data.kind == "contrastive"
    ):  # whose batches cannot be split, since each line needs the others
        longest = f"data.batch_size = {data.batch_size} lines"
    return "data.batch_size", data.batch_size, longest


def halve(batch: Any) -> list[Any]:
    """Split the rows of a batch into halves; a single row stays one part."""
    middle = (len(batch) + 1) // 2
    return [half for half in (batch[:middle], batch[middle:]) if len(half)]
