"""Validation: loss on the held-out pairs."""

from __future__ import annotations

import math

import torch

from serving.tokenizer import Tokenizer
from training.batching import collate, cut_by_budget
from training.config import Recipe
from training.corpus import Pair
from training.data import RunData
from training.loss import label_smoothed_loss
from training.models import Transformer


def validate(model: Transformer, data: RunData, recipe: Recipe) -> dict[str, float]:
    """Loss per label (nats, without smoothing) and perplexity on the validation pairs."""
    loss = validation_loss(model, data.tokenizer, data.validation, recipe)
    return {"loss": loss, "perplexity": math.exp(min(loss, 50.0))}


@torch.no_grad()
def validation_loss(
    model: Transformer, tokenizer: Tokenizer, pairs: list[Pair], recipe: Recipe
) -> float:
    """Mean negative log-likelihood of a label, in nats."""
    model.eval()
    device = next(model.parameters()).device
    sides = [tokenizer.encode_batch([pair[side] for pair in pairs]) for side in (0, 1)]
    id_pairs = list(zip(*sides, strict=True))
    lengths = [max(len(source), len(target)) + 1 for source, target in id_pairs]
    order = sorted(range(len(id_pairs)), key=lengths.__getitem__)
    total, count = 0.0, 0
    for rows in cut_by_budget(order, lengths, recipe.data.token_budget):
        batch = collate([id_pairs[i] for i in rows]).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=recipe.loop.bf16):
            logits = model(batch.source_BS, batch.target_BT)
        total += float(label_smoothed_loss(logits, batch.labels_BT, 0.0))
        count += batch.num_labels
    return total / count
