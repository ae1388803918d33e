"""The prefix-tree cache on real models against a reordered cache and against no cache at all."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from serving.arrays import Floats
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Sentence
from serving.search.ids import BOS_ID, EOS_ID
from serving.search.options import SearchOptions
from tests.unit.serving.search.reference_search import NextScores, Result, plain_search
from training.decoding.stepper import TorchStepper
from training.models import Transformer, TransformerConfig, build_model
from training.models.context import AttentionContext, KeyValue

TOLERANCE = 2e-4
VOCABULARY = 60


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other cost more than such small products."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@cache
def random_model(block: str, norm: str, seed: int) -> Transformer:
    """A model whose outputs vary: its weights are drawn wider than for training."""
    torch.manual_seed(seed)
    config = TransformerConfig(
        block=block,
        norm=norm,
        model_dim=16,
        num_heads=2,
        ffn_dim=32,
        num_encoder_layers=2,
        num_decoder_layers=2,
        vocab_size=VOCABULARY,
    )
    model = build_model(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model


class NoCache:
    """Runs the whole model on every hypothesis, every step."""

    def __init__(self, model: Transformer, source: list[int]) -> None:
        self._model, self._source = model, torch.tensor([source])
        self._histories: list[list[int]] = [[]]

    @torch.no_grad()
    def logits(self, parents: list[int], tokens: list[int]) -> Floats:
        pairs = zip(parents, tokens, strict=True)
        self._histories = [[*self._histories[parent], token] for parent, token in pairs]
        target = torch.tensor(self._histories)
        source = self._source.expand(len(target), -1)
        return self._model(source, target)[:, -1].numpy()


class ReorderedCache:
    """One row a beam; caches are gathered by parent, as everybody does it."""

    def __init__(self, model: Transformer, source: list[int]) -> None:
        self._model = model
        with torch.no_grad():
            self._sources = model.project_source(model.encode(torch.tensor([source]), None))
        self._aligning = -2 if len(self._sources) > 1 else -1
        self._length = 0
        self._caches: list[tuple[Tensor, Tensor]] = []
        self._query: Tensor | None = None

    @torch.no_grad()
    def logits(self, parents: list[int], tokens: list[int]) -> Floats:
        rows, room = len(tokens), self._length + 1
        empty = torch.zeros(rows, 1, self._model.config.model_dim)
        contexts = []
        for layer, source in enumerate(self._sources):
            old = [c[parents] for c in self._caches[layer]] if self._caches else [empty[:, :0]] * 2
            contexts.append(
                AttentionContext(
                    source=KeyValue(
                        source.keys.expand(rows, -1, -1), source.values.expand(rows, -1, -1)
                    ),
                    source_mask=None,
                    visible=torch.zeros(rows, 1, 1, room),
                    key_values=[KeyValue(*(torch.cat([c, empty], dim=1) for c in old))],
                    write_index=torch.full((rows,), self._length),
                )
            )
        positions = torch.full((rows, 1), self._length)
        states = self._model.decode(torch.tensor(tokens)[:, None], positions, contexts)
        pairs = [context.appended_key_values[0] for context in contexts]
        self._caches = [(pair.keys, pair.values) for pair in pairs]
        self._query, self._length = contexts[self._aligning].source_query, room
        return self._model.output_logits(states)[:, 0].numpy()

    def attention(self) -> Floats:
        assert self._query is not None
        heads, keys = self._model.config.num_heads, self._sources[self._aligning].keys
        query = self._query.unflatten(-1, (heads, -1)).transpose(1, 2)
        key = keys.unflatten(-1, (heads, -1)).transpose(1, 2)
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        return scores.softmax(-1).mean(1)[:, 0].numpy()


def assert_close(sentence: Sentence, reference: NextScores, found: tuple[Result, ...]) -> None:
    wanted = plain_search(reference, sentence.options, len(sentence.source), sentence.target_prefix)
    assert [h.tokens for h in found] == [w.tokens for w in wanted]
    for hypothesis, twin in zip(found, wanted, strict=True):
        assert hypothesis.finished == twin.finished
        assert hypothesis.score == pytest.approx(twin.score, abs=TOLERANCE)
        assert hypothesis.token_scores == pytest.approx(twin.token_scores, abs=TOLERANCE)


def random_sentences(seed: int, count: int, **values: object) -> list[Sentence]:
    rng = np.random.default_rng(seed)
    return [
        Sentence(
            [*rng.integers(4, VOCABULARY, rng.integers(1, 14)).tolist(), EOS_ID],
            SearchOptions(
                **{
                    "beam_size": 4,
                    "num_hypotheses": 3,
                    "max_length": int(rng.integers(9, 30)),
                    **values,
                }
            ),
            rng.integers(4, VOCABULARY, int(rng.choice([0, 0, 1, 4, 10]))).tolist(),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("block", ["standard", "macaron"])
@pytest.mark.parametrize("seed", range(2))
def test_tree_cache_equals_no_cache_and_reordered_cache(block: str, norm: str, seed: int) -> None:
    model = random_model(block, norm, seed)
    sentences = random_sentences(seed, count=4)
    for sentence, finished in zip(sentences, decode(TorchStepper(model), sentences), strict=True):
        source = list(sentence.source)
        assert_close(sentence, NoCache(model, source), finished.hypotheses)
        assert_close(sentence, ReorderedCache(model, source), finished.hypotheses)


@pytest.mark.parametrize(
    "values",
    [
        {"beam_size": 1, "num_hypotheses": 1},
        {"coverage_penalty": 0.3},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_length": 6},
        {"length_penalty": 0.0},
    ],
    ids=lambda values: next(iter(values)),
)
def test_options_on_a_real_model(values: dict[str, object]) -> None:
    model = random_model("macaron", "pre", seed=7)
    sentences = random_sentences(7, count=3, **values)
    for sentence, finished in zip(sentences, decode(TorchStepper(model), sentences), strict=True):
        assert_close(sentence, ReorderedCache(model, list(sentence.source)), finished.hypotheses)


@pytest.mark.parametrize("block", ["standard", "macaron"])
def test_a_sentence_comes_out_the_same_in_any_batch(block: str) -> None:
    stepper = TorchStepper(random_model(block, "post", seed=5))
    sentences = random_sentences(5, count=9)
    order = np.random.default_rng(5).permutation(len(sentences))
    together = decode(stepper, [sentences[i] for i in order])
    for place, i in enumerate(order):
        (alone,) = decode(stepper, [sentences[i]])
        for one, other in zip(alone.hypotheses, together[place].hypotheses, strict=True):
            assert one.tokens == other.tokens
            assert one.token_scores == pytest.approx(other.token_scores, abs=TOLERANCE)


def test_scores_of_a_forced_prefix_are_those_of_the_whole_model() -> None:
    model = random_model("standard", "pre", seed=9)
    source, prefix = [7, 8, 9, EOS_ID], [20, 21, 22, 23, 24]
    options = SearchOptions(beam_size=1, max_length=1)
    (finished,) = decode(TorchStepper(model), [Sentence(source, options, prefix)])
    with torch.no_grad():
        logits = model(torch.tensor([source]), torch.tensor([[BOS_ID, *prefix[:-1]]]))
    wanted = logits.log_softmax(-1)[0, torch.arange(5), torch.tensor(prefix)].tolist()
    assert finished.hypotheses[0].token_scores[:5] == pytest.approx(wanted, abs=TOLERANCE)
