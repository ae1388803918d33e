"""The CUDA session against a recorded device: real searches give what the CPU session gives, and do
on the way nothing that a GPU would not allow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.queue.limits import BatchLimits
from serving.runtime.device import open_device
from serving.runtime.gpu import cuda_session, cuda_switches
from serving.runtime.gpu.layouts import bucket, bucket_capacity
from serving.runtime.language_stepper import LanguageStepper
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Sentence
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions
from serving.search.sampling.batch import GenerationBatch
from serving.search.stepper import StepInputs
from serving.translation.offline import decode_in_batches
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Request
from tests.integration.decoding.test_language_decoding import output, random_ids
from tests.integration.export.test_bundle import decode_joining, every_hypothesis, random_sentences
from tests.integration.gpu.test_cuda_graphs import LANGUAGE, Written, write
from tests.recorded_device import Recorded, recorded_gpu
from tests.unit.serving.echo import EchoTranslator

pytestmark = pytest.mark.usefixtures("traced_once")

PRECISIONS = ["fp32", "fp16"]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cuda")


@pytest.fixture
def gpu() -> Iterator[Recorded]:
    with recorded_gpu() as recorded:
        yield recorded


def stepper_of(written: Written, target: str, batches: int = 1) -> Any:
    manifest = written.manifest.model_copy(update={"target": target})
    kind = LanguageStepper if manifest.task == "generate" else OnnxStepper
    device = open_device(written.folder, manifest, 0, batches)
    return kind(written.folder, manifest, 1, device=device)


def both(bundles: Path, name: str, precision: str) -> tuple[Any, Any]:
    """The same graphs on the CPU and on the recorded GPU."""
    written = write(bundles, name, "cuda", precision)
    return stepper_of(written, "cpu"), stepper_of(written, "cuda")


def with_prefixes(count: int, options: SearchOptions) -> list[Sentence]:
    return [
        dataclasses.replace(sentence, target_prefix=[7, 30, 12, 9, 41, 8, 5, 11, 6][: i % 10])
        for i, sentence in enumerate(random_sentences(count, options=options))
    ]


@pytest.mark.parametrize(
    "name", ["standard", "macaron", "joint fast", "dynamic convolution", "ssru"]
)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("beam_size", [1, 5])
def test_whole_searches_are_equal_to_the_bit(
    bundles: Path, gpu: Recorded, name: str, precision: str, beam_size: int
) -> None:
    cpu, cuda = both(bundles, name, precision)
    sentences = with_prefixes(11, every_hypothesis(beam_size))
    sentences[4] = Sentence([*[5] * 70, EOS_ID], every_hypothesis(beam_size))
    wanted = [finished.hypotheses for finished in decode(cpu, sentences)]
    assert gpu.runs == 0
    assert [finished.hypotheses for finished in decode(cuda, sentences)] == wanted
    assert gpu.runs > 20
    # In fp16 the CPU's products of few rows round otherwise than those of many, where it has AVX2
    # alone: there a sentence that joins is what it is on the CPU in the same company.
    joined = decode_joining(cuda, list(sentences))
    assert joined == decode_joining(cpu, list(sentences))
    assert joined == wanted or precision == "fp16"


@pytest.mark.parametrize("name", LANGUAGE)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_outputs_of_language_models_are_equal_to_the_bit(
    bundles: Path, gpu: Recorded, name: str, precision: str
) -> None:
    cpu, cuda = both(bundles, name, precision)
    found = [sample(stepper) for stepper in (cpu, cuda)]
    assert found[0] == found[1]
    assert gpu.runs > 20


def sample(stepper: LanguageStepper) -> list[Any]:
    """Prompts of many lengths, which join and leave; greedy, sampled and with edited logits."""
    batch, events = GenerationBatch(stepper), []
    joining = [
        output(0, random_ids(3), max_length=50),
        output(1, random_ids(70), temperature=0.0),
        output(2, random_ids(9), sampling_top_k=5, num_logprobs=2),
        output(3, random_ids(9), sampling_top_k=5),
        output(4, random_ids(21), repetition_penalty=1.3),
        output(5, random_ids(150), temperature=0.7),
    ]
    for step in range(60):
        if step % 4 == 0 and joining:
            batch.add(joining[:2])
            del joining[:2]
        if step == 30:
            batch.remove(1)
        if step == 33:
            batch.add([output(6, random_ids(5))])
        events += [(each.key, each.token, each.log_prob, each.top) for each in batch.step()]
    batch.close()
    return events


@pytest.mark.parametrize("name", LANGUAGE)
def test_beam_search_and_scores_of_language_models_are_equal_to_the_bit(
    bundles: Path, gpu: Recorded, name: str
) -> None:
    cpu, cuda = both(bundles, name, "fp16")
    options = SearchOptions(beam_size=4, num_hypotheses=4, max_length=20, loop_guard=False)
    sentences = [Sentence([], options, random_ids(length)) for length in (1, 30, 9)]
    prompts = [random_ids(90, seed) for seed in range(3)]
    found = []
    for stepper in (cpu, cuda):
        searched = [finished.hypotheses for finished in decode(stepper, sentences)]
        prompted, scores = stepper.score(prompts, [prompt[1:] for prompt in prompts])
        stepper.free(prompted.state)
        found.append((searched, [array.tolist() for array in vars(scores).values()]))
    assert found[0] == found[1]


def candidate_bytes(rows: int, beam_size: int) -> int:
    """Those of scores, tokens and parents of so many rows, each from a new line of memory on."""
    return 3 * -(-bucket(rows) * 2 * beam_size * 4 // 256) * 256


@pytest.mark.parametrize("name", ["macaron", "joint fast"])
def test_of_a_step_candidates_alone_cross_to_the_host(
    bundles: Path, gpu: Recorded, name: str
) -> None:
    stepper = both(bundles, name, "fp16")[1]
    options = SearchOptions(beam_size=5, max_length=12, loop_guard=False)
    decode(stepper, [Sentence(s.source, options) for s in random_sentences(5)])
    gpu.to_host, steps = 0, len(gpu.shapes)
    decode(stepper, [Sentence(s.source, options) for s in random_sentences(5)])
    steps = sum("write_index" in shapes for shapes in gpu.shapes[steps:])
    assert steps > 5
    # Rows that end leave the batch, and so does what they have to tell.
    assert 0 < gpu.to_host <= steps * candidate_bytes(5, 5)
    assert gpu.to_host % candidate_bytes(1, 5) == 0


def test_logits_of_a_language_model_cross_only_where_somebody_looks_at_them(
    bundles: Path, gpu: Recorded
) -> None:
    stepper = both(bundles, LANGUAGE[0], "fp16")[1]
    crossed = []
    for penalty in (1.0, 1.3):
        batch = GenerationBatch(stepper)
        batch.add([output(0, random_ids(5), temperature=0.0, repetition_penalty=penalty)])
        batch.step()
        gpu.to_host = 0
        for _ in range(10):
            batch.step()
        crossed.append(gpu.to_host)
        batch.close()
    assert crossed[0] == 10 * 2 * 256  # one token and its score, each in memory of its own
    assert crossed[1] > crossed[0] + 10 * 90 * 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["macaron", "joint fast", *LANGUAGE[2:]])
def test_memory_is_flat_over_many_requests(bundles: Path, gpu: Recorded, name: str) -> None:
    stepper = both(bundles, name, "fp16")[1]

    def serve() -> None:
        if name in LANGUAGE:
            sample(stepper)
        else:
            decode_joining(stepper, with_prefixes(7, every_hypothesis(4)))

    for _ in range(2):
        serve()
    kept = gpu.live_bytes
    for _ in range(6):
        serve()
    assert gpu.live_bytes == kept


def test_sizes_come_in_few_buckets_and_what_is_met_often_is_captured(
    bundles: Path, gpu: Recorded
) -> None:
    stepper = both(bundles, "macaron", "fp16")[1]
    options = SearchOptions(beam_size=3, max_length=40, min_length=30, loop_guard=False)
    sentences = [Sentence(s.source, options) for s in random_sentences(7)]
    for _ in range(8):
        decode(stepper, sentences)
    steps = [shapes for shapes in gpu.shapes if "write_index" in shapes]
    rows, capacities = ({shapes["visible"][axis] for shapes in steps} for axis in (0, 3))
    assert rows == {bucket(count) for count in rows}
    assert len(rows) < 6
    assert capacities == {bucket_capacity(count) for count in capacities}
    assert len(capacities) > 2
    assert {shapes["source_mask"][1] % 8 for shapes in steps} == {0}
    captures = gpu.captures
    assert len(captures) > 3
    assert len({number for _, _, number in captures}) == len(captures)
    replayed = sum(capture.runs for capture in captures.values())
    assert replayed > len(steps) / 2
    for shapes in gpu.shapes:
        assert ("token_ids" in shapes) == ("write_index" in shapes)  # no encoder is captured


def test_without_cuda_graphs_batches_have_the_rows_that_they_are_given(
    bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = with_prefixes(7, every_hypothesis(3))
    found = []
    for switch in ("on", "off"):
        monkeypatch.setenv(cuda_switches.GRAPHS_SWITCH, switch)
        with recorded_gpu() as gpu:
            stepper = both(bundles, "macaron", "fp16")[1]
            found.append([f.hypotheses for f in decode(stepper, sentences)])
            rows = {shapes["visible"][0] for shapes in gpu.shapes if "visible" in shapes}
            assert (7 in rows, 8 in rows) == (switch == "off", switch == "on")
            if switch == "off":
                assert not gpu.captures
    assert found[0] == found[1]


def test_bindings_are_forgotten_but_for_those_with_cuda_graphs_of_which_there_are_not_more(
    bundles: Path, gpu: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_session, "MOST_BINDINGS", 4)
    monkeypatch.setattr(cuda_session, "MOST_GRAPHS", 3)
    cpu, cuda = both(bundles, "macaron", "fp16")
    options = SearchOptions(beam_size=3, max_length=40, min_length=30, loop_guard=False)
    sentences = [Sentence(s.source, options) for s in random_sentences(5)]
    wanted = [f.hypotheses for f in decode(cpu, sentences)]
    for _ in range(4):
        assert [f.hypotheses for f in decode(cuda, sentences)] == wanted
    assert sorted(number for _, _, number in gpu.captures) == [1, 2, 3]
    assert 3 < sum("scores" in binding.inputs for binding in gpu.bindings) <= 3 + 4


def test_slots_outside_of_the_caches_are_refused(bundles: Path, gpu: Recorded) -> None:
    stepper = both(bundles, "macaron", "fp16")[1]
    state = stepper.encode([[5, 6, 7, EOS_ID]])
    ones = np.ones((1, 2), dtype=np.int64)
    visible = np.zeros((1, 2, 8), dtype=np.float32)
    inputs = StepInputs(ones, ones, np.array([7]), visible, np.zeros((1, 2), np.float32), ones)
    with pytest.raises(IndexError, match="would write slot 8 of caches of 8 slots"):
        stepper.step(state, inputs, want_logits=False)
    stepper = both(bundles, "ssru", "fp16")[1]
    state = stepper.encode([[5, 6, 7, EOS_ID]])
    ancestors = np.array([[[5], [8]]])
    inputs = inputs._replace(write_index_B=np.array([0]), ancestors_BQW=ancestors)
    with pytest.raises(IndexError, match="would read slot 8 of caches of 8 slots"):
        stepper.step(state, inputs, want_logits=False)


def test_several_threads_take_turns(bundles: Path, gpu: Recorded) -> None:
    cpu, cuda = both(bundles, "macaron", "fp16")
    sentences = dict(enumerate(with_prefixes(24, every_hypothesis(4))))
    wanted = {key: each.hypotheses for key, each in decode_in_batches(cpu, sentences)}
    for _ in range(2):
        found = dict(decode_in_batches(cuda, sentences, 3, BatchLimits(max_rows=5)))
        assert {key: each.hypotheses for key, each in found.items()} == wanted
    assert len({thread for _, thread, _ in gpu.captures}) > 1
    assert gpu.most_at_once == 1


@pytest.mark.parametrize("graphs", ["on", "off"])
def test_several_batches_are_computed_at_once_in_streams_of_their_own(
    bundles: Path, monkeypatch: pytest.MonkeyPatch, graphs: str
) -> None:
    monkeypatch.setenv(cuda_switches.GRAPHS_SWITCH, graphs)
    monkeypatch.setenv(cuda_switches.STREAMS_SWITCH, "2")
    written = write(bundles, "macaron", "cuda", "fp16")
    with recorded_gpu() as gpu:
        gpu.linger_s = 0.0005
        cpu, cuda = stepper_of(written, "cpu"), stepper_of(written, "cuda", batches=2)
        sentences = dict(enumerate(with_prefixes(24, every_hypothesis(4))))
        wanted = {key: each.hypotheses for key, each in decode_in_batches(cpu, sentences)}
        # More threads than streams share these.
        for threads in (2, 3):
            found = dict(decode_in_batches(cuda, sentences, threads, BatchLimits(max_rows=5)))
            assert {key: each.hypotheses for key, each in found.items()} == wanted
        assert gpu.most_at_once == 2
        sessions = {session for session, _, _ in gpu.captures}
        assert len(sessions) == (2 if graphs == "on" else 0)
        # Threads stay from call to call, and with them what was captured for them.
        for _ in range(4):
            dict(decode_in_batches(cuda, sentences, 2, BatchLimits(max_rows=5)))
        assert len({thread for _, thread, _ in gpu.captures}) <= 2 + 3


def test_a_scheduler_of_two_streams_answers_as_on_the_cpu(
    bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cuda_switches.STREAMS_SWITCH, "2")
    written = write(bundles, "macaron", "cuda", "fp16")
    texts = [chr(65 + n % 20) * (1 + n % 7) for n in range(32)]
    found = []
    with recorded_gpu() as gpu:
        gpu.linger_s = 0.0005
        for stepper in (stepper_of(written, "cpu"), stepper_of(written, "cuda", batches=2)):
            echo = EchoTranslator(stepper=stepper)
            limits = BatchLimits(max_rows=8)
            scheduler = TranslationScheduler(echo, limits=limits, workers=2)
            options = [SearchOptions(beam_size=size, max_length=20) for size in (4, 1)]
            tickets = [
                scheduler.submit(Request(text=text, options=options[n % 2]))
                for n, text in enumerate(texts)
            ]
            found.append([ticket.result(60).translation for ticket in tickets])
            scheduler.close()
        assert gpu.most_at_once == 2
    assert found[0] == found[1]


def test_requests_of_a_scheduler_are_answered_as_on_the_cpu(bundles: Path, gpu: Recorded) -> None:
    generator = np.random.default_rng(3)
    texts = [
        "".join(chr(65 + n) for n in generator.integers(0, 20, generator.integers(1, 24)))
        for _ in range(24)
    ]
    options = [SearchOptions(beam_size=size, max_length=20) for size in (4, 1)]
    found = []
    for stepper in both(bundles, "macaron", "fp16"):
        scheduler = TranslationScheduler(EchoTranslator(stepper=stepper))
        tickets = [
            scheduler.submit(Request(text=text, options=options[n % 5 == 0]))
            for n, text in enumerate(texts)
        ]
        found.append([ticket.result(60).translation for ticket in tickets])
        scheduler.close()
    assert found[0] == found[1]
    assert len({translation.text for translation in found[0]}) > 5


@pytest.mark.parametrize("short", ["rows", "bytes"])
def test_requests_that_do_not_fit_the_memory_at_once_are_answered_all_the_same(
    bundles: Path, gpu: Recorded, short: str
) -> None:
    texts = [chr(65 + n) + chr(70 + n) * (1 + n % 7) for n in range(16)]
    options = SearchOptions(beam_size=4, max_length=20)
    found = []
    for stepper in both(bundles, "macaron", "fp16"):
        if gpu.runs == 0 and found:  # the second, on the GPU
            gpu.most_rows = 6 if short == "rows" else gpu.most_rows
            gpu.room = gpu.live_bytes + 1_000_000 if short == "bytes" else gpu.room
        scheduler = TranslationScheduler(EchoTranslator(stepper=stepper))
        tickets = scheduler.submit_all([Request(text=text, options=options) for text in texts])
        found.append([ticket.result(60).translation for ticket in tickets])
        scheduler.close()
    assert found[0] == found[1]
    assert gpu.refused


def test_what_is_captured_without_enough_memory_runs_without_its_graph(
    bundles: Path, gpu: Recorded
) -> None:
    cpu, cuda = both(bundles, "macaron", "fp16")
    options = SearchOptions(beam_size=3, max_length=12, min_length=10, loop_guard=False)
    sentences = [Sentence(s.source, options) for s in random_sentences(5)]
    wanted = [f.hypotheses for f in decode(cpu, sentences)]
    gpu.capture_fails = True
    for _ in range(5):
        assert [f.hypotheses for f in decode(cuda, sentences)] == wanted
    assert gpu.refused
    assert not gpu.captures
