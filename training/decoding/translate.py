"""Texts to translations with a PyTorch model, by the search that ships."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tqdm import tqdm

from serving.bundle.tokenizer import Tokenizer
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Sentence
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions
from training.batches.batching import cut_by_budget
from training.decoding.stepper import TorchStepper
from training.errors import DivergedError
from training.models import TranslationModel


def translate(
    model: TranslationModel,
    tokenizer: Tokenizer,
    texts: list[str],
    options: SearchOptions,
    *,
    prefixes: Sequence[list[int]] | None = None,
    token_budget: int | None = None,
    progress: bool = False,
) -> list[str]:
    """The best translation of each text, in input order; a blank text stays blank.

    `prefixes` are the ids before each source (`training.batches.batching.encode_prefix`). Texts of
    similar length share a batch of up to `token_budget` beams x source tokens (joint models: x
    squares of source tokens); the model's architecture has a default. The model is left in
    evaluation mode. `progress` draws a bar if stderr is a terminal. Raises DivergedError if the
    model's scores are not finite.
    """
    stepper = TorchStepper(model)
    prefixes = prefixes or [[]] * len(texts)
    encoded = zip(prefixes, tokenizer.encode_batch(texts), strict=True)
    sources = [[*prefix, *ids, EOS_ID] for prefix, ids in encoded]
    sizes = [(len(source), len(source)) for source in sources]
    order = sorted((i for i, text in enumerate(texts) if text.strip()), key=sizes.__getitem__)
    budget = (token_budget or model.config.decoding_budget) // options.beam_size
    translations = [""] * len(texts)
    bar = tqdm(total=len(order), disable=not (progress and sys.stderr.isatty()))
    for batch in cut_by_budget(order, sizes, budget, model.config.batch_cost):
        for result in decode(stepper, [Sentence(sources[i], options) for i in batch]):
            index = batch[result.index]
            if result.error is not None:
                raise DivergedError(f"text {index + 1}: {result.error}") from result.error
            translations[index] = tokenizer.decode(list(result.hypotheses[0].tokens))
        bar.update(len(batch))
    bar.close()
    return translations
