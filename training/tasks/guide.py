"""A word aligner that finds which source piece each target piece translates, to guide a model's
attention in training.

IBM model 1 with a prior for the diagonal (Dyer et al. 2013, section 2), learnt in both directions,
which must agree (Liang et al. 2006 multiply them as well).

Shape letters: B sentences, S source positions, T target positions, P pairs of pieces.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from serving.arrays import Doubles, Ints
from training.errors import ConfigError
from training.models.context import AttentionContext
from training.tasks.lexicon import IdPair, Lexicon, diagonal_prior, learn_lexicon, links_of, turned

TENSION = 4.0
"""Strength of the pull of links towards the diagonal; Dyer et al. learn about this value for most
languages."""
_UNSEEN = 1e-9
"""The probability of pairs that the corpus never shows."""
_LEAST_ATTENTION = 1e-9
"""Lower bound of an attention weight, so that its logarithm is finite where softmax has come to
0."""


class Guide:
    """Probable links of sentence pairs, by two lexicons of a corpus."""

    def __init__(self, pairs: Sequence[IdPair]) -> None:
        """Learn from pairs of piece ids; takes half a minute and 2 GB for a large corpus."""
        self._forward = _Table(learn_lexicon(pairs, TENSION))
        self._backward = _Table(learn_lexicon(turned(pairs), TENSION))

    def links(self, source: Sequence[int], target: Sequence[int]) -> Doubles:
        """The probability that target piece t translates source piece s, [T,S].

        It is the geometric mean of both directions. A row's sum is at most 1; the rest belongs to
        pieces that translate nothing, or on which the directions do not agree.
        """
        forward_TS = self._forward.posterior(source, target)
        backward_ST = self._backward.posterior(target, source)
        links_TS: Doubles = np.sqrt(forward_TS * backward_ST.T)
        return links_TS / np.maximum(links_TS.sum(axis=1, keepdims=True), 1.0)

    def batch(self, pairs: Sequence[IdPair]) -> Tensor:
        """Links [B,T,S] of a collated batch: with a last position for eos on both sides, which has
        no links, then padding."""
        shape = (
            len(pairs),
            max(len(target) for _, target in pairs) + 1,
            max(len(source) for source, _ in pairs) + 1,
        )
        links_BTS = torch.zeros(shape)
        for row, (source, target) in enumerate(pairs):
            links_BTS[row, : len(target), : len(source)] = torch.from_numpy(
                self.links(source, target)
            )
        return links_BTS


class _Table:
    """A lexicon in the form in which pairs of pieces are looked up."""

    def __init__(self, lexicon: Lexicon) -> None:
        order = np.argsort(lexicon.links)
        self._key_P: Ints = lexicon.links[order]
        self._probability_P: Doubles = lexicon.probability_P[order]

    def posterior(self, source: Sequence[int], target: Sequence[int]) -> Doubles:
        """The probability that each target piece comes from each source piece, [T,S]. The rest of a
        row up to 1 is the probability that it comes from none."""
        prior_TX = diagonal_prior(len(source), len(target), TENSION)
        key_TX = links_of(source, target)
        place_TX = np.searchsorted(self._key_P, key_TX).clip(max=len(self._key_P) - 1)
        found_TX = self._key_P[place_TX] == key_TX
        weight_TX = np.where(found_TX, self._probability_P[place_TX], _UNSEEN) * prior_TX
        weight_TX /= weight_TX.sum(axis=1, keepdims=True)
        return weight_TX[:, 1:]


def guided_loss(context: AttentionContext, links_BTS: Tensor, num_heads: int) -> Tensor:
    """Cross-entropy of attention with links (Garg et al. 2019, section 4.2), summed over links.

    The attention is that of a context that a source attention has read, averaged over heads, as
    alignments are read from it. A link is weighted by its probability, so pieces without a known
    link teach nothing.

    Raises ConfigError if a block's source attention does not keep its query.
    """
    if context.source_query is None:
        raise ConfigError(
            "optim.alignment_weight needs the queries of the source attention, which model.block "
            "does not leave in its context; set the weight to 0"
        )
    query_BHTE = context.source_query.float().unflatten(-1, (num_heads, -1)).transpose(1, 2)
    keys_BHSE = context.source.keys.float().unflatten(-1, (num_heads, -1)).transpose(1, 2)
    scores_BHTS = query_BHTE @ keys_BHSE.transpose(2, 3) * query_BHTE.shape[-1] ** -0.5
    if context.source_mask is not None:
        scores_BHTS = scores_BHTS + context.source_mask
    attention_BTS = nn.functional.softmax(scores_BHTS, dim=-1).mean(1)
    return -(links_BTS * attention_BTS.clamp_min(_LEAST_ATTENTION).log()).sum()
