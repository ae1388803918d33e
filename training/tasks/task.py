"""The interface between the training loop and the data: all that differs between kinds of model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from training.recipe.config import (
    FineTuningRecipe,
    LanguageRecipe,
    PretrainingRecipe,
    Recipe,
    TranslationRecipe,
)
from training.tasks.finetuning import prepare_labelled
from training.tasks.language import prepare_text
from training.tasks.pretraining import prepare_pretraining
from training.tasks.translation import prepare


class Task(Protocol):
    """Batches of an epoch, the loss of one, and validation."""

    @property
    def digest(self) -> str:
        """Signature of the training texts: a run is resumed on its own only."""
        ...

    @property
    def validation_digest(self) -> str:
        """Signature of the validation texts: losses on others could not be compared."""
        ...

    def write(self, run: Path) -> None:
        """Write the report of cleaning and the validation text, which export reads."""
        ...

    def epoch(self, epoch: int, begun: int = 0, part: int = 0) -> list[Any]:
        """The batches of a part of an epoch that begins after so many steps, the same at each call.
        Raises CorpusError if the whole epoch has none."""
        ...

    def parts(self, begun: int) -> int:
        """Number of parts of an epoch that begins after so many steps."""
        ...

    def change_after(self, begun: int) -> int | None:
        """The first step after this one at which the text changes: the epoch ends there."""
        ...

    def collate(self, batch: Any, device: torch.device) -> Any:
        """Tensors of one of these batches, with `num_labels`, `to(device)` and `pin_memory()`."""
        ...

    def loss(self, model: Any, batch: Any, smoothing: float) -> Tensor:
        """The loss of a collated batch, summed over its labels."""
        ...

    def validate(self, model: Any) -> dict[str, float | str]:
        """Figures for the log, `loss` among them; the model is left in evaluation mode."""
        ...


def prepare_task(recipe: Recipe, run: Path) -> Task:
    """Read and batch the text; a run folder without a vocabulary gets one.

    Raises CorpusError or ConfigError if that cannot be done.
    """
    if isinstance(recipe, LanguageRecipe):
        return prepare_text(recipe, run)
    if isinstance(recipe, PretrainingRecipe):
        return prepare_pretraining(recipe, run)
    if isinstance(recipe, FineTuningRecipe):
        return prepare_labelled(recipe, run)
    assert isinstance(recipe, TranslationRecipe)
    return prepare(recipe, run)
