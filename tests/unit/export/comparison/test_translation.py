"""What a comparison finds, by loops over tokens, and which figures are too far off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from export.comparison import translation
from export.comparison.significance import BleuChange
from export.comparison.translation import (
    LEAST_BLEU_CHANGE,
    MAX_LOG_PROB_CHANGE,
    MAX_LOGIT_DIFFERENCE,
    MAX_TWIN_DIFFERENCE,
    MOST_NOISE,
    NOISE_DRAWS,
    PairedStepper,
    Parity,
    check,
    check_logits,
    compare_shortlist,
    measure,
    measure_noise,
    search_all,
    total_log_probs,
)
from export.errors import ParityError
from export.texts.dev_set import DevSet
from export.texts.vocabulary import Vocabulary
from serving.search.beams.sentence import Sentence
from serving.search.ids import BOS_ID, EOS_ID
from serving.search.options import SearchOptions
from serving.search.stepper import StepInputs, StepOutputs
from tests.unit.training.tiny import TINY, randomised
from training.decoding.stepper import TorchStepper
from training.models import TranslationModel

GREEDY = SearchOptions(beam_size=1, max_length=9, loop_guard=False)
SOURCES = [[5, 9, 30, 7], [4, 6], [33, 20, 21, 22, 23], [12], [8, 8, 9]]


def ending_model(seed: int = 0, push: float = 2.0) -> TranslationModel:
    """One that soon ends what it writes."""
    model = randomised(replace(TINY, output_bias=True), seed)
    assert model.output_bias is not None
    with torch.no_grad():
        model.output_bias[EOS_ID] += push
    return model


def near(model: TranslationModel, change: float) -> TranslationModel:
    """The same with weights a little larger."""
    other = ending_model()
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.0 + change)
    return other


def sentences(options: SearchOptions = GREEDY, count: int = 5) -> list[Sentence]:
    return [Sentence((*SOURCES[n % len(SOURCES)], EOS_ID), options) for n in range(count)]


@torch.no_grad()
def logits(model: TranslationModel, source: Sequence[int], target: Sequence[int]) -> Any:
    """[T,V] of a target behind bos, all at once."""
    return model(torch.tensor([list(source)]), torch.tensor([[BOS_ID, *target]]))[0].numpy()


def test_log_probabilities_are_those_of_each_token_with_its_end() -> None:
    model, given = ending_model(), sentences(count=40)  # more than are scored at once
    generator = np.random.default_rng(0)
    targets = [generator.integers(4, 37, generator.integers(0, 7)).tolist() for _ in given]
    found = total_log_probs(TorchStepper(model), given, targets)
    for total, sentence, target in zip(found, given, targets, strict=True):
        scores = logits(model, sentence.source, target).astype(float)
        scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
        wanted = sum(scores[place, id_] for place, id_ in enumerate([*target, EOS_ID]))
        assert total == pytest.approx(wanted, rel=1e-4, abs=1e-4)


def test_paired_models_are_led_by_the_first_and_compared_at_each_step() -> None:
    first, second = ending_model(0), ending_model(1)
    paired, given = PairedStepper(TorchStepper(first), TorchStepper(second)), sentences()
    outputs = search_all(paired, given)
    assert outputs == search_all(TorchStepper(first), given)
    differences = []
    for sentence, output in zip(given, outputs, strict=True):
        read = output if len(output) < GREEDY.max_length else output[:-1]
        wanted, found = (logits(model, sentence.source, read) for model in (first, second))
        differences.append(np.abs(wanted - found).ravel())
    every = np.concatenate(differences)
    assert paired.count == every.size
    assert paired.largest == pytest.approx(every.max(), rel=1e-4)
    assert paired.total == pytest.approx(every.sum(), rel=1e-4)


class FakeStepper:
    """Gives these logits at each step."""

    def __init__(self, logits_BQV: Any) -> None:
        self.logits_BQV = np.asarray(logits_BQV, np.float32)

    def step(self, state: None, inputs: StepInputs, **_: Any) -> StepOutputs:
        none = np.zeros((1, 0), np.int32)
        return StepOutputs(none.astype(np.float32), none, none, self.logits_BQV)


def test_dead_beams_and_those_without_a_query_count_for_nothing() -> None:
    first: Any = FakeStepper([[[1.0, 2.0], [0.0, 0.0]]])
    second: Any = FakeStepper([[[1.0, 2.5], [50.0, 50.0]]])
    paired, ones = PairedStepper(first, second), np.ones((1, 2), np.int64)
    scores = np.array([[0.0, -np.inf]], np.float32)
    visible = np.zeros((1, 2, 1), np.float32)
    inputs = StepInputs(ones, ones, np.zeros(1, np.int64), visible, scores, ones)
    paired.step((None, None), inputs, want_logits=False)
    assert (paired.largest, paired.total, paired.count) == (0.5, 0.5, 2)
    of_one_query = inputs._replace(token_ids_BQ=ones[:, :1])
    first.logits_BQV, second.logits_BQV = first.logits_BQV[:, :1], second.logits_BQV[:, :1]
    paired.step((None, None), of_one_query, want_logits=False)
    assert (paired.largest, paired.total, paired.count) == (0.5, 1.0, 4)


def test_what_is_no_number_stays_none() -> None:
    first, broken = ending_model(), near(ending_model(), 0.0)
    with torch.no_grad():
        broken.output_bias[9] = math.nan  # type: ignore[index]
    paired = PairedStepper(TorchStepper(first), TorchStepper(broken))
    search_all(paired, sentences())
    assert math.isnan(paired.largest)
    assert check_logits("cross", "fp32", paired.largest, 0.0)


class Letters:
    """A word of each id."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[int(word) for word in text.split()] for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


