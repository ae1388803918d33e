"""What is concluded from measurements."""

from dataclasses import replace

import pytest

from bench.errors import BenchError
from bench.runs.decoding.engine import Agreement, Result, Roofline, compare, failures
from bench.subjects.job import BenchJob, SystemOutput
from bench.subjects.scenarios import (
    COMPILED,
    EAGER,
    OUR_FP32,
    OUR_INT8,
    PEER_FP32,
    PEER_INT8,
    Scenario,
    Setting,
    System,
)
from bench.systems.processes.repetitions import Measured
from bench.systems.processes.worker import RepetitionTime
from bench.systems.translation import check_device
from serving.runtime.session import DeviceUse

SCENARIO = Scenario(2, 5)


def output(text: str, score: float) -> SystemOutput:
    return SystemOutput(tuple(text), score, text)


def measured(setting: Setting, seconds: list[float], system: System = OUR_INT8) -> Measured:
    timings = [
        RepetitionTime(s, sentences=4, tokens=100, peak_memory=i) for i, s in enumerate(seconds)
    ]
    return Measured(system, setting, SCENARIO, timings)


def test_outputs_are_the_same_or_tie_or_differ() -> None:
    ours = [output("abc", -1.0), output("abd", -1.0), output("xy", -0.5), output("", -2.0)]
    theirs = [output("abc", -1.0002), output("abe", -1.0009), output("xz", -0.6), output("", -2.0)]
    agreement = compare(OUR_FP32, EAGER, 5, ours, theirs)
    assert (agreement.identical, agreement.ties, agreement.other) == (2, 1, 1)
    assert agreement.score_difference == pytest.approx(0.0002)


def test_the_fastest_setting_by_its_median_stands_for_a_system() -> None:
    steady = measured(Setting(1, 1), [0.4, 0.5, 0.6])
    lucky = measured(Setting(1, 2), [0.1, 0.7, 0.8])
    result = Result(measured=[lucky, steady])
    assert result.best(OUR_INT8, SCENARIO) is steady
    assert steady.median == pytest.approx(125.0)
    assert steady.tokens_per_second == pytest.approx(100 / 0.5)
    assert steady.peak_memory == 2
    with pytest.raises(ValueError, match="empty"):
        result.best(PEER_INT8, SCENARIO)


def test_speed_is_relative_to_the_rival_at_its_best() -> None:
    ours = measured(Setting(1, 1), [0.2])
    rivals = [measured(Setting(1, n), [seconds], EAGER) for n, seconds in ((1, 0.9), (2, 0.6))]
    result = Result(measured=[ours, *rivals])
    assert result.speed_over(EAGER, ours) == pytest.approx(3.0)
    assert result.speed_over(EAGER, rivals[0]) == pytest.approx(0.6 / 0.9)


def test_the_share_of_the_products_is_of_whole_calls() -> None:
    whole = measured(Setting(1, 1), [0.4, 0.2, 0.1])  # 50 ms a sentence
    assert Roofline(whole, [10.0, 30.0, 20.0]).share == pytest.approx(20 / 50)


def agreement(identical: int, ties: int = 0) -> Agreement:
    return Agreement(
        OUR_FP32, PEER_FP32, 5, sentences=200, identical=identical, ties=ties, score_difference=0.0
    )


@pytest.mark.parametrize(
    ("identical", "ties", "forced", "fails"),
    [
        (198, 2, False, False),
        (198, 0, False, False),
        (197, 3, False, True),
        (0, 200, True, False),  # a random model is full of ties: the share is only printed
    ],
)
def test_real_sentences_must_come_out_as_the_rivals(
    identical: int, ties: int, forced: bool, fails: bool
) -> None:
    result = Result(agreements=[agreement(identical, ties)])
    found = failures(result, forced=forced)
    assert bool(found) is fails
    if fails:
        assert found == [
            "beam 5: 98.50% of the sentences come out as CTranslate2's float32, at least 99% must"
        ]


def test_sentences_of_a_rival_are_named() -> None:
    found = failures(Result(agreements=[Agreement(COMPILED, EAGER, 5, 4, 3, 1, 0.0)]), forced=False)
    assert found == [
        "beam 5: 75.00% of the sentences of PyTorch compiled come out as PyTorch eager's fp32, at "
        "least 99% must"
    ]


def test_a_row_is_not_measured_on_another_device_than_it_says() -> None:
    job = BenchJob(
        kind="onnx", folder="none", precision="fp16", workers=1, threads=1, tokenizer_file=None
    )
    for asked, found in (("cpu", "cpu"), ("cuda", "cuda"), ("cpu", "cuda")):
        check_device(replace(job, device=asked), DeviceUse(found, "a reason"))
    with pytest.raises(BenchError, match="runs on cuda, not tensorrt: engines do not fit"):
        check_device(replace(job, device="tensorrt"), DeviceUse("cuda", "engines do not fit"))
