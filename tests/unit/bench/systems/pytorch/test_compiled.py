"""PyTorch compiled finds what PyTorch eager finds, and nothing is compiled while time counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from bench.__main__ import main
from bench.errors import BenchError
from bench.subjects.materials import random_subject
from bench.subjects.models import random_model
from bench.subjects.scenarios import COMPILED, EAGER, OUR_FP32, Scenario, Setting
from bench.systems.processes.repetitions import repeat
from bench.systems.processes.worker import RepetitionTime, Worker
from bench.systems.pytorch.compiled import check_compiler
from bench.systems.pytorch.eager import EagerTranslator
from tests.unit.bench.random_models import sources
from training.models import PRESETS


def has_compiler() -> bool:
    try:
        check_compiler("cpu")
    except BenchError:
        return False
    return True


@pytest.fixture
def compiler_stats() -> Iterator[dict[str, int]]:
    """What the compiler counts; its settings and its code are this test's alone."""
    import torch._dynamo.utils
    import torch._inductor.config

    with (
        torch._inductor.config.patch(freezing=False),
        torch._dynamo.config.patch(recompile_limit=8, fail_on_recompile_limit_hit=False),
    ):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        yield torch._dynamo.utils.counters["stats"]
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.skipif(not has_compiler(), reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
def test_outputs_are_those_of_eager(compiler_stats: dict[str, int]) -> None:
    # The compiler's time grows with the layers, which are all alike to it.
    one_layer = replace(
        PRESETS["transformer_tiny"], num_encoder_layers=1, num_decoder_layers=1, vocab_size=400
    )
    wanted = EagerTranslator(random_model(one_layer, 3)).translate(sources(4), 2, 6)
    compiled = EagerTranslator(random_model(one_layer, 3), compile_model=True)
    graphs = []
    for _ in range(2):
        found = compiled.translate(sources(4), 2, 6)
        assert [tokens for tokens, _ in found] == [tokens for tokens, _ in wanted]
        scores = [score for _, score in wanted]
        assert [score for _, score in found] == pytest.approx(scores, abs=1e-4)
        graphs.append(compiler_stats["unique_graphs"])
    assert 1 < graphs[0] == graphs[1]  # the second time nothing is compiled


def test_it_stands_behind_eager_where_it_is_wanted() -> None:
    subject = random_subject("tiny", 1, 2)
    assert COMPILED not in subject.systems
    subject = replace(subject, compiled=True)
    assert subject.systems[:3] == (EAGER, COMPILED, OUR_FP32)
    assert len(set(subject.systems)) == len(subject.systems)


def test_a_machine_without_a_compiler_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert main(["engine", "--shape", "tiny", "--compiled"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == (
        "error: --compiled needs a C++ compiler (no-such-compiler; CXX names another one) for "
        "torch.compile, which is not found; install it, or leave --compiled out\n"
    )


class FakeWorker:
    """Notes which rows it is given."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []

    def measure(self, scenario: Scenario, max_length: int, rows: Sequence[int]) -> RepetitionTime:
        self.rows.append(list(rows))
        return RepetitionTime(1.0, len(rows), len(rows) * max_length, 1)


def test_all_sizes_are_compiled_before_time_counts() -> None:
    workers = {(system, Setting(1, 1)): FakeWorker() for system in (EAGER, COMPILED)}
    rows = list(range(8))
    given = cast(dict[Any, Worker], workers)
    repeat(Scenario(1, 2), given, 1, rows, 5, lambda _: None, forced=True)
    eager, compiled = workers.values()
    assert eager.rows == [rows[:2], rows]
    assert compiled.rows == [rows, rows]
