"""Quality figures of a bundle on test texts, for its manifest."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from export.comparison.language import bundle_loss
from export.texts.dev_set import DevSet
from export.texts.texts import DocumentReader, DocumentsFile, windows_of
from serving.bundle.manifest import Quality
from serving.queue.limits import BatchLimits
from serving.runtime.language_stepper import LanguageStepper
from serving.threads import default_threads
from serving.translation.translator import Translator
from training.metrics.bleu import measure_quality

logger = logging.getLogger(__name__)

_TEST_CACHE_BYTES = 16 * 2**30
"""A memory bound that no test sentence reaches: actual use is far below the worst case."""


def translation_figures(bundle: Path, tests: Sequence[tuple[str, DevSet]]) -> tuple[Quality, ...]:
    """BLEU and chrF2 of named texts, translated by the finished bundle with its defaults."""
    limits = BatchLimits(max_cache_bytes=_TEST_CACHE_BYTES)
    translator = Translator(bundle, workers=default_threads(), limits=limits)
    return tuple(figure for test in tests for figure in _scores(translator, *test))


def _scores(translator: Translator, name: str, text: DevSet) -> Iterator[Quality]:
    source, target = (text.languages or [(None, None)])[0]
    found = translator.translate_sentences(text.sources, source=source, target=target)
    translations = [result.text for result in found]
    note = f"{len(translations)} sentences, beam {translator.default_options.beam_size}"
    assert text.references is not None
    scores = measure_quality(translations, text.references)
    for metric, value, signature in (
        ("BLEU", scores.bleu, scores.bleu_signature),
        ("chrF2", scores.chrf, scores.chrf_signature),
    ):
        logger.info("%s: %s %.2f", name, metric, value)
        yield Quality(
            data=name, metric=metric, value=round(value, 2), signature=signature, note=note
        )


def language_figure(
    reader: DocumentReader, stepper: LanguageStepper, text: DocumentsFile, lines: list[str]
) -> Quality:
    """Rolling perplexity of a bundle on a text, given as lines, per word and per token."""
    windows = windows_of(reader, text.file, lines)
    loss = bundle_loss(stepper, windows)
    tokens, words = sum(w.scored for w in windows), sum(len(line.split()) for line in lines)
    word_perplexity = math.exp(loss / max(1, words))
    logger.info("%s: word perplexity %.2f", text.name, word_perplexity)
    return Quality(
        data=text.name,
        metric="word perplexity",
        value=round(word_perplexity, 2),
        signature="rolling, eos before each document and not scored",
        note=f"{words} words, {tokens} tokens, perplexity a token {math.exp(loss / tokens):.2f}",
    )
