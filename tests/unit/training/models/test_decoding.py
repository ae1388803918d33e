"""The graphs of decoding: candidates are exact, and lists bound what may be chosen."""

from __future__ import annotations

import pytest
import torch

from serving.search.ids import BOS_ID, EOS_ID
from tests.unit.training.tiny import tiny_model
from training.models.decoding import (
    EncoderGraph,
    ShortlistStepGraph,
    StepGraph,
    best_candidates,
    group_width,
)


@pytest.mark.parametrize("vocab_size", [8, 37, 64, 100, 192, 1000])
def test_the_best_candidates_are_exact(vocab_size: int) -> None:
    generator = torch.Generator().manual_seed(vocab_size)
    log_probs = torch.randn(3, 4, vocab_size, generator=generator).log_softmax(-1)
    scores = torch.randn(3, 4, generator=generator)
    scores[1, 2:] = -torch.inf  # dead beams
    values, tokens, parents = best_candidates(log_probs, scores)
    total = (log_probs + scores[:, :, None]).flatten(1)
    expected = total.topk(8)
    assert torch.equal(values, expected.values)
    assert torch.equal(parents.long() * vocab_size + tokens, expected.indices)


@pytest.mark.parametrize("vocab_size", [8, 37, 1000])
def test_one_query_stands_for_beams_of_which_all_others_are_dead(vocab_size: int) -> None:
    generator = torch.Generator().manual_seed(vocab_size)
    log_probs = torch.randn(3, 1, vocab_size, generator=generator).log_softmax(-1)
    scores = torch.full((3, 4), -torch.inf)
    scores[:, 0] = torch.randn(3, generator=generator)
    alone = best_candidates(log_probs, scores)
    assert not alone[2].any()
    among_equals = best_candidates(log_probs.expand(-1, 4, -1), scores)
    assert all(map(torch.equal, alone, among_equals))


def test_group_width_never_leaves_a_single_group() -> None:
    for vocab_size in range(16, 3000):
        width = group_width(vocab_size)
        assert -(-vocab_size // width) >= 2, vocab_size


def test_a_step_with_lists_chooses_from_each_sentences_own_pieces_alone() -> None:
    model = tiny_model()
    lists = [[EOS_ID, 5, 9, 20, 31], list(range(3, 37)), [4, 8, 12, 36]]
    columns = torch.full((3, 40), -1)
    for row, pieces in enumerate(lists):
        columns[row, : len(pieces)] = torch.tensor(pieces)
    source = torch.tensor([[5, 9, 30, EOS_ID], [8, 7, 6, EOS_ID], [4, 6, 4, EOS_ID]])
    mask = torch.zeros(source.shape)
    scores = torch.tensor([[-1.0, -2.5], [-0.5, -0.5], [-3.0, -torch.inf]])
    step = (
        torch.tensor([[BOS_ID, 7]] * 3),
        torch.zeros((3, 2), dtype=torch.int64),
        torch.zeros(3, dtype=torch.int64),
        torch.where(torch.eye(2, 8).bool(), 0.0, -torch.inf).expand(3, 1, 2, 8),
        scores,
    )
    with torch.no_grad():
        sources = EncoderGraph(model)(source, mask)
        caches = [torch.zeros(cache.shape({"B": 3, "C": 8})) for cache in model.caches]
        found = ShortlistStepGraph(model)(*step, columns, mask, caches, sources)
        labels = torch.zeros((3, 2), dtype=torch.int64)
        whole = StepGraph(model)(*step, labels, mask, caches, sources)
    logits = whole[4].view(3, 2, -1)
    for row, pieces in enumerate(lists):
        wanted = {}
        for beam in range(2):
            chances = logits[row, beam, pieces].log_softmax(-1) + scores[row, beam]
            wanted |= {(beam, piece): float(x) for piece, x in zip(pieces, chances, strict=True)}
        best = sorted(wanted.values(), reverse=True)[:4]
        assert found[0][row].tolist() == pytest.approx(best, abs=1e-5)
        chosen = zip(found[2][row].tolist(), found[1][row].tolist(), strict=True)
        assert [wanted[pair] for pair in chosen] == pytest.approx(best, abs=1e-5)
