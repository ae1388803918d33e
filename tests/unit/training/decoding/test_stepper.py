"""Decoding step by step through the Stepper protocol equals the model's forward pass."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from serving.search.beams.beam import decode
from serving.search.beams.sentence import Sentence
from serving.search.ids import BOS_ID, EOS_ID
from serving.search.options import SearchOptions
from serving.search.stepper import StepInputs
from tests.unit.training.tiny import tiny_model
from training.decoding.stepper import TorchStepper
from training.models import Transformer

FAMILIES = [(block, norm) for block in ("standard", "macaron") for norm in ("pre", "post")]
SOURCES = [[5, 9, 30, 7, 11, EOS_ID], [8, EOS_ID], [4, 6, 4, EOS_ID]]


def teacher_forced(model: Transformer, source: list[int], target: list[int]) -> Tensor:
    """Log-probabilities [T+1,V] of what follows bos and each target token."""
    with torch.no_grad():
        logits = model(torch.tensor([source]), torch.tensor([[BOS_ID, *target]]))
    return logits[0].log_softmax(-1)


@pytest.mark.parametrize(("block", "norm"), FAMILIES)
def test_one_token_at_a_time_equals_teacher_forcing(block: str, norm: str) -> None:
    model = tiny_model(block, norm)
    targets = np.random.default_rng(0).integers(4, 37, (3, 12))
    stepper = TorchStepper(model)
    state = stepper.encode(SOURCES)
    tokens = np.concatenate([np.full((3, 1), BOS_ID), targets], axis=1)
    for step in range(tokens.shape[1]):
        visible = np.full((3, 1, 16), -np.inf, dtype=np.float32)
        visible[:, :, : step + 1] = 0
        outputs = stepper.step(
            state,
            StepInputs(
                token_ids_BQ=tokens[:, step : step + 1],
                positions_BQ=np.full((3, 1), step),
                write_index_B=np.full(3, step),
                visible_BQC=visible,
                scores_BK=np.zeros((3, 1), dtype=np.float32),
                slot_positions_BC=np.zeros((1, 1), dtype=np.int64),
            ),
            want_logits=True,
        )
        assert outputs.logits_BQV is not None
        for row, source in enumerate(SOURCES):
            expected = teacher_forced(model, source, targets[row].tolist())[step]
            found = torch.from_numpy(outputs.logits_BQV[row, 0]).log_softmax(-1)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
            assert outputs.tokens_BN[row, 0] == int(expected.argmax())
            assert outputs.scores_BN[row, 0] == pytest.approx(float(expected.max()), abs=1e-4)


@pytest.mark.parametrize(("block", "norm"), FAMILIES)
def test_every_beams_scores_equal_teacher_forcing(block: str, norm: str) -> None:
    # 20 steps of 4 beams: the tree branches, dies and is repacked, and rows leave the batch.
    model = tiny_model(block, norm, seed=1)
    options = [
        SearchOptions(beam_size=4, num_hypotheses=4, min_length=low, max_length=high)
        for low, high in ((19, 20), (0, 11), (2, 3))
    ]
    sentences = [Sentence(s, o) for s, o in zip(SOURCES, options, strict=True)]
    for sentence, result in zip(sentences, decode(TorchStepper(model), sentences), strict=True):
        assert len(result.hypotheses) == 4
        for hypothesis in result.hypotheses:
            log_probs = teacher_forced(model, list(sentence.source), list(hypothesis.tokens))
            log_probs[: sentence.options.min_length, EOS_ID] = -torch.inf
            log_probs = log_probs.log_softmax(-1)
            labels = [*hypothesis.tokens, *([EOS_ID] if hypothesis.finished else [])]
            expected = [float(log_probs[t, label]) for t, label in enumerate(labels)]
            np.testing.assert_allclose(hypothesis.token_scores, expected, atol=1e-3)
            assert hypothesis.cumulative == pytest.approx(sum(expected), abs=1e-3)


def test_a_prefix_is_scored_and_continued_as_if_it_had_been_generated() -> None:
    model = tiny_model(seed=2)
    prefixes: list[list[int]] = [[7, 9, 20], [], [5]]
    options = SearchOptions(beam_size=2, max_length=5)
    sentences = [Sentence(s, options, p) for s, p in zip(SOURCES, prefixes, strict=True)]
    results = decode(TorchStepper(model), sentences)
    for source, prefix, result in zip(SOURCES, prefixes, results, strict=True):
        best = result.hypotheses[0]
        assert list(best.tokens[: len(prefix)]) == prefix
        log_probs = teacher_forced(model, source, list(best.tokens))
        labels = [*best.tokens, EOS_ID][: len(best.token_scores)]
        expected = [float(log_probs[t, label]) for t, label in enumerate(labels)]
        np.testing.assert_allclose(best.token_scores, expected, atol=1e-3)


def test_a_batch_gives_what_each_sentence_gives_alone() -> None:
    stepper = TorchStepper(tiny_model(seed=4))
    options = SearchOptions(beam_size=3, num_hypotheses=3, max_length=12)
    together = decode(stepper, [Sentence(source, options) for source in SOURCES])
    for source, result in zip(SOURCES, together, strict=True):
        alone = decode(stepper, [Sentence(source, options)])[0]
        assert [h.tokens for h in alone.hypotheses] == [h.tokens for h in result.hypotheses]
        for one, other in zip(alone.hypotheses, result.hypotheses, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)


def test_attention_of_the_last_layer_is_returned_as_probabilities() -> None:
    stepper = TorchStepper(tiny_model(seed=5))
    state = stepper.encode(SOURCES)
    inputs = StepInputs(
        token_ids_BQ=np.full((3, 2), BOS_ID),
        positions_BQ=np.zeros((3, 2), dtype=np.int64),
        write_index_B=np.zeros(3, dtype=np.int64),
        visible_BQC=np.where(np.eye(2, 8), 0, -np.inf).astype(np.float32)[None].repeat(3, 0),
        scores_BK=np.zeros((3, 2), dtype=np.float32),
        slot_positions_BC=np.zeros((1, 1), dtype=np.int64),
    )
    attention = stepper.step(
        state, inputs, want_logits=False, attention_rows=range(3)
    ).attention_RQS
    assert attention is not None
    np.testing.assert_allclose(attention.sum(-1), 1.0, atol=1e-5)
    for row, source in enumerate(SOURCES):
        assert (attention[row, :, : len(source)] > 0).all()
        assert not attention[row, :, len(source) :].any()