LETTERS: Any = Letters()
DEV = DevSet([LETTERS.decode(source) for source in SOURCES], None)


def compared(bundle: TranslationModel, dev: DevSet = DEV) -> Parity:
    checkpoint = TorchStepper(ending_model())
    return measure(checkpoint, checkpoint, TorchStepper(bundle), Vocabulary.of(LETTERS), dev)


def test_a_bundle_that_computes_the_same_is_identical() -> None:
    found = compared(near(ending_model(), 0.0))
    assert (found.sentences, found.identical, found.ties) == (5, 5, 0)
    assert found.logits_max_difference == found.log_prob_change == 0.0
    assert found.bleu_checkpoint == found.bleu_bundle == pytest.approx(100)
    assert found.references == "checkpoint"
    check(found, "cross", "fp32")
    given = compared(near(ending_model(), 0.0), replace(DEV, references=DEV.sources))
    assert given.references == "given"
    assert given.bleu_bundle < 100


@pytest.mark.parametrize("paired", [2, 64])
def test_the_checkpoint_searches_once(paired: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In fp32 with the bundle, for the first sentences; what is known is not searched at all."""
    searched: list[tuple[type, int]] = []

    def noted(stepper: Any, sentences: Sequence[Sentence]) -> list[tuple[int, ...]]:
        searched.append((type(stepper), len(sentences)))
        return search_all(stepper, sentences)

    monkeypatch.setattr(translation, "search_all", noted)
    monkeypatch.setattr(translation, "LOGIT_SENTENCES", paired)
    model, bundle = ending_model(), TorchStepper(ending_model(1))
    checkpoint, vocabulary = TorchStepper(model), Vocabulary.of(LETTERS)
    first = min(paired, len(SOURCES))
    found = measure(checkpoint, checkpoint, bundle, vocabulary, DEV)
    apart = [(PairedStepper, first), (TorchStepper, len(SOURCES) - first), (TorchStepper, 5)]
    assert searched == apart
    searched.clear()
    alone = measure(checkpoint, TorchStepper(model), bundle, vocabulary, DEV)
    assert searched == [(PairedStepper, first), (TorchStepper, 5), (TorchStepper, 5)]
    assert alone == found
    outputs = search_all(checkpoint, DEV.sentences(vocabulary, SearchOptions(loop_guard=False)))
    searched.clear()
    known = measure(checkpoint, TorchStepper(model), bundle, vocabulary, DEV, outputs)
    assert searched == [(PairedStepper, first), (TorchStepper, 5)]
    assert known == found
    assert found.identical < found.sentences == 5


def test_a_bundle_that_writes_something_else_is_counted_and_refused() -> None:
    other = ending_model(1)
    found = compared(other)
    outputs = [
        search_all(
            TorchStepper(model),
            DEV.sentences(Vocabulary.of(LETTERS), SearchOptions(loop_guard=False)),
        )
        for model in (ending_model(), other)
    ]
    equal = sum(first == second for first, second in zip(*outputs, strict=True))
    assert found.identical == equal < 5
    tokens = sum(len(output) + 1 for output in outputs[0])
    given = DEV.sentences(Vocabulary.of(LETTERS), SearchOptions())
    own, under = (
        total_log_probs(TorchStepper(model), given, outputs[0]).sum()
        for model in (ending_model(), other)
    )
    assert found.log_prob_change == pytest.approx((under - own) / tokens, rel=1e-6)
    with pytest.raises(ParityError, match=r"outputs differ by more than a tie .*no bundle was"):
        check(found, "cross", "fp32")


SOUND = Parity(
    sentences=9,
    identical=7,
    ties=2,
    logits_max_difference=0.0,
    logits_mean_difference=0.0,
    bleu_checkpoint=30.0,
    bleu_bundle=30.0,
    bleu_change=BleuChange(0.0, -0.1, 0.1),
    log_prob_change=0.0,
    signature="",
)


def changed_bleu(mean: float) -> BleuChange:
    return replace(SOUND.bleu_change, mean=mean)


@pytest.mark.parametrize(
    ("precision", "changed", "words"),
    [
        (
            "fp32",
            {"logits_max_difference": 2 * MAX_LOGIT_DIFFERENCE},
            "step logits differ by up to",
        ),
        ("fp32", {"logits_max_difference": math.nan}, "step logits differ by up to nan"),
        ("fp32", {"ties": 1}, "1 of 9 beam-search outputs differ"),
        ("int8", {"logits_mean_difference": 2 * MAX_TWIN_DIFFERENCE["cross"]}, "in the mean"),
        ("int8", {"logits_mean_difference": math.nan}, "in the mean"),
        ("int8", {"bleu_change": changed_bleu(LEAST_BLEU_CHANGE - 0.01)}, "BLEU changes by -0.31"),
        ("int8", {"bleu_change": changed_bleu(math.nan)}, "BLEU changes by"),
        ("int8", {"log_prob_change": -1.1 * MAX_LOG_PROB_CHANGE}, "log-probability of the"),
        ("int8", {"log_prob_change": 1.1 * MAX_LOG_PROB_CHANGE}, "log-probability of the"),
        ("int8", {"log_prob_change": math.nan}, "log-probability of the"),
    ],
)
def test_a_figure_beyond_its_limit_is_named(
    precision: str, changed: dict[str, Any], words: str
) -> None:
    check(SOUND, "cross", precision)
    with pytest.raises(ParityError, match=words):
        check(replace(SOUND, **changed), "cross", precision)


def test_limits_are_those_of_the_precision_and_of_what_bleu_compares_with() -> None:
    check(replace(SOUND, logits_max_difference=1.0, ties=0), "cross", "int8")
    check(replace(SOUND, logits_mean_difference=1.0, log_prob_change=1.0), "cross", "fp32")
    own = replace(SOUND, bleu_change=changed_bleu(-5.0), references="checkpoint")
    check(own, "cross", "int8")
    between = (MAX_TWIN_DIFFERENCE["cross"] + MAX_TWIN_DIFFERENCE["joint"]) / 2
    check(replace(SOUND, logits_mean_difference=between), "joint", "int8")
    with pytest.raises(ParityError):
        check(replace(SOUND, logits_mean_difference=between), "cross", "int8")


def test_noise_of_rounding_raises_the_limit_where_it_decides() -> None:
    vocabulary, seeds = Vocabulary.of(LETTERS), []

    def jittered(seed: int) -> TorchStepper:
        seeds.append(seed)
        return TorchStepper(near(ending_model(), 1e-3 * (1 + seed % 2)))  # 1.5e-3 in the mean

    def compared(parity: Parity, change: float) -> Parity:
        bundle = TorchStepper(near(ending_model(), change))
        return measure_noise(parity, "cross", twin, bundle, jittered, vocabulary, DEV)

    twin = TorchStepper(ending_model())
    assert compared(SOUND, 1e-3) is SOUND
    assert seeds == []
    far = replace(SOUND, logits_mean_difference=0.02)
    for times in (1.0, 3.0):
        found = compared(far, 1.5e-3 * times)
        assert found.twin_noise
        assert found.logits_mean_difference == pytest.approx(times * found.twin_noise, rel=0.02)
    assert seeds == [*range(NOISE_DRAWS)] * 2
    for noise, refused in ((0.02 / MOST_NOISE * 1.01, False), (0.02 / MOST_NOISE * 0.99, True)):
        assert bool(check_logits("cross", "int8", 0.0, 0.02, noise)) is refused


def test_the_manifest_keeps_what_is_worth_reading() -> None:
    kept = replace(SOUND, log_prob_change=0.00012345678).to_dict()
    assert kept["log_prob_change"] == 0.0001235
    assert "references" not in kept
    assert "twin_noise" not in kept
    assert kept["bleu_change"] == {"mean": 0.0, "low": -0.1, "high": 0.1}
    own = replace(SOUND, references="checkpoint", twin_noise=0.1).to_dict()
    assert (own["references"], own["twin_noise"]) == ("checkpoint", 0.1)


def test_shortlists_that_cost_bleu_are_refused_where_there_are_references() -> None:
    bundle, worse = TorchStepper(ending_model()), TorchStepper(ending_model(1))
    vocabulary = Vocabulary.of(LETTERS)
    plain = DEV.sentences(vocabulary, SearchOptions(loop_guard=False))
    references = [LETTERS.decode(output) for output in search_all(bundle, plain)]
    given = replace(DEV, references=references)
    same = compare_shortlist(bundle, bundle, vocabulary, given)
    assert same["mean"] == 0.0
    assert compare_shortlist(bundle, worse, vocabulary, DEV)["mean"] < -1.0
    with pytest.raises(ParityError, match=r"shortlists change BLEU by -.*leave out --shortlist"):
        compare_shortlist(bundle, worse, vocabulary, given)
