"""Exported language models decode as the checkpoint computes: caches, batches, sampling, beams."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from export.arithmetic.quantize import quantized_twin
from export.graphs.writing import write_language_graphs
from serving.bundle.manifest import Manifest
from serving.errors import BundleError
from serving.runtime import language_stepper
from serving.runtime.language_stepper import LanguageStepper
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Sentence
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions
from serving.search.sampling.batch import Generated, GenerationBatch, SampledOutput
from serving.search.sampling.drawing import Uniforms, draw_from_logits
from serving.search.sampling.prompts import CHUNK
from serving.search.sampling_options import GenerationOptions
from tests.unit.training.models.own_layers import Convolution, Recurrence
from training.models import CausalLanguageModel, LanguageModelConfig
from training.models.blocks import CausalLayer
from training.models.context import CacheContext
from training.models.stack import Stack
from training.models.sublayers.light_attention import LightSelfAttention

pytestmark = pytest.mark.usefixtures("traced_once")

KINDS = ["full", "dilated", "dilated_memory", "cascade"]
VARIANTS = [(kind, "standard", "pre") for kind in KINDS]
VARIANTS += [("cascade", "macaron", "post"), ("full", "macaron", "pre")]
POSITIONS = [("full", "standard", "pre", "relative"), ("cascade", "macaron", "post", "rotary")]
POSITIONS += [("full", "standard", "pre", "rotary", "grouped")]
POSITIONS += [("cascade", "standard", "pre", "learnt", "grouped")]
LONGEST = 3 * CHUNK + 7 + 40
"""Of the prompts and what follows them; what fills a chunk up stands behind it."""
VARIANTS += [("own", "standard", "pre")]
VOCABULARY = 90


class OwnLayer(CausalLayer):
    """Looks back along the text by a recurrence and a convolution, too."""

    def __init__(self, config: LanguageModelConfig, offsets: tuple[int, ...] | None) -> None:
        order = {"self_attention": 1.0, "ffn": 1.0}
        super().__init__(config, order, lambda _: LightSelfAttention(config, offsets))
        self.recurrence, self.convolution = Recurrence(config), Convolution(config)

    def forward(self, x_BQD: Tensor, context: CacheContext) -> Tensor:
        x_BQD = super().forward(x_BQD, context)
        x_BQD = x_BQD + self.recurrence.decode(x_BQD, context)
        return x_BQD + self.convolution.decode(x_BQD, context)


@cache
def model_of(
    attention: str,
    block: str = "standard",
    norm: str = "pre",
    positions: str = "sinusoid",
    heads: str = "",
) -> CausalLanguageModel:
    """With `grouped` heads, two of queries share one of keys and values; such a model has no biases
    in feed-forwards and an output matrix of its own."""
    torch.manual_seed(5)
    grouped = heads == "grouped"
    config = LanguageModelConfig(
        model_dim=16,
        num_heads=4 if grouped else 2,
        num_kv_heads=2 if grouped else 0,
        ffn_bias=not grouped,
        tie_embeddings=not grouped,
        ffn_dim=24,
        num_decoder_layers=3,
        vocab_size=VOCABULARY,
        max_positions=LONGEST if positions == "learnt" else 0,
        attention="cascade" if attention == "own" else attention,
        block=block,
        norm=norm,
        positions=positions,
        max_relative_distance=4,
        dropout=0.0,
        first_window=3,
        output_bias=block == "macaron",
    )
    model = CausalLanguageModel(config)
    if attention == "own":
        model.layers = Stack([OwnLayer(config, offsets) for offsets in model.offsets], 3, 0.0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    return model.eval()


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("language")


def stepper_of(folder: Path, *variant: str, precision: str = "fp32") -> LanguageStepper:
    place = folder / "-".join((*variant, precision))
    if not place.exists():
        place.mkdir()
        manifest = write_language_graphs(
            model_of(*variant), place, name="tiny", precision=precision
        )
        (place / "manifest").write_text(manifest.model_dump_json())
    manifest = Manifest.model_validate_json((place / "manifest").read_text())
    return LanguageStepper(place, manifest, 1)


@torch.no_grad()
def log_probs(model: CausalLanguageModel, ids: Sequence[int]) -> np.ndarray:
    """Of the whole text, as it is trained, [T,V]."""
    return model(torch.tensor([list(ids)]))[0].log_softmax(-1).numpy()


def random_ids(count: int, seed: int = 0) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(4, VOCABULARY, count)]


def run(batch: GenerationBatch, outputs: list[SampledOutput], steps: int) -> dict[int, list[float]]:
    batch.add(outputs)
    found: dict[int, list[float]] = {output.key: [] for output in outputs}
    for _ in range(steps):
        for event in batch.step():
            found[event.key].append(event.log_prob)
    return found


def output(
    key: int, prompt: list[int], seed: int | None = None, **options: object
) -> SampledOutput:
    uniforms = Uniforms(key if seed is None else seed, 0)
    return SampledOutput(key, prompt, GenerationOptions(**options), uniforms)  # type: ignore[arg-type]


@pytest.mark.parametrize("variant", [*VARIANTS, *POSITIONS], ids="-".join)
@pytest.mark.parametrize("length", [1, 5, CHUNK, CHUNK + 1, 3 * CHUNK + 7])
def test_prompts_and_steps_give_the_models_own_distributions(
    bundles: Path, variant: tuple[str, ...], length: int
) -> None:
    stepper, model = stepper_of(bundles, *variant), model_of(*variant)
    outputs = [output(i, random_ids(length, i), num_logprobs=3) for i in range(3)]
    batch = GenerationBatch(stepper)
    batch.add(outputs)
    events = [batch.step() for _ in range(40)]
    batch.close()
    for row, generated in enumerate(outputs):
        wanted = log_probs(model, [*generated.prompt, *generated.tokens])[length - 1 : -1]
        own = [step[row].log_prob for step in events]
        np.testing.assert_allclose(
            own, wanted[np.arange(40), generated.tokens], atol=2e-5, rtol=1e-4
        )
        for step, distribution in zip(events, wanted, strict=True):
            best = [score for _, score in step[row].top]
            np.testing.assert_allclose(best, np.sort(distribution)[:-4:-1], atol=2e-5, rtol=1e-4)


WAYS: list[dict[str, object]] = [
    {"temperature": 0.0},
    {"temperature": 0.0, "repetition_penalty": 1.1, "num_logprobs": 2},
    {"temperature": 0.3, "sampling_top_k": 3},
    {"temperature": 0.2, "sampling_top_p": 0.9, "logit_bias": ((7, 2.0),)},
]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("variant", [*VARIANTS, *POSITIONS], ids="-".join)
def test_guessed_tokens_change_no_bit(
    bundles: Path, variant: tuple[str, ...], precision: str
) -> None:
    stepper = stepper_of(bundles, *variant, precision=precision)
    steps = 0
    for length, options in itertools.product((3, CHUNK + 5), WAYS):
        prompt = (random_ids(7, length) * length)[:length]
        alone, guessing = (output(0, prompt, max_length=70, **options) for _ in range(2))
        plain, batch = GenerationBatch(stepper), GenerationBatch(stepper, guesses=True)
        plain.add([alone])
        batch.add([guessing])
        wanted = [event for _ in range(70) for event in plain.step()]
        found: list[Generated] = []
        while len(found) < 70:
            found += batch.step()
            steps += 1
        assert found == wanted
        plain.close()
        batch.close()
    theirs = {"own", "relative", "learnt"}  # of ONNX Runtime is their attention
    assert stepper.checks_guesses is theirs.isdisjoint(variant)
    assert (steps < 70 * 2 * len(WAYS)) is stepper.checks_guesses


def test_only_an_output_that_is_alone_is_guessed_ahead_of(bundles: Path) -> None:
    stepper = stepper_of(bundles, "full")
    prompts = [random_ids(4, seed) * 5 for seed in range(2)]
    wanted = []
    for key, prompt in enumerate(prompts):
        batch, events = GenerationBatch(stepper), list[Generated]()
        batch.add([output(key, prompt, temperature=0.0)])
        while len(events) < 60:
            events += batch.step()
        batch.close()
        wanted.append(events)
    batch, found = GenerationBatch(stepper, guesses=True), list[Generated]()
    batch.add([output(0, prompts[0], temperature=0.0)])
    for _ in range(12):
        found += batch.step()
    before = len(found)
    batch.add([output(1, prompts[1], temperature=0.0)])
    for _ in range(9):
        events = batch.step()
        assert [event.key for event in events] == [0, 1]
        found += events
    batch.remove(1)
    while sum(event.key == 0 for event in found) < 60:
        found += batch.step()
    batch.close()
    assert before > 12
    for key, count in ((0, 60), (1, 9)):
        assert [event for event in found if event.key == key][:count] == wanted[key][:count]


def test_a_model_may_have_one_head(tmp_path: Path) -> None:
    torch.manual_seed(5)
    model = CausalLanguageModel(replace(model_of("cascade").config, num_heads=1)).eval()
    manifest = write_language_graphs(model, tmp_path, name="tiny", precision="fp32")
    batch, generated = GenerationBatch(LanguageStepper(tmp_path, manifest, 1)), output(0, [5, 9, 7])
    found = run(batch, [generated], 12)[0]
    batch.close()
    wanted = log_probs(model, [*generated.prompt, *generated.tokens])[2:-1]
    np.testing.assert_allclose(found, wanted[np.arange(12), generated.tokens], atol=2e-5)


def test_caches_hold_as_many_heads_as_keys_have(bundles: Path) -> None:
    grouped = stepper_of(bundles, "full", "standard", "pre", "rotary", "grouped")
    # 3 layers of keys and values, 2 heads of 4 numbers, 10 slots of 5 rows, and a spare copy.
    assert grouped.cache_bytes(5, 0, 10) == 2 * 4 * (3 * 2) * (2 * 4) * 10 * 5


def test_a_graph_of_an_earlier_version_is_refused(bundles: Path) -> None:
    stepper_of(bundles, "full")
    place = bundles / "full-fp32"
    manifest = Manifest.model_validate_json((place / "manifest").read_text())
    inputs = tuple(t for t in manifest.step.inputs if t.role != "top_rank")
    old = manifest.model_copy(update={"step": manifest.step.model_copy(update={"inputs": inputs})})
    with pytest.raises(BundleError, match=r"earlier version; export the checkpoint again"):
        LanguageStepper(place, old, 1)


@pytest.mark.parametrize("kind", [*KINDS, "own"])
@pytest.mark.parametrize("length", [2, CHUNK + 1, 2 * CHUNK + 30])
def test_scores_are_the_models_own(bundles: Path, kind: str, length: int) -> None:
    stepper = stepper_of(bundles, kind)
    texts = [random_ids(length, seed) for seed in range(3)]
    prompted, scores = stepper.score([t[:-1] for t in texts], [t[1:] for t in texts])
    stepper.free(prompted.state)
    for row, text in enumerate(texts):
        wanted = log_probs(model_of(kind), text)[:-1]
        labels = wanted[np.arange(length - 1), text[1:]]
        np.testing.assert_allclose(scores.labels_BP[row], labels, atol=2e-5, rtol=1e-4)
        tops = np.take_along_axis(wanted, scores.top_tokens_BPT[row].astype(np.int64), 1)
        np.testing.assert_allclose(scores.top_scores_BPT[row], tops, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("kind", ["full", "cascade"])
def test_scores_are_the_same_however_many_are_made_at_once(
    bundles: Path, kind: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepper = stepper_of(bundles, kind, precision=precision)
    texts = [random_ids(2 * CHUNK + 30, seed) for seed in range(3)]
    found = []
    for logits in (1 << 30, 1):  # those of a whole chunk, and as few as there may be
        monkeypatch.setattr(language_stepper, "SCORED_LOGITS", logits)
        prompted, scores = stepper.score([t[:-1] for t in texts], [t[1:] for t in texts])
        stepper.free(prompted.state)
        found.append(scores)
    for one, other in zip(*(vars(scores).values() for scores in found), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("variant", [("full",), ("cascade",), ("own",), *POSITIONS], ids="-".join)
def test_an_output_is_the_same_in_any_company(
    bundles: Path, variant: tuple[str, ...], precision: str
) -> None:
    stepper = stepper_of(bundles, *variant, precision=precision)
    choices = [
        {"temperature": 0.0},
        {"temperature": 0.7},
        {"sampling_top_k": 5},
        {"sampling_top_p": 0.5},
        {"repetition_penalty": 1.3, "min_length": 30},
        {"sampling_top_k": 70, "num_logprobs": 2},
        {"sampling_top_k": 9, "sampling_top_p": 0.8, "temperature": 0.9, "num_logprobs": 20},
    ]
    lengths = [1, 3, CHUNK, CHUNK + 1, 20, 2 * CHUNK + 9, 7]
    prompts = [random_ids(length, seed) for seed, length in enumerate(lengths)]

    def fresh() -> list[SampledOutput]:
        return [
            output(i, prompt, **options)
            for i, (prompt, options) in enumerate(zip(prompts, choices, strict=True))
        ]

    alone, texts = {}, {}
    for one in fresh():
        batch = GenerationBatch(stepper)
        alone |= run(batch, [one], 60)
        texts[one.key] = one.tokens
        batch.close()
    generator = np.random.default_rng(1)
    for _ in range(3):  # joining and leaving at other times, beside strangers
        batch, waiting = GenerationBatch(stepper), fresh()
        generator.shuffle(waiting)  # type: ignore[arg-type]
        everyone = list(waiting)
        found: dict[int, list[float]] = {one.key: [] for one in everyone}
        strangers = itertools.count(100)
        while any(len(scores) < 60 for scores in found.values()):
            if waiting:
                key = next(strangers)
                batch.add([waiting.pop(), output(key, random_ids(key % 80 + 1, key))])
            for event in batch.step():
                if event.key < 100:
                    found[event.key].append(event.log_prob)
                elif generator.random() < 0.1:
                    batch.remove(event.key)
            for key, scores in found.items():
                if len(scores) == 60:
                    batch.remove(key)
        batch.close()
        assert found == alone
        assert {one.key: one.tokens for one in everyone} == texts


def test_choices_share_the_work_on_their_prompt(bundles: Path) -> None:
    stepper, prompt = stepper_of(bundles, "cascade"), random_ids(75)
    together = GenerationBatch(stepper)
    same = [output(i, prompt) for i in range(3)]
    found = run(together, [*same, output(3, prompt[:70])], 25)
    together.close()
    for key in range(4):
        alone = GenerationBatch(stepper)
        text = prompt if key < 3 else prompt[:70]
        assert run(alone, [output(key, text)], 25)[key] == found[key]
        alone.close()
    assert len({tuple(one.tokens) for one in same}) == 3


@pytest.mark.parametrize(("kind", "reach"), [("dilated", 9), ("cascade", 12)])
def test_the_cache_of_light_attention_does_not_grow(bundles: Path, kind: str, reach: int) -> None:
    stepper = stepper_of(bundles, kind)
    assert stepper.reach == reach
    batch, prompted = GenerationBatch(stepper), stepper.start([random_ids(300)[:-1]])
    batch.join([[output(0, random_ids(300))]], prompted)
    capacities = set()
    for _ in range(400):
        batch.step()
        capacities.add(prompted.state.caches.capacity)
    batch.close()
    assert max(capacities) <= reach + CHUNK + stepper.repack_every
    assert len(capacities) <= 3


def test_greedy_takes_the_likeliest_token(bundles: Path) -> None:
    model, one = model_of("dilated_memory"), output(0, random_ids(8), temperature=0.0)
    batch = GenerationBatch(stepper_of(bundles, "dilated_memory"))
    run(batch, [one], 30)
    batch.close()
    ids = random_ids(8)
    for _ in range(30):
        ids.append(int(log_probs(model, ids)[-1].argmax()))
    assert one.tokens == ids[8:]


def test_drawn_tokens_follow_the_models_distribution(bundles: Path) -> None:
    options = GenerationOptions(temperature=0.8, sampling_top_p=0.9)
    ids, uniforms = random_ids(4), Uniforms(11, 0)
    batch = GenerationBatch(stepper_of(bundles, "full"))
    one = SampledOutput(0, list(ids), options, Uniforms(11, 0))
    run(batch, [one], 30)
    batch.close()
    for step in range(30):
        distribution = log_probs(model_of("full"), ids)[-1]
        ids.append(draw_from_logits(distribution, options, uniforms[step]))
    assert one.tokens == ids[4:]


@pytest.mark.parametrize("kind", ["full", "cascade", "own"])
def test_beam_search_finds_what_a_plain_one_finds(bundles: Path, kind: str) -> None:
    options = SearchOptions(
        beam_size=4, num_hypotheses=4, max_length=20, length_penalty=0.0, loop_guard=False
    )
    prompt = random_ids(17)
    sentence = Sentence((), options, prompt[1:], start=prompt[0])
    (found,) = decode(stepper_of(bundles, kind), [sentence])
    beams, finished = [(0.0, prompt)], []
    for _ in range(20):
        candidates = []
        for score, ids in beams:
            distribution = log_probs(model_of(kind), ids)[-1]
            candidates += [(score + float(p), [*ids, i]) for i, p in enumerate(distribution)]
        candidates.sort(key=lambda candidate: -candidate[0])
        beams = []
        for rank, (score, ids) in enumerate(candidates[:8]):
            if ids[-1] == EOS_ID:
                if rank < 4:
                    finished.append((score, ids[:-1]))
            elif len(beams) < 4:
                beams.append((score, ids))
    finished += beams
    finished.sort(key=lambda candidate: -candidate[0])
    best = found.hypotheses[0]
    assert [prompt[0], *best.tokens] in [ids for score, ids in finished[:2]]
    assert best.cumulative == pytest.approx(finished[0][0], abs=1e-3)


def test_int8_computes_as_its_twin(bundles: Path) -> None:
    stepper = stepper_of(bundles, "cascade", precision="int8")
    twin = quantized_twin(model_of("cascade"))
    text = random_ids(90)
    prompted, scores = stepper.score([text[:-1]], [text[1:]])
    stepper.free(prompted.state)
    wanted = log_probs(twin, text)[np.arange(89), text[1:]]
    assert np.abs(scores.labels_BP[0] - wanted).mean() < 0.005
    plain = log_probs(model_of("cascade"), text)[np.arange(89), text[1:]]
    assert np.abs(scores.labels_BP[0] - plain).mean() > 1e-4


def test_a_broken_distribution_ends_its_own_output_alone(bundles: Path) -> None:
    stepper = stepper_of(bundles, "full")
    whole = GenerationBatch(stepper)
    wanted = run(whole, [output(1, random_ids(9))], 6)[1]
    whole.close()
    batch = GenerationBatch(stepper)
    prompted = stepper.start([random_ids(5)[:-1], random_ids(9)[:-1]])
    batch.join([[output(0, random_ids(5))], [output(1, random_ids(9))]], prompted)
    found, errors = [], []
    for step in range(6):
        if step == 2:
            for cache in prompted.state.caches.arrays:
                cache[0, 0] = np.nan
        for event in batch.step():
            if event.error is not None:
                errors.append(event.key)
            elif event.key == 1:
                found.append(event.log_prob)
    assert errors == [0]
    assert found == wanted
    batch.add([later := output(2, random_ids(9))])  # in the place of the broken one
    for _ in range(6):
        batch.step()
    batch.close()
    alone = output(2, random_ids(9))
    run(GenerationBatch(stepper), [alone], 6)
    assert later.tokens == alone.tokens
