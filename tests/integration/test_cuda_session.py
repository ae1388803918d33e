"""The CUDA session against a recorded device: real searches give what the CPU session gives, and do
on the way nothing that a GPU would not allow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.runtime.language_stepper import LanguageStepper
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.beam import decode
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions
from serving.search.sampled_batch import GenerationBatch
from serving.search.sentence import Sentence
from tests.integration.test_cuda_graphs import LANGUAGE, Written, write
from tests.integration.test_export import decode_joining, every_hypothesis, random_sentences
from tests.integration.test_language_decoding import output, random_ids
from tests.recorded_device import Recorded, recorded_gpu

pytestmark = pytest.mark.usefixtures("traced_once")

PRECISIONS = ["fp32", "fp16"]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cuda")


@pytest.fixture
def gpu() -> Iterator[Recorded]:
    with recorded_gpu() as recorded:
        yield recorded


def stepper_of(written: Written, target: str) -> Any:
    manifest = written.manifest.model_copy(update={"target": target})
    kind = LanguageStepper if manifest.task == "generate" else OnnxStepper
    return kind(written.folder, manifest, 1)


def both(bundles: Path, name: str, precision: str) -> tuple[Any, Any]:
    """The same graphs on the CPU and on the recorded GPU."""
    written = write(bundles, name, "cuda", precision)
    return stepper_of(written, "cpu"), stepper_of(written, "cuda")


def with_prefixes(count: int, options: SearchOptions) -> list[Sentence]:
    return [
        dataclasses.replace(sentence, target_prefix=[7, 30, 12, 9, 41, 8, 5, 11, 6][: i % 10])
        for i, sentence in enumerate(random_sentences(count, options=options))
    ]


@pytest.mark.parametrize("name", ["standard", "macaron", "joint fast"])
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
    assert decode_joining(cuda, list(sentences)) == wanted


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
