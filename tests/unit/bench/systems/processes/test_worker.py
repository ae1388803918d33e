"""A worker process: memory of its own, failures in one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.errors import BenchError
from bench.machine.memory import peak_rss
from bench.subjects.ctranslate2 import convert_to_ctranslate2
from bench.subjects.job import BenchJob, id_token
from bench.subjects.scenarios import Scenario
from bench.systems.processes.worker import Worker
from tests.unit.bench.random_models import VOCAB_SIZE, ending_model, sources

ROOT = Path(__file__).resolve().parents[5]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> BenchJob:
    folder = tmp_path_factory.mktemp("worker") / "peer"
    vocabulary = [id_token(i) for i in range(VOCAB_SIZE)]
    convert_to_ctranslate2(ending_model(), vocabulary, folder, "float32")
    return BenchJob(
        "ctranslate2", str(folder), "float32", workers=2, threads=1, tokenizer_file=None
    )


def test_a_worker_measures_in_a_process_of_its_own(job: BenchJob) -> None:
    ids = sources(12)
    with Worker("peer", job, ids) as worker:
        timing = worker.measure(Scenario(4, 2), 30, [0, 1, 2, 3, 4, 5])
        assert timing.sentences == 6
        assert timing.seconds > 0
        assert 0 < timing.tokens <= 6 * 30
        # This process holds PyTorch, that one does not.
        assert 2**20 < timing.peak_memory < peak_rss()
        outputs = worker.outputs(Scenario(5, 2), 30)
        again = worker.outputs(Scenario(12, 2), 30)
    assert len(outputs) == 12
    assert [output.tokens for output in outputs] == [output.tokens for output in again]
    assert all(output.score < 0 for output in outputs)


def test_what_cannot_be_loaded_is_one_line(job: BenchJob, tmp_path: Path) -> None:
    wrong = replace(job, folder=str(tmp_path))
    with pytest.raises(BenchError, match=r"^a peer: .*model\.bin"):
        Worker("a peer", wrong, sources(1))


def test_a_worker_that_dies_is_named(job: BenchJob) -> None:
    with Worker("a peer", job, sources(1)) as worker:
        os.kill(worker._conversation.pid, signal.SIGKILL)
        with pytest.raises(BenchError, match="the process of a peer ended with status -9"):
            worker.outputs(Scenario(1, 1), 5)


@pytest.mark.parametrize(
    ("job", "libraries"),
    [
        # Programs need none.
        (("onnx", "models/macaron-de-en", "int8", 1, 1, "tokenizer.model"), []),
        (("onnx", "models/joint-fast-de-en", "int8", 1, 1, "tokenizer.model"), []),
        (("ctranslate2", "nowhere", "int8", 1, 1, None), ["ctranslate2"]),
    ],
)
def test_a_worker_holds_only_its_own_engine(job: tuple[Any, ...], libraries: list[str]) -> None:
    code = (
        "import sys\n"
        "from bench.systems.processes import worker\n"
        "try:\n"
        f"    worker.load(worker.BenchJob(*{job!r}))\n"
        "except RuntimeError:\n"
        "    pass\n"
        "print(*sorted({'torch', 'onnxruntime', 'ctranslate2'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == libraries, done.stderr
