"""The shortlist of a bundle: a lexicon learnt from its training text, and the graph that uses it.

Shape letters: P pairs of pieces, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from export.arithmetic.quantize import Products
from export.graphs.first_step import name_beams_apart
from export.graphs.lowering import lower
from export.graphs.onnx_graph import export_shortlist_step
from serving.bundle.manifest import ShortlistFiles
from serving.bundle.shortlist import Shortlist
from serving.bundle.tokenizer import Tokenizer
from serving.search.ids import EOS_ID
from training.batches.batching import encode_language_tag
from training.models import TranslationModel
from training.recipe.config import TranslationRecipe
from training.tasks.lexicon import IdPair, learn_lexicon
from training.tasks.translation import read_corpus

FILE = "shortlist.npz"
COMMON = 128
"""Number of common pieces: the most frequent ones of the target text."""
BEST = 32
"""Largest number of translations of one source piece."""
LEAST_PROBABILITY = 1e-3
"""Smallest probability of a translation in the lexicon."""


def read_shortlist(recipe: TranslationRecipe, tokenizer: Tokenizer) -> Shortlist:
    """Learn the shortlist from a recipe's training text; raises CorpusError if it cannot be
    read."""
    corpus, data = read_corpus(recipe), recipe.data
    sides = (tokenizer.encode_batch([pair[side] for pair in corpus.train]) for side in (0, 1))
    pairs = list(zip(*sides, strict=True))
    tags = data.language_tags
    of_tag: dict[int, list[IdPair]] = {
        encode_language_tag(tokenizer, tag)[0]: [
            pair
            for pair, origin in zip(pairs, corpus.origins, strict=True)
            if data.direction(data.corpora[origin])[1] == language
        ]
        for language, tag in tags.items()
    }
    return build_shortlist(pairs, tokenizer.vocab_size, of_tag)


def build_shortlist(
    pairs: list[IdPair], vocab_size: int, of_tag: Mapping[int, list[IdPair]] | None = None
) -> Shortlist:
    """Learn a shortlist from encoded sentence pairs with a common vocabulary.

    A piece may always stay unchanged, as names and numbers do. `of_tag` has the pairs whose sources
    start with a language's tag: the tag may become the most frequent pieces of that language.
    """
    common = np.unique([EOS_ID, *_frequent(pairs, vocab_size)])
    tagged = [
        (tag, piece)
        for tag, some in (of_tag or {}).items()
        for piece in _frequent(some, vocab_size)
        if piece != tag
    ]
    tag_T, piece_T = np.array(tagged, dtype=np.int64).reshape(-1, 2).T
    lexicon = learn_lexicon(pairs)
    first_P = np.searchsorted(lexicon.source_P, lexicon.source_P)
    rank_P = np.arange(len(lexicon.source_P)) - first_P
    kept_P = (rank_P < BEST) & (lexicon.probability_P >= LEAST_PROBABILITY)
    unchanged_V = np.arange(vocab_size)
    source = np.concatenate([lexicon.source_P[kept_P], unchanged_V, tag_T])
    target = np.concatenate([lexicon.target_P[kept_P], unchanged_V, piece_T])
    by_source = np.lexsort((target, source))
    start_V1 = np.searchsorted(source[by_source], np.arange(vocab_size + 1))
    return Shortlist(common, start_V1, target[by_source])


def _frequent(pairs: list[IdPair], vocab_size: int) -> list[int]:
    """The most frequent pieces of the targets."""
    counts_V = np.bincount([piece for _, target in pairs for piece in target], minlength=vocab_size)
    order = np.argsort(-counts_V, kind="stable")[:COMMON]
    return list(order[counts_V[order] > 0].tolist())


def write_shortlist(
    model: TranslationModel,
    shortlist: Shortlist,
    folder: Path,
    *,
    int8: bool,
    products: Products,
) -> tuple[ShortlistFiles, onnx.ModelProto]:
    """Write the lexicon; returns the step graph, which the caller saves."""
    shortlist.save(folder / FILE)
    step, step_graph = export_shortlist_step(model)
    step = lower(step, int8=int8, products=products)
    step_graph = name_beams_apart(step_graph, step)
    return ShortlistFiles(lexicon=FILE, step=step_graph), step
