"""The reordering cache of PyTorch eager and the engine's prefix tree find the same outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from bench.errors import BenchError
from bench.systems.pytorch.eager import EagerTranslator
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Finished, Sentence
from serving.search.options import SearchOptions
from tests.unit.bench.random_models import ending_joint_model, ending_model, sources
from training.decoding.stepper import TorchStepper
from training.models import (
    JointConfig,
    ModelConfig,
    TransformerConfig,
    TranslationModel,
    build_model,
)

MAX_LENGTH = 80
MODELS: dict[str, Callable[[], TranslationModel]] = {
    "transformer": lambda: ending_model(),
    "joint fast": lambda: ending_joint_model(encoder_layers=2),
    "joint base": lambda: ending_joint_model(encoder_layers=0),
}


@cache
def model_of(name: str) -> TranslationModel:
    return MODELS[name]()


def decode_by_tree(
    model: TranslationModel, ids: list[list[int]], beam_size: int, max_length: int
) -> list[Finished]:
    options = SearchOptions(beam_size=beam_size, max_length=max_length, loop_guard=False)
    return decode(TorchStepper(model), [Sentence(source, options) for source in ids])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_outputs_and_scores_are_the_same(name: str, beam_size: int) -> None:
    model, ids = model_of(name), sources(30)
    wanted = decode_by_tree(model, ids, beam_size, MAX_LENGTH)
    found = EagerTranslator(model).translate(ids, beam_size, MAX_LENGTH)
    bests = [finished.hypotheses[0] for finished in wanted]
    # Where max_length ended a hypothesis there is no eos, and only this engine counts one.
    pairs = [(best, each) for best, each in zip(bests, found, strict=True) if best.finished]
    assert len(pairs) >= 20
    assert len({len(best.tokens) for best, _ in pairs}) > 5  # sentences leave the batch one by one
    for best, (tokens, score) in pairs:
        assert score == pytest.approx(best.score, abs=1e-4)
        assert tokens == best.tokens


@pytest.mark.parametrize("name", MODELS)
def test_the_search_stops_at_the_longest_length(name: str) -> None:
    model, ids = model_of(name), sources(10)
    wanted = decode_by_tree(model, ids, 3, 4)
    found = EagerTranslator(model).translate(ids, 3, 4)
    assert max(len(tokens) for tokens, _ in found) == 4
    for finished, (_, score) in zip(wanted, found, strict=True):
        best = finished.hypotheses[0]
        assert score == pytest.approx(best.cumulative / len(best.token_scores), abs=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_padding_changes_nothing(name: str) -> None:
    translator, ids = EagerTranslator(model_of(name)), sources(6)
    together = translator.translate(ids, 3, 20)
    for source, (tokens, score) in zip(ids, together, strict=True):
        ((alone, alone_score),) = translator.translate([source], 3, 20)
        assert alone == tokens
        assert alone_score == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("changes", [{"block": "macaron"}, {"decoder_mixing": "light_conv"}])
def test_other_blocks_are_refused(changes: dict[str, str]) -> None:
    model = build_model(TransformerConfig(model_dim=16, num_heads=2, **changes))  # type: ignore[arg-type]
    with pytest.raises(BenchError, match="the baseline Transformer and joint models only"):
        EagerTranslator(model).translate(sources(1), 1, 1)


@pytest.mark.parametrize(
    "config", [TransformerConfig(model_dim=16), JointConfig(model_dim=16)], ids=lambda c: c.family
)
def test_positions_that_attention_tells_are_refused(config: ModelConfig) -> None:
    config = replace(config, positions="rotary")
    with pytest.raises(BenchError, match="positions 'rotary'"):
        EagerTranslator(build_model(config)).translate(sources(1), 1, 1)
