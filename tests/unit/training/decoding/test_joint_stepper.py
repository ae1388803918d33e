"""Decoding a joint model step by step, with caches and repacks, equals its forward pass."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from serving.search.beams.beam import decode
from serving.search.beams.sentence import Sentence
from serving.search.ids import BOS_ID, EOS_ID
from serving.search.options import SearchOptions
from serving.search.prefix_tree import Repack
from serving.search.stepper import StepInputs
from tests.unit.serving.search.reference_search import plain_search
from tests.unit.training.models import reference_joint as reference
from tests.unit.training.tiny import tiny_joint_model
from training.decoding.stepper import TorchState, TorchStepper
from training.models import JointModel

# Reformer-fast as it is, Reformer-base with the options that change decoding, and positions that
# attention tells.
VARIANTS = {
    "fast": {},
    "base": {"num_encoder_layers": 0, "tie_embeddings": False, "embedding_scale": "sum"},
    "rotary": {"positions": "rotary"},
    "relative": {"positions": "relative", "max_relative_distance": 3, "num_encoder_layers": 0},
}
SOURCES = [[5, 9, 30, 7, 11, EOS_ID], [8, EOS_ID], [4, 6, 4, EOS_ID]]
# Log-probabilities down to about -15, in fp32 both times, with sums in another order.
ATOL = 5e-5
SUM_ATOL = 2e-4
"""Of sums, or of differences of sums, of up to 30 of them."""


@cache
def model_of(variant: str) -> JointModel:
    options: dict[str, Any] = VARIANTS[variant]
    return tiny_joint_model(seed=1, **options)


def teacher_forced(model: JointModel, source: list[int], target: list[int]) -> Tensor:
    """Log-probabilities [T+1,V] of what follows bos and each target token."""
    with torch.no_grad():
        logits = model(torch.tensor([source]), torch.tensor([[BOS_ID, *target]]))
    log_probs: Tensor = logits[0].log_softmax(-1)
    return log_probs


class NoCache:
    """Runs the whole model on every hypothesis, every step; attention from a hook."""

    def __init__(self, model: JointModel, source: list[int]) -> None:
        self._model, self._source = model, torch.tensor([source])
        self._histories: list[list[int]] = [[]]
        self._attention = torch.empty(0)

    @torch.no_grad()
    def logits(self, parents: list[int], tokens: list[int]) -> NDArray[np.float32]:
        pairs = zip(parents, tokens, strict=True)
        self._histories = [[*self._histories[parent], token] for parent, token in pairs]
        hook = self._model.reduction.register_forward_hook(self._keep)
        target = torch.tensor(self._histories)
        logits = self._model(self._source.expand(len(target), -1), target)
        hook.remove()
        last: NDArray[np.float32] = logits[:, -1].numpy()
        return last

    def attention(self) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = self._attention.numpy()
        return rows

    def _keep(self, _module: object, _inputs: object, output: tuple[Tensor, Tensor]) -> None:
        self._attention = output[1][:, -1].mean(-1)


def one_beam_step(stepper: TorchStepper, state: TorchState, tokens: list[int], at: int) -> Tensor:
    """Log-probabilities [B,V] after one more token a row, which sees all before it."""
    rows, capacity = len(tokens), 16
    visible = np.full((rows, 1, capacity), -np.inf, dtype=np.float32)
    visible[:, :, : at + 1] = 0
    inputs = StepInputs(
        token_ids_BQ=np.array(tokens)[:, None],
        positions_BQ=np.full((rows, 1), at),
        write_index_B=np.full(rows, at),
        visible_BQC=visible,
        scores_BK=np.zeros((rows, 1), dtype=np.float32),
        slot_positions_BC=np.tile(np.arange(capacity), (rows, 1)),
    )
    outputs = stepper.step(state, inputs, want_logits=True)
    assert outputs.logits_BQV is not None
    log_probs = torch.from_numpy(outputs.logits_BQV[:, 0]).log_softmax(-1)
    assert outputs.tokens_BN[:, 0].tolist() == log_probs.argmax(-1).tolist()
    return log_probs


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_token_at_a_time_equals_teacher_forcing(variant: str) -> None:
    model = model_of(variant)
    stepper = TorchStepper(model)
    targets = np.random.default_rng(0).integers(4, 37, (3, 12)).tolist()
    state = stepper.encode(SOURCES)
    expected = [teacher_forced(model, s, t) for s, t in zip(SOURCES, targets, strict=True)]
    for step in range(13):
        tokens = [[BOS_ID, *target][step] for target in targets]
        found = one_beam_step(stepper, state, tokens, step)
        for row in range(3):
            torch.testing.assert_close(found[row], expected[row][step], rtol=0, atol=ATOL)


@pytest.mark.parametrize("variant", VARIANTS)
def test_given_tokens_are_scored_and_continued(variant: str) -> None:
    model = model_of(variant)
    stepper = TorchStepper(model)
    targets = np.random.default_rng(1).integers(4, 37, (3, 6)).tolist()
    state = stepper.encode(SOURCES)
    tokens = np.array([[BOS_ID, *target[:-1]] for target in targets])
    scores = stepper.prefill(state, tokens, np.array(targets)).scores_BP
    after = one_beam_step(stepper, state, [target[-1] for target in targets], 6)
    for row, (source, target) in enumerate(zip(SOURCES, targets, strict=True)):
        expected = teacher_forced(model, source, target)
        wanted = expected[:-1].gather(1, torch.tensor(target)[:, None])[:, 0]
        np.testing.assert_allclose(scores[row], wanted, rtol=0, atol=ATOL)
        torch.testing.assert_close(after[row], expected[6], rtol=0, atol=ATOL)


@pytest.mark.parametrize("variant", ["fast", "rotary", "relative"])
def test_repacking_keeps_rows_and_slots_of_every_source_position(variant: str) -> None:
    # Rows 0 and 2 stay, each with its six cache rows, and of their trees one path each.
    model = model_of(variant)
    stepper = TorchStepper(model)
    state = stepper.encode(SOURCES)
    tokens = np.array([[BOS_ID, 9, t, 9, t + 1, 9] for t in (20, 22, 24)])
    paths = [[0], [0, 1], [0, 2], [0, 2, 3], [0, 2, 4], [0, 2, 4, 5]]
    depths = np.array([[0, 1, 1, 2, 2, 3, 0, 0]] * 3)
    for slot, path in enumerate(paths):
        visible = np.full((3, 1, 8), -np.inf, dtype=np.float32)
        visible[:, :, path] = 0
        inputs = StepInputs(
            token_ids_BQ=tokens[:, slot : slot + 1],
            positions_BQ=np.full((3, 1), len(path) - 1),
            write_index_B=np.full(3, slot),
            visible_BQC=visible,
            scores_BK=np.zeros((3, 1), dtype=np.float32),
            slot_positions_BC=depths,
        )
        stepper.step(state, inputs, want_logits=False)
    slots = np.zeros((2, 8), dtype=np.int64)
    slots[:, :3] = paths[4], paths[3]
    stepper.repack(state, Repack(np.array([0, 2]), slots, np.array([3, 3]), in_place=False))
    assert [cache.shape for cache in state.caches] == [(2 * 6, 8, 16)] * 4
    found = one_beam_step(stepper, state, [7, 8], 3)
    for place, (row, target) in enumerate(((0, [20, 21, 7]), (2, [24, 9, 8]))):
        expected = teacher_forced(model, SOURCES[row], target)[-1]
        torch.testing.assert_close(found[place], expected, rtol=0, atol=ATOL)


def random_sentences(seed: int, count: int, **values: Any) -> list[Sentence]:
    rng = np.random.default_rng(seed)
    return [
        Sentence(
            [*rng.integers(4, 37, rng.integers(1, 9)).tolist(), EOS_ID],
            SearchOptions(
                **{
                    "beam_size": 4,
                    "num_hypotheses": 3,
                    "max_length": int(rng.integers(6, 22)),
                    **values,
                }
            ),
            rng.integers(4, 37, int(rng.choice([0, 0, 1, 4, 10]))).tolist(),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"beam_size": 1, "num_hypotheses": 1},
        {"coverage_penalty": 0.3},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_length": 6},
        {"length_penalty": 0.0},
    ],
    ids=lambda values: next(iter(values), "plain"),
)
def test_beam_search_equals_one_without_cache(variant: str, values: dict[str, Any]) -> None:
    # Rows of one batch end at different steps, prefixes differ in length, trees are repacked.
    model = model_of(variant)
    sentences = random_sentences(7, count=4, **values)
    for sentence, result in zip(sentences, decode(TorchStepper(model), sentences), strict=True):
        source, prefix = list(sentence.source), sentence.target_prefix
        wanted = plain_search(NoCache(model, source), sentence.options, len(source), prefix)
        assert [h.tokens for h in result.hypotheses] == [w.tokens for w in wanted]
        for hypothesis, twin in zip(result.hypotheses, wanted, strict=True):
            assert hypothesis.tokens[: len(prefix)] == tuple(prefix)
            assert hypothesis.finished == twin.finished
            assert hypothesis.score == pytest.approx(twin.score, abs=SUM_ATOL)
            assert hypothesis.token_scores == pytest.approx(twin.token_scores, abs=SUM_ATOL)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_batch_gives_what_each_sentence_gives_alone(variant: str) -> None:
    stepper = TorchStepper(model_of(variant))
    sentences = random_sentences(5, count=7, coverage_penalty=0.2)
    for sentence, result in zip(sentences, decode(stepper, sentences), strict=True):
        (alone,) = decode(stepper, [sentence])
        assert [h.tokens for h in alone.hypotheses] == [h.tokens for h in result.hypotheses]
        for one, other in zip(alone.hypotheses, result.hypotheses, strict=True):
            assert one.score == pytest.approx(other.score, abs=SUM_ATOL)
            assert one.token_scores == pytest.approx(other.token_scores, abs=SUM_ATOL)


def test_alignment_is_the_mean_of_reductions_weights_over_the_features() -> None:
    model = model_of("fast")
    stepper = TorchStepper(model)
    state = stepper.encode(SOURCES)
    targets = [[BOS_ID, 20, 21], [BOS_ID, 22, 23], [BOS_ID, 24, 25]]
    tokens = np.array(targets)
    stepper.prefill(state, tokens[:, :2], tokens[:, 1:])
    # Two beams: the target's last token, and another in its place.
    visible = np.full((3, 2, 8), -np.inf, dtype=np.float32)
    visible[:, :, :2] = 0
    visible[:, [0, 1], [2, 3]] = 0
    inputs = StepInputs(
        token_ids_BQ=np.stack([tokens[:, 2], np.full(3, 9)], axis=1),
        positions_BQ=np.full((3, 2), 2),
        write_index_B=np.full(3, 2),
        visible_BQC=visible,
        scores_BK=np.zeros((3, 2), dtype=np.float32),
        slot_positions_BC=np.zeros((1, 1), dtype=np.int64),
    )
    outputs = stepper.step(state, inputs, want_logits=False, attention_rows=range(3))
    attention_BKS = outputs.attention_RQS
    assert attention_BKS is not None
    assert attention_BKS.dtype == np.float32
    np.testing.assert_allclose(attention_BKS.sum(-1), 1.0, atol=1e-5)
    for row, (source, target) in enumerate(zip(SOURCES, targets, strict=True)):
        assert not attention_BKS[row, :, len(source) :].any()
        for beam, last in enumerate((target[2], 9)):
            _, shares_TSD = reference.decode(source, [*target[:2], last], model)
            found = attention_BKS[row, beam, : len(source)]
            np.testing.assert_allclose(found, shares_TSD[-1].mean(-1), rtol=0, atol=1e-5)


def test_caches_have_a_row_for_each_source_position() -> None:
    model = model_of("fast")
    state = TorchStepper(model).encode(SOURCES)
    assert (model.cache_axes, model.num_sources) == (("BS", "C", 16), 1)
    assert [cache.shape for cache in state.caches] == [(3 * 6, 0, 16)] * 4  # 2 layers
    assert [source.shape for source in state.sources] == [(3, 6, 16)]
