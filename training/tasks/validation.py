"""Validation on the held-out pairs: the loss, and the quality of the translations that the shipped
search finds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from serving.bundle.tokenizer import Tokenizer
from serving.search.options import SearchOptions
from training.batches.batching import collate, cut_by_budget, encode_pairs, encode_prefix
from training.corpora.pairs import Pair
from training.decoding.translate import translate
from training.metrics.bleu import measure_quality
from training.models import TranslationModel
from training.recipe.config import DataConfig, TranslationRecipe
from training.tasks.loss import label_smoothed_loss


def validate(
    model: TranslationModel,
    tokenizer: Tokenizer,
    pairs: list[Pair],
    directions: Sequence[int],
    recipe: TranslationRecipe,
) -> dict[str, float | str]:
    """Figures on the validation pairs. `directions` gives the direction of each pair by its number
    in `data.directions`. The model is left in evaluation mode.

    Loss per label (nats, without smoothing) and perplexity on all of them; unless
    `loop.bleu_sentences` is 0, also BLEU, chrF, their signatures and the length ratio on that many.
    With several directions, also the loss, BLEU and chrF of each (`loss_fr_en`).
    """
    prefixes = direction_prefixes(recipe.data, tokenizer)
    loss, of_each = _losses(model, tokenizer, pairs, directions, prefixes, recipe)
    values: dict[str, float | str] = {"loss": loss, "perplexity": math.exp(min(loss, 50.0))}
    if recipe.loop.bleu_sentences:
        values |= _quality(model, tokenizer, pairs, directions, prefixes, recipe)
    return values | of_each


def direction_prefixes(data: DataConfig, tokenizer: Tokenizer) -> list[list[int]]:
    """The ids before a source of each direction, without the tag of any corpus; raises ConfigError
    for a tag without a piece."""
    tags = data.language_tags
    return [encode_prefix(tokenizer, tags.get(target), None) for _, target in data.directions]


def _losses(
    model: TranslationModel,
    tokenizer: Tokenizer,
    pairs: list[Pair],
    directions: Sequence[int],
    prefixes: list[list[int]],
    recipe: TranslationRecipe,
) -> tuple[float, dict[str, float | str]]:
    """Mean negative log-likelihood of a label, in nats, over all pairs and by direction."""
    total, count = 0.0, 0
    of_each: dict[str, float | str] = {}
    for number, name in _named(recipe.data, directions):
        own = [pair for pair, of in zip(pairs, directions, strict=True) if of == number]
        loss, labels = _loss_and_labels(model, tokenizer, own, prefixes[number], recipe)
        total, count = total + loss, count + labels
        if name:
            of_each[f"loss_{name}"] = loss / labels
    return total / count, of_each


def _named(data: DataConfig, directions: Sequence[int]) -> list[tuple[int, str]]:
    """The numbers of the directions in use, with their names; a single direction has an empty
    name."""
    several = data.is_multilingual
    return [
        (number, "_".join(direction) if several else "")
        for number, direction in enumerate(data.directions)
        if number in directions
    ]


@torch.no_grad()
def _loss_and_labels(
    model: TranslationModel,
    tokenizer: Tokenizer,
    pairs: list[Pair],
    prefix: list[int],
    recipe: TranslationRecipe,
) -> tuple[float, int]:
    """The sum of the negative log-likelihoods of all labels, and the number of labels."""
    model.eval()
    device = next(model.parameters()).device
    id_pairs = [(prefix + source, target) for source, target in encode_pairs(pairs, tokenizer)]
    sizes = [(len(source) + 1, len(target) + 1) for source, target in id_pairs]
    order = sorted(range(len(id_pairs)), key=lambda i: (max(sizes[i]), sizes[i]))
    total, count = 0.0, 0
    for rows in cut_by_budget(order, sizes, recipe.data.budget, recipe.model.batch_cost):
        batch = collate([id_pairs[i] for i in rows]).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=recipe.loop.bf16):
            states = model.states(batch.source_BS, batch.target_BT)
            total += float(label_smoothed_loss(model, states, batch.labels_BT, 0.0))
        count += batch.num_labels
    return total, count


def _quality(
    model: TranslationModel,
    tokenizer: Tokenizer,
    pairs: list[Pair],
    directions: Sequence[int],
    prefixes: list[list[int]],
    recipe: TranslationRecipe,
) -> dict[str, float | str]:
    """BLEU and chrF on `loop.bleu_sentences` pairs, spread evenly over all of them."""
    count = min(recipe.loop.bleu_sentences, len(pairs))
    chosen = [i * len(pairs) // count for i in range(count)]
    options = SearchOptions(beam_size=recipe.loop.bleu_beam_size)
    sources, references = ([pairs[i][side] for i in chosen] for side in (0, 1))
    of_chosen = [directions[i] for i in chosen]
    before = [prefixes[number] for number in of_chosen]
    translations = translate(model, tokenizer, sources, options, prefixes=before)
    quality = measure_quality(translations, references)
    values: dict[str, float | str] = {
        "bleu": round(quality.bleu, 2),
        "chrf": round(quality.chrf, 2),
        "length_ratio": round(quality.length_ratio, 4),
        "bleu_signature": quality.bleu_signature,
        "chrf_signature": quality.chrf_signature,
    }
    for number, name in _named(recipe.data, of_chosen):
        if name:
            own = [place for place, of in enumerate(of_chosen) if of == number]
            found = measure_quality(
                [translations[place] for place in own], [references[place] for place in own]
            )
            values |= {f"bleu_{name}": round(found.bleu, 2), f"chrf_{name}": round(found.chrf, 2)}
    return values
