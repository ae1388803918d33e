"""PyTorch, the rival that every model has, eager or compiled: beam search with a reordering cache.

Shape letters: B sentences, K beams, R live hypotheses (B * K), T tokens so far, V vocabulary,
N candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bench.systems.pytorch.compiled import compile_source, compiled
from bench.systems.pytorch.eager_models import EagerBatch, start_batch
from serving.search.ids import BOS_ID, EOS_ID
from training.models import TranslationModel

_Finished = list[tuple[tuple[int, ...], float]]
"""Outputs (without eos) of one sentence and their scores."""


class EagerTranslator:
    """Beam search in plain PyTorch: a concatenated cache, reordered by parent at each step.

    It is the code that a careful user would write without this project. The search rules are those
    of `serving.search.beams.beam` and CTranslate2 (length penalty 1, patience 1), written again: no
    code is shared. Sentences that are done leave the batch.
    """

    def __init__(self, model: TranslationModel, *, compile_model: bool = False) -> None:
        """Takes the model in evaluation mode. With `compile_model` the encoder and the step, but
        not the search, are compiled."""
        self._model, self._step = model.eval(), _step
        self._device = next(model.parameters()).device
        if compile_model:
            compile_source(model)
            self._step = compiled(_step)

    @torch.inference_mode()
    def translate(
        self, sources: Sequence[Sequence[int]], beam_size: int, max_length: int
    ) -> list[tuple[tuple[int, ...], float]]:
        """The best output (without eos) and its score for each source of ids that ends with eos.

        At most `max_length` tokens are generated, eos included. The score is the log-probability
        divided by the number of generated tokens, eos included.
        """
        finished: list[_Finished] = [[] for _ in sources]
        running = list(range(len(sources)))
        batch = start_batch(self._model, sources, beam_size)
        device = self._device
        scores_BK = torch.full((len(sources), beam_size), -torch.inf, device=device)
        scores_BK[:, 0] = 0.0
        tokens_BKT = torch.full((len(sources), beam_size, 1), BOS_ID, device=device)
        for step in range(max_length):
            last_step = step == max_length - 1
            logits_RV = self._step(batch, tokens_BKT[:, :, -1].reshape(-1, 1), step)
            scores_BN, parents_BN, tokens_BN = _continuations(logits_RV, scores_BK)
            candidates = zip(
                scores_BN.tolist(), tokens_BN.tolist(), parents_BN.tolist(), strict=True
            )
            chosen = [
                _choose(_Candidates(*lists), tokens_BKT[row], finished[running[row]], last_step)
                for row, lists in enumerate(candidates)
            ]
            left = [
                row
                for row, number in enumerate(running)
                if not last_step and len(finished[number]) < beam_size
            ]
            if not left:
                break
            running = [running[row] for row in left]
            rows = torch.tensor(left, device=device)
            kept_BK = torch.tensor([chosen[row] for row in left], device=device)
            parents_BK = parents_BN[rows].gather(1, kept_BK)
            order_R = (rows[:, None] * beam_size + parents_BK).flatten()
            batch.reorder(order_R)
            scores_BK = scores_BN[rows].gather(1, kept_BK)
            history_BKT = tokens_BKT.flatten(0, 1)[order_R].view(len(rows), beam_size, -1)
            newest_BK = tokens_BN[rows].gather(1, kept_BK)
            tokens_BKT = torch.cat([history_BKT, newest_BK[:, :, None]], 2)
        return [max(each, key=lambda hypothesis: hypothesis[1]) for each in finished]


def _step(batch: EagerBatch, token_ids_R1: Tensor, position: int) -> Tensor:
    """Call a batch's step. It is a function so that its compiled form serves all batches."""
    return batch.step(token_ids_R1, position)


class _Candidates(NamedTuple):
    """The best continuations of one sentence, best first."""

    scores: list[float]
    tokens: list[int]
    parents: list[int]


def _continuations(logits_RV: Tensor, scores_BK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, parents and tokens of the 2K best continuations of each sentence [B,N]."""
    sentences, beam_size = scores_BK.shape
    total_RV = logits_RV.float().log_softmax(-1) + scores_BK.reshape(-1, 1)
    best = total_RV.view(sentences, -1).topk(2 * beam_size)
    vocab_size = logits_RV.shape[1]
    return best.values, best.indices // vocab_size, best.indices % vocab_size


def _choose(
    candidates: _Candidates, history_KT: Tensor, finished: _Finished, last_step: bool
) -> list[int]:
    """Collect the hypotheses that end among the K best candidates; returns the candidates that go
    on."""
    scores, tokens, parents = candidates
    beam_size = len(tokens) // 2
    spare = [n for n in range(beam_size, len(tokens)) if tokens[n] != EOS_ID]
    chosen = []
    for candidate in range(beam_size):
        ended = tokens[candidate] == EOS_ID
        if not (ended or last_step):
            chosen.append(candidate)
            continue
        history = history_KT[parents[candidate], 1:].tolist()
        output = tuple(history) if ended else (*history, tokens[candidate])
        finished.append((output, scores[candidate] / (len(history) + 1)))
        chosen.append(spare.pop(0) if spare else candidate)
    return chosen
