"""The modules of decoding: they run eagerly in validation, and are exported for serving.

Shape letters: B sentences, S source positions, K beams, Q queries, C cache slots, D model, V
vocabulary, G groups, N candidates, L pieces of the longest shortlist.

Each tensor is a separate parameter: torch.export names the sizes of a graph after the places of its
inputs, and graphs must stay the same to the bit.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.models.base import NewTokens, StepContext, TranslationModel
from training.models.networks.language_model import CausalLanguageModel, PlacedTokens
from training.models.operators import (
    add_scores,
    gather_rows,
    integer_divide,
    listed_logits,
    reshape,
)


class EncoderGraph(nn.Module):
    """Source ids to the source tensors of the step graph."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, source_ids_BS: Tensor, source_mask_BS: Tensor) -> list[Tensor]:
        """Ids and additive mask (0 or -inf) to tensors [B,S,D]."""
        return self.model.encode_source(source_ids_BS, source_mask_BS)


class StepGraph(nn.Module):
    """One decoding step of a translation model. Its outputs are the N = 2K best continuations,
    log-probabilities of labels, and new caches.

    The queries are all beams, or only the first beam while all others are dead.
    """

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        token_ids_BQ: Tensor,
        positions_BQ: Tensor,
        write_index_B: Tensor,
        visible_B1QC: Tensor,
        scores_BK: Tensor,
        label_ids_BQ: Tensor,
        source_mask_BS: Tensor,
        caches: list[Tensor],
        sources: list[Tensor],
        asked: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, list[Tensor]]:
        """Returns scores, tokens and parents [B,N], label log-probabilities [B,Q], logits [B,Q,V],
        the alignment (see `TranslationModel.alignment_role`) and the caches."""
        tokens = NewTokens(token_ids_BQ, positions_BQ, write_index_B, visible_B1QC)
        memory = _memory(source_mask_BS, caches, sources, asked)
        step = self.model.decode_step(tokens, memory)
        logits_BQV = self.model.output_logits(step.x_BQD)
        log_probs_BQV = logits_BQV.log_softmax(-1)
        labels_BQ = log_probs_BQV.gather(2, label_ids_BQ.unsqueeze(-1)).squeeze(-1)
        best = best_candidates(log_probs_BQV, scores_BK)
        return (*best, labels_BQ, logits_BQV, step.alignment, step.caches)


