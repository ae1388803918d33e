"""CTranslate2 holds the same weights and follows the same rules; this proves our own search too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch

from bench.errors import BenchError
from bench.subjects.ctranslate2 import convert_macaron_to_ctranslate2, convert_to_ctranslate2
from bench.subjects.job import id_token
from export.graphs.writing import write_graphs
from serving.bundle.shortlist import Shortlist
from serving.runtime.shortlist_stepper import ShortlistStepper
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Finished, Sentence
from serving.search.ids import BOS_ID, EOS_ID, UNK_ID
from serving.search.options import SearchOptions
from tests.unit.bench.random_models import VOCAB_SIZE, ending_model, sources
from training.models import Transformer, TransformerConfig, build_model

pytestmark = pytest.mark.usefixtures("traced_once")

MAX_LENGTH = 120
OPTIONS = SearchOptions(beam_size=4, max_length=MAX_LENGTH, loop_guard=False)
TIE = 1e-3


@dataclass(frozen=True)
class Sides:
    """The same weights in this engine and in CTranslate2."""

    model: Transformer
    engine: OnnxStepper
    peer: Any


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Sides:
    folder = tmp_path_factory.mktemp("sides")
    model = ending_model()
    manifest = write_graphs(model, folder, name="random", precision="fp32")
    return Sides(model, OnnxStepper(folder, manifest, 1), load_peer(model, folder / "peer"))


def load_peer(model: Transformer, folder: Path) -> Any:
    vocabulary = [id_token(i) for i in range(VOCAB_SIZE)]
    is_macaron = model.config.block == "macaron"
    convert = convert_macaron_to_ctranslate2 if is_macaron else convert_to_ctranslate2
    convert(model, vocabulary, folder, "float32")
    return ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)


def tokens_of(ids: list[int]) -> list[str]:
    return [id_token(i) for i in ids]


def run_engine(engine: OnnxStepper, ids: list[list[int]], options: SearchOptions) -> list[Finished]:
    return decode(engine, [Sentence(source, options) for source in ids])


def run_peer(peer: Any, ids: list[list[int]], options: SearchOptions) -> list[Any]:
    results: list[Any] = peer.translate_batch(
        [tokens_of(source) for source in ids],
        beam_size=options.beam_size,
        num_hypotheses=options.num_hypotheses,
        length_penalty=options.length_penalty,
        patience=options.patience,
        repetition_penalty=options.repetition_penalty,
        no_repeat_ngram_size=options.no_repeat_ngram_size,
        max_decoding_length=MAX_LENGTH,
        min_decoding_length=options.min_length,
        return_scores=True,
    )
    return results


@pytest.mark.slow
def test_a_shortlist_is_what_its_vocabulary_map_is(tmp_path: Path) -> None:
    """One sentence at a time: a batch of CTranslate2's chooses from the lists of all, and always
    from the special pieces but padding as well."""
    model, generator = ending_model(), np.random.default_rng(1)
    targets = generator.integers(4, VOCAB_SIZE, 6 * VOCAB_SIZE)
    shortlist = Shortlist(
        np.array([UNK_ID, BOS_ID, EOS_ID, 9, 30]),
        np.arange(VOCAB_SIZE + 1) * 6,
        targets.astype(np.int64),
    )
    ids = sources(30)
    lists = [shortlist.of(source) for source in ids]
    assert max(map(len, lists)) < 0.9 * VOCAB_SIZE
    (tmp_path / "ours").mkdir()
    manifest = write_graphs(
        model, tmp_path / "ours", name="random", precision="fp32", shortlist=shortlist
    )
    engine = ShortlistStepper(tmp_path / "ours", manifest, 1)
    vocabulary = [id_token(i) for i in range(VOCAB_SIZE)]
    folder = tmp_path / "peer"
    convert_to_ctranslate2(model, vocabulary, folder, "float32", shortlist=shortlist)
    peer = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    options = replace(OPTIONS, shortlist=True)
    for source in ids:
        best = run_engine(engine, [source], options)[0].hypotheses[0]
        theirs = peer.translate_batch(
            [tokens_of(source)],
            beam_size=options.beam_size,
            max_decoding_length=MAX_LENGTH,
            min_decoding_length=0,
            return_scores=True,
            use_vmap=True,
        )[0]
        assert tokens_of(list(best.tokens)) == theirs.hypotheses[0]
        assert best.score == pytest.approx(theirs.scores[0], abs=1e-4)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_ctranslate2_gives_the_log_probabilities_of_the_model(norm: str, tmp_path: Path) -> None:
    assert_scores_as_the_model(ending_model(norm), tmp_path / "peer")


def assert_scores_as_the_model(model: Transformer, folder: Path) -> None:
    peer = load_peer(model, folder)
    ids, targets = sources(20), [source[:-1] for source in sources(20, seed=2)]
    found = peer.score_batch([tokens_of(s) for s in ids], [tokens_of(t) for t in targets])
    for source, target, score in zip(ids, targets, found, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([source]), torch.tensor([[BOS_ID, *target]]))[0]
        labels = torch.tensor([*target, EOS_ID])
        wanted = logits.log_softmax(-1).gather(1, labels[:, None])[:, 0].numpy()
        np.testing.assert_allclose(score.log_probs, wanted, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"norm_type": "rms", "norm_eps": 0.05},
        {"norm_type": "rms", "norm": "post", "fix_norm": True},
        {"norm_eps": 0.05, "activation": "gelu"},
        {"activation": "gelu_tanh"},
        {"activation": "silu"},
        {"positions": "relative", "max_relative_distance": 3},
        *({"activation": name} for name in ("reglu", "geglu", "swiglu")),
        {"block": "macaron"},
        {"block": "macaron", "activation": "swiglu", "norm_eps": 0.05},
    ],
)
def test_ctranslate2_computes_the_options_that_it_has(
    options: dict[str, Any], tmp_path: Path
) -> None:
    torch.manual_seed(4)
    model = build_model(replace(ending_model().config, **options))
    assert isinstance(model, Transformer)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    assert_scores_as_the_model(model.eval(), tmp_path / "peer")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(OPTIONS, id="beam 4"),
        pytest.param(replace(OPTIONS, beam_size=1), id="greedy"),
        pytest.param(replace(OPTIONS, beam_size=8, num_hypotheses=8), id="beam 8, 8-best"),
        pytest.param(replace(OPTIONS, length_penalty=0.0), id="no length penalty"),
        pytest.param(replace(OPTIONS, length_penalty=0.6), id="length penalty 0.6"),
        pytest.param(replace(OPTIONS, length_penalty=2.0), id="length penalty 2"),
        pytest.param(replace(OPTIONS, patience=2.0, num_hypotheses=5), id="patience 2"),
        pytest.param(replace(OPTIONS, patience=0.5), id="patience 0.5"),
        pytest.param(replace(OPTIONS, min_length=6), id="min length"),
        pytest.param(replace(OPTIONS, repetition_penalty=1.3), id="repetition penalty"),
        pytest.param(replace(OPTIONS, no_repeat_ngram_size=2), id="no repeated bigrams"),
    ],
)
def test_the_engine_writes_what_ctranslate2_writes(sides: Sides, options: SearchOptions) -> None:
    ids = sources(100)
    ours = run_engine(sides.engine, ids, options)
    theirs = run_peer(sides.peer, ids, options)
    # Where max_length ended a hypothesis there is no eos, and only this engine counts one.
    pairs = [
        (mine.hypotheses, other)
        for mine, other in zip(ours, theirs, strict=True)
        if all(hypothesis.finished for hypothesis in mine.hypotheses)
    ]
    identical = 0
    for hypotheses, other in pairs:
        scores = [hypothesis.score for hypothesis in hypotheses]
        np.testing.assert_allclose(scores, other.scores, atol=TIE)
        outputs = [tokens_of(list(hypothesis.tokens)) for hypothesis in hypotheses]
        identical += outputs == other.hypotheses
    assert len(pairs) >= 80
    assert identical >= len(pairs) - 2  # the others are ties, by their scores
    assert len({len(hypotheses[0].tokens) for hypotheses, _ in pairs}) > 5


def test_int8_is_saved_as_int8(tmp_path: Path) -> None:
    model, vocabulary = ending_model(), [id_token(i) for i in range(VOCAB_SIZE)]
    sizes = {}
    for quantization in ("float32", "int8"):
        folder = tmp_path / quantization
        convert_to_ctranslate2(model, vocabulary, folder, quantization)
        sizes[quantization] = (folder / "model.bin").stat().st_size
    assert sizes["int8"] < 0.5 * sizes["float32"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block": "macaron"}, "block must be 'standard' .*got 'macaron'"),
        ({"decoder_mixing": "ssru"}, "decoder_mixing must be 'attention' .*got 'ssru'"),
        ({"norm_type": "scale"}, "norm_type must be 'layer' or 'rms' .*got 'scale'"),
        ({"fix_norm": True, "fix_norm_scale": True}, "fix_norm_scale must be False .*got True"),
        ({"positions": "rotary"}, "positions must be 'sinusoid' or 'relative' .*got 'rotary'"),
        ({"share_layers": True}, "share_layers must be False .*got True"),
        ({"embedding_scale": "none"}, "embedding_scale must be 'token' .*got 'none'"),
    ],
)
def test_what_ctranslate2_does_not_have_cannot_be_compared(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = build_model(TransformerConfig(model_dim=16, num_heads=2, **options))
    assert isinstance(model, Transformer)
    with pytest.raises(BenchError, match=message):
        convert_to_ctranslate2(model, [], tmp_path / "peer", "float32")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "block must be 'macaron' .*got 'standard'; give a run of a Macaron Net"),
        ({"block": "macaron", "norm": "post"}, "norm must be 'pre' .*got 'post'"),
        ({"block": "macaron", "norm_type": "rms"}, "norm_type must be 'layer' .*got 'rms'"),
        ({"block": "macaron", "positions": "relative"}, "positions must be 'sinusoid' .*got"),
    ],
)
def test_a_macaron_net_of_which_no_two_layers_can_be_made_is_said(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = build_model(TransformerConfig(model_dim=16, num_heads=2, **options))
    assert isinstance(model, Transformer)
    with pytest.raises(BenchError, match=message):
        convert_macaron_to_ctranslate2(model, [], tmp_path / "peer", "float32")
