"""Validation on the held-out pairs: loss, and quality of what the shipped search decodes."""

from __future__ import annotations

import math

import torch

from serving.bundle.tokenizer import Tokenizer
from serving.search.options import SearchOptions
from training.batching import collate, cut_by_budget
from training.config import TranslationRecipe
from training.corpus import Pair
from training.loss import label_smoothed_loss
from training.models import TranslationModel
from training.quality import CorpusScores, measure_quality
from training.translation import translate


def validate(
    model: TranslationModel, tokenizer: Tokenizer, pairs: list[Pair], recipe: TranslationRecipe
) -> dict[str, float | str]:
    """Figures on the validation pairs; the model is left in evaluation mode.

    Loss per label (nats, without smoothing) and perplexity on all of them; unless
    `loop.bleu_sentences` is 0, also BLEU, chrF, their signatures and the length ratio on that many.
    """
    loss = validation_loss(model, tokenizer, pairs, recipe)
    values: dict[str, float | str] = {"loss": loss, "perplexity": math.exp(min(loss, 50.0))}
    if recipe.loop.bleu_sentences:
        quality = validation_quality(model, tokenizer, pairs, recipe)
        values |= {
            "bleu": round(quality.bleu, 2),
            "chrf": round(quality.chrf, 2),
            "length_ratio": round(quality.length_ratio, 4),
            "bleu_signature": quality.bleu_signature,
            "chrf_signature": quality.chrf_signature,
        }
    return values


@torch.no_grad()
def validation_loss(
    model: TranslationModel, tokenizer: Tokenizer, pairs: list[Pair], recipe: TranslationRecipe
) -> float:
    """Mean negative log-likelihood of a label, in nats."""
    model.eval()
    device = next(model.parameters()).device
    sides = [tokenizer.encode_batch([pair[side] for pair in pairs]) for side in (0, 1)]
    id_pairs = list(zip(*sides, strict=True))
    sizes = [(len(source) + 1, len(target) + 1) for source, target in id_pairs]
    order = sorted(range(len(id_pairs)), key=lambda i: (max(sizes[i]), sizes[i]))
    total, count = 0.0, 0
    for rows in cut_by_budget(order, sizes, recipe.data.budget, recipe.model.batch_cost):
        batch = collate([id_pairs[i] for i in rows]).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=recipe.loop.bf16):
            states = model.states(batch.source_BS, batch.target_BT)
            total += float(label_smoothed_loss(model, states, batch.labels_BT, 0.0))
        count += batch.num_labels
    return total / count


def validation_quality(
    model: TranslationModel, tokenizer: Tokenizer, pairs: list[Pair], recipe: TranslationRecipe
) -> CorpusScores:
    """BLEU and chrF on `loop.bleu_sentences` pairs, spread evenly over all of them."""
    count = min(recipe.loop.bleu_sentences, len(pairs))
    chosen = [pairs[i * len(pairs) // count] for i in range(count)]
    options = SearchOptions(beam_size=recipe.loop.bleu_beam_size)
    translations = translate(model, tokenizer, [source for source, _ in chosen], options)
    return measure_quality(translations, [target for _, target in chosen])
