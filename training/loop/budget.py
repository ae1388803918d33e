"""`data.token_budget: auto`: finds the largest batches that fit into a device's memory."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from serving.resident import resident_bytes
from serving.search.ids import EOS_ID
from training.batches.batching import PairBatch
from training.loop.optim import build_optimizer
from training.loop.ranks import TrainingRanks
from training.models import TranslationModel, build_model
from training.recipe.config import AUTO, DataConfig, Recipe, TranslationRecipe
from training.runs.claim import has_begun
from training.runs.folder import find_device, read_run_recipe
from training.tasks.loss import label_smoothed_loss

logger = logging.getLogger(__name__)

_FIRST = 1024
"""Tokens of the first trial batch."""
_MOST = {"cpu": 8192, "cuda": 131_072}
"""Largest automatic token budget by device; larger batches compute no faster and leave too few
updates in an epoch."""
_SHARE = {"cpu": 0.5, "cuda": 0.9}
"""Share of the free memory to use: a CPU's memory also holds the text and serves other
processes."""
_PROCESS = Path("/proc/self")
MEMORY = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")
"""Files with the system's memory, and with that of this process's control group."""


def settle_budget(recipe: Recipe, run: Path, ranks: TrainingRanks) -> Recipe:
    """The recipe with a number in place of a token budget `auto`: that of the run if it has
    started, otherwise the one that fits rank 0's device, the same for all processes.

    Raises CheckpointError if the run's recipe cannot be read.
    """
    if not isinstance(recipe, TranslationRecipe) or recipe.data.token_budget != AUTO:
        return recipe
    budget = 0
    if ranks.is_first:
        found = read_run_recipe(run).data if has_begun(run) else None
        if isinstance(found, DataConfig):
            budget = found.budget
        else:
            device = find_device(ranks.device(recipe.loop.device))
            budget = find_budget(recipe, device, ranks.size)
    return with_budget(recipe, int(ranks.from_first(budget)))


def with_budget(recipe: TranslationRecipe, budget: int) -> TranslationRecipe:
    """The recipe with this token budget."""
    return replace(recipe, data=replace(recipe.data, token_budget=budget))


def find_budget(recipe: TranslationRecipe, device: torch.device, processes: int = 1) -> int:
    """Find the token budget that fits, and log it; all `processes` share a CPU's memory.

    Runs updates with growing batches of the longest rows on a model of the recipe's sizes, until
    the next one would exceed the share of free memory or the useful size.
    """
    longest = recipe.data.max_pieces + 1
    scale = recipe.model.batch_cost(longest, longest) // longest
    free = free_bytes(device)
    if free is None:
        logger.warning(
            "the system states no free memory: data.token_budget is %d", 4 * _FIRST * scale
        )
        return 4 * _FIRST * scale
    allowed = _SHARE[device.type] * free / (processes if device.type == "cpu" else 1)
    probe = MemoryProbe(recipe, device)
    tokens, budget, used = _FIRST, _FIRST, 0
    while tokens > budget or not used:
        try:
            taken = probe.measure(tokens * scale)
        except torch.OutOfMemoryError:
            break
        # The model's own memory does not grow, so this many certainly fit.
        fitting = min(2 * tokens, int(tokens * allowed / taken), _MOST[device.type])
        fitting = max(fitting // 256 * 256, 256)
        budget, used = min(tokens, fitting), taken
        tokens = fitting if fitting >= 1.1 * tokens else budget
    del probe
    if device.type == "cuda":
        torch.cuda.empty_cache()
    logger.info(
        "data.token_budget: auto is %d on %s, where an update takes %.2f of %.2f GB",
        *(budget * scale, device, used / 1e9, allowed / 1e9),
    )
    return budget * scale


def free_bytes(device: torch.device, memory: Path = MEMORY, group: Path = GROUP) -> int | None:
    """Free memory of a device in bytes. On a CPU it comes from these files, within the limit of the
    control group (v2); None if the system does not state it."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = _number(memory, r"MemAvailable:\s+(\d+) kB")
    if free is None:
        return None
    free *= 1024
    limit = _number(group / "memory.max", r"(\d+)")
    if limit is None:
        return free
    held = _number(group / "memory.current", r"(\d+)") or 0
    files = _number(group / "memory.stat", r"inactive_file (\d+)") or 0
    return max(0, min(free, limit - held + files))


def _number(path: Path, pattern: str) -> int | None:
    with suppress(OSError):
        found = re.search(pattern, path.read_text())
        return int(found[1]) if found else None
    return None


class MemoryProbe:
    """A model of the recipe's sizes that is trained on random ids."""

    def __init__(self, recipe: TranslationRecipe, device: torch.device) -> None:
        self._recipe, self._device = recipe, device
        self._before = self._begin()
        model = build_model(recipe.model)
        assert isinstance(model, TranslationModel)
        self._model = model.to(device).train()
        self._model.checkpointing = recipe.loop.activation_checkpointing
        self._optimizer = build_optimizer(self._model, recipe.optim)

    def measure(self, budget: int) -> int:
        """Peak memory of an update in bytes, model and optimiser included."""
        self._update(self._batch(budget))
        return max(1, self._peak() - self._before)

    def _batch(self, budget: int) -> PairBatch:
        """A batch of the longest rows, at least one."""
        longest = self._recipe.data.max_pieces + 1
        rows = max(1, budget // self._recipe.model.batch_cost(longest, longest))
        ids = torch.randint(EOS_ID + 1, self._recipe.model.vocab_size, (rows, longest))
        return PairBatch(ids, ids, ids).to(self._device)

    def _update(self, batch: PairBatch) -> None:
        bf16, smoothing = self._recipe.loop.bf16, self._recipe.optim.label_smoothing
        with torch.autocast(self._device.type, torch.bfloat16, enabled=bf16):
            states = self._model.states(batch.source_BS, batch.target_BT)
            loss = label_smoothed_loss(self._model, states, batch.labels_BT, smoothing)
        (loss / batch.num_labels).backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def _begin(self) -> int:
        """Reset the peak; returns the bytes held now."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)
            return torch.cuda.memory_reserved(self._device)
        with suppress(OSError):
            (_PROCESS / "clear_refs").write_text("5")
        return resident_bytes()

    def _peak(self) -> int:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_reserved(self._device)
        return 1024 * (_number(_PROCESS / "status", r"VmHWM:\s+(\d+) kB") or 0)