class ShortlistStepGraph(nn.Module):
    """A decoding step whose output layer covers a few pieces of the vocabulary for each
    sentence."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        token_ids_BQ: Tensor,
        positions_BQ: Tensor,
        write_index_B: Tensor,
        visible_B1QC: Tensor,
        scores_BK: Tensor,
        columns_BL: Tensor,
        source_mask_BS: Tensor,
        caches: list[Tensor],
        sources: list[Tensor],
        asked: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, list[Tensor]]:
        """Returns scores, tokens and parents [B,N] of the N = 2K best continuations, the alignment
        and the caches. `columns` are the pieces of each sentence, with -1 after the last."""
        tokens = NewTokens(token_ids_BQ, positions_BQ, write_index_B, visible_B1QC)
        memory = _memory(source_mask_BS, caches, sources, asked)
        step = self.model.decode_step(tokens, memory)
        weight_VD, bias_V = self.model.output_weight, self.model.output_bias
        logits_BQL = listed_logits(step.x_BQD, weight_VD, columns_BL, bias_V)
        hidden_B1L = (columns_BL < 0).unsqueeze(1)
        log_probs_BQL = logits_BQL.masked_fill(hidden_B1L, float("-inf")).log_softmax(-1)
        scores_BKL = add_scores(log_probs_BQL, scores_BK)
        best = scores_BKL.flatten(1).topk(2 * scores_BK.shape[1])
        tokens_BKL = columns_BL.unsqueeze(1).expand_as(scores_BKL)
        tokens_BN = tokens_BKL.flatten(1).gather(1, best.indices).to(torch.int32)
        beams_K = torch.arange(scores_BK.shape[1], device=scores_BK.device)
        parents_BKL = beams_K[:, None].expand_as(scores_BKL)
        parents_BN = parents_BKL.flatten(1).gather(1, best.indices).to(torch.int32)
        return best.values, tokens_BN, parents_BN, step.alignment, step.caches


def _memory(
    source_mask_BS: Tensor,
    caches: list[Tensor],
    sources: list[Tensor],
    asked: dict[str, Tensor] | None,
) -> StepContext:
    """A step's input from earlier steps. `asked` holds the inputs that `step_needs` asks for, by
    name."""
    asked = asked or {}
    ancestors_BQW, slot_positions_BC = asked.get("ancestors"), asked.get("slot_positions")
    return StepContext(source_mask_BS, caches, sources, ancestors_BQW, slot_positions_BC)


def best_candidates(log_probs_BQV: Tensor, scores_BK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The 2K best continuations (score fp32, token int32, parent int32), each [B,2K].

    The result is exact, in two stages: the candidates are in the 2K groups of tokens with the
    highest maxima. If one query stands for all beams, only the first beam may have a score above
    -inf.
    """
    scores_BKV = add_scores(log_probs_BQV, scores_BK)
    rows, beams, vocab_size = scores_BKV.shape
    width = group_width(vocab_size)
    if vocab_size % width:
        missing = width - vocab_size % width
        scores_BKV = nn.functional.pad(scores_BKV, (0, missing), value=float("-inf"))
        vocab_size += missing
    groups = vocab_size // width  # a beam
    count = 2 * beams
    grouped_BGW = reshape(scores_BKV, (rows, beams * groups, width), (0, -1, width))
    group_BN = grouped_BGW.amax(-1).topk(count).indices
    scores_BNW = gather_rows(grouped_BGW, group_BN)
    best = reshape(scores_BNW, (rows, count * width), (0, -1)).topk(count)
    group_BN = group_BN.gather(1, integer_divide(best.indices, width))
    place_BN = group_BN * width + best.indices % width  # in the rows of all beams
    token_BN, parent_BN = place_BN % vocab_size, integer_divide(place_BN, vocab_size)
    return best.values, token_BN.to(torch.int32), parent_BN.to(torch.int32)


def group_width(vocab_size: int) -> int:
    """Tokens per group: up to 64, a divisor of the vocabulary if possible, and at least two
    groups."""
    fitting = [width for width in (64, 32, 16, 8) if 2 * width <= vocab_size]
    dividing = [width for width in fitting if vocab_size % width == 0]
    return (dividing or fitting[-1:] or [1])[0]


class LanguageStepGraph(nn.Module):
    """One decoding step of a language model. Its outputs are new caches, and the output layer at
    some of the queries.

    Further letters: R queries whose outputs are wanted, T most likely tokens.
    """

    def __init__(self, model: CausalLanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        token_ids_BQ: Tensor,
        positions_BQ: Tensor,
        slot_positions_BC: Tensor,
        write_index_B: Tensor,
        visible_B1QC: Tensor,
        output_index_BR: Tensor,
        top_ranks_T: Tensor,
        label_ids_BR: Tensor,
        caches: list[Tensor],
        asked: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, list[Tensor]]:
        """Returns the log-probabilities and ids (int32) [B,R,T] of the most likely tokens of each
        output row, best first, the log-probabilities of labels [B,R], the logits [B,R,V] and the
        caches. Only the length of `top_ranks` (0 to T - 1) matters."""
        tokens = PlacedTokens(
            token_ids_BQ, positions_BQ, slot_positions_BC, write_index_B, visible_B1QC
        )
        step = self.model.decode_step(tokens, caches, (asked or {}).get("ancestors"))
        width = step.x_BQD.shape[2]
        x_BRD = step.x_BQD.gather(1, output_index_BR.unsqueeze(-1).expand(-1, -1, width))
        logits_BRV = self.model.output_logits(x_BRD)
        log_probs_BRV = logits_BRV.log_softmax(-1)
        labels_BR = log_probs_BRV.gather(2, label_ids_BR.unsqueeze(-1)).squeeze(-1)
        top = log_probs_BRV.topk(top_ranks_T.shape[0])
        tokens_BRT = top.indices.to(torch.int32)
        return top.values, tokens_BRT, labels_BR, logits_BRV, step.caches
