"""The CUDA session on a GPU (`pytest -m gpu`): skipped where there is none.

The same checks as on the recorded device (test_cuda_session.py), less those of the bit: a GPU
rounds otherwise than a CPU, and its products need not give a row the same bits in every batch.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from export.engines.engine import export_engines
from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Manifest
from serving.queue.limits import GPU_LIMITS, BatchLimits
from serving.runtime.device import open_device
from serving.runtime.gpu.cuda_driver import DriverError, look
from serving.runtime.gpu.cuda_memory import on_gpu
from serving.runtime.gpu.cuda_switches import GRAPHS_SWITCH, STREAMS_SWITCH
from serving.runtime.gpu.tensorrt_session import TensorRtSession
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Finished, Sentence
from serving.search.options import SearchOptions
from serving.search.sampling.batch import GenerationBatch
from serving.translation.offline import decode_in_batches
from tests.integration.decoding.test_language_decoding import output, random_ids
from tests.integration.export.test_bundle import decode_joining, random_sentences
from tests.integration.export.test_engines import bundle_of
from tests.integration.gpu.test_cuda_graphs import LANGUAGE, Written, write
from tests.integration.gpu.test_cuda_session import both, stepper_of


def _gpu() -> bool:
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return False
    try:
        look()
    except DriverError:
        return False
    return True


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not _gpu(), reason="no CUDA device, or not onnxruntime-gpu"),
    pytest.mark.usefixtures("traced_once"),
]

ROOT = Path(__file__).parents[3]
NEAR = {"fp32": 1e-4, "fp16": 5e-3}
"""By which scores may differ from those on the CPU, nats a token."""
OPTIONS = SearchOptions(beam_size=4, num_hypotheses=1, max_length=24, loop_guard=False)
_REQUESTS = int(os.environ.get("MACARON_GPU_REQUESTS", "10000"))


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gpu")


def check_close(wanted: list[Finished], found: list[Finished], precision: str) -> None:
    """The same outputs but for near ties."""
    equal = 0
    for one, other in zip(wanted, found, strict=True):
        equal += one.hypotheses[0].tokens == other.hypotheses[0].tokens
        assert other.hypotheses[0].score == pytest.approx(
            one.hypotheses[0].score, abs=NEAR[precision]
        )
    assert equal >= len(wanted) - 2


@pytest.mark.parametrize("name", ["standard", "macaron", "joint fast"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_whole_searches_are_those_of_the_cpu_but_for_near_ties(
    bundles: Path, name: str, precision: str
) -> None:
    cpu, cuda = both(bundles, name, precision)
    sentences = random_sentences(24, options=OPTIONS)
    check_close(decode(cpu, sentences), decode(cuda, sentences), precision)


@pytest.mark.parametrize("name", ["macaron", "joint fast"])
def test_a_sentence_comes_out_the_same_in_any_batch(bundles: Path, name: str) -> None:
    cuda = both(bundles, name, "fp16")[1]
    sentences = random_sentences(16, options=OPTIONS)
    alone = [decode(cuda, [sentence])[0] for sentence in sentences]
    check_close(alone, decode(cuda, sentences), "fp16")
    joined = decode_joining(cuda, list(sentences))
    tokens = [finished.hypotheses[0].tokens for finished in alone]
    assert sum(a[0].tokens == b for a, b in zip(joined, tokens, strict=True)) >= 14


def test_requests_that_do_not_fit_the_memory_at_once_are_answered_all_the_same(
    bundles: Path,
) -> None:
    cuda = both(bundles, "macaron", "fp16")[1]
    sentences = dict(enumerate(random_sentences(256, options=OPTIONS)))
    wanted = dict(decode_in_batches(cuda, sentences, limits=BatchLimits(max_rows=8)))
    # Less than what a batch of all of them takes is left of the GPU's memory.
    held = [on_gpu(2**28) for _ in range(look().free_bytes // 2**28)]
    held += [on_gpu(2**22) for _ in range(max(0, look().free_bytes // 2**22 - 4))]
    found = dict(decode_in_batches(cuda, sentences, limits=GPU_LIMITS))
    del held
    tokens = [[each[key].hypotheses[0].tokens for key in sentences] for each in (wanted, found)]
    assert sum(a == b for a, b in zip(*tokens, strict=True)) >= 240  # near ties may fall otherwise


@pytest.mark.parametrize("name", LANGUAGE)
def test_language_models_continue_as_on_the_cpu(bundles: Path, name: str) -> None:
    found = []
    for stepper in both(bundles, name, "fp16"):
        batch = GenerationBatch(stepper)
        batch.add([output(n, random_ids(5 + 30 * n), temperature=0.0) for n in range(4)])
        events = [[event.log_prob for event in batch.step()] for _ in range(3)]
        batch.close()
        found.append(events)
    np.testing.assert_allclose(found[0], found[1], atol=0.02)


@pytest.mark.parametrize("graphs", ["on", "off"])
def test_batches_in_two_streams_come_out_as_on_the_cpu(
    bundles: Path, monkeypatch: pytest.MonkeyPatch, graphs: str
) -> None:
    # In a process of its own: the GPU is opened once for all bundles of one.
    written = write(bundles, "macaron", "cuda", "fp16")
    monkeypatch.setenv(GRAPHS_SWITCH, graphs)
    monkeypatch.setenv(STREAMS_SWITCH, "2")
    program = (
        "import sys; from pathlib import Path; "
        "from tests.integration.gpu.test_gpu import in_two_streams; "
        "in_two_streams(Path(sys.argv[1]))"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(written.folder)], cwd=ROOT, check=True, timeout=300
    )


def in_two_streams(folder: Path) -> None:
    """Decode with two threads, again and again."""
    written = Written(folder, Manifest.model_validate_json((folder / "made.json").read_text()))
    cpu, cuda = stepper_of(written, "cpu"), stepper_of(written, "cuda", batches=2)
    sentences = dict(enumerate(random_sentences(24, options=OPTIONS)))
    wanted = dict(decode_in_batches(cpu, sentences))
    for _ in range(5):
        found = dict(decode_in_batches(cuda, sentences, 2, BatchLimits(max_rows=5)))
        check_close(*([each[key] for key in sentences] for each in (wanted, found)), "fp16")


@pytest.mark.parametrize("name", ["macaron", "joint fast"])
@pytest.mark.parametrize("graphs", ["on", "off"])
def test_engines_decode_as_the_cpu_does(
    bundles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, graphs: str
) -> None:
    pytest.importorskip("tensorrt")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(GRAPHS_SWITCH, graphs)
    bundle = bundle_of(bundles, name, "fp16")
    export_engines(
        bundle, tmp_path / "engines", profile="rows=4:16,capacity=64", library="tensorrt"
    )
    manifest = read_manifest(tmp_path / "engines")
    device = open_device(tmp_path / "engines", manifest)
    assert device.use.name == "tensorrt", device.use.reason
    engines = OnnxStepper(tmp_path / "engines", manifest, 1, device=device)
    on_cpu = manifest.model_copy(update={"target": "cpu", "engines": ()})
    cpu = OnnxStepper(tmp_path / "engines", on_cpu, 1)
    sentences = random_sentences(16, options=OPTIONS)
    wanted = decode(cpu, sentences)
    for _ in range(4):
        check_close(wanted, decode(engines, sentences), "fp16")
    step = engines._step
    assert isinstance(step, TensorRtSession)
    captured = sum(bound.captured for bound in step._own.bound.values())
    assert (captured > 0) == (graphs == "on")


def test_bf16_runs(bundles: Path) -> None:
    stepper = stepper_of(write(bundles, "macaron", "cuda", "bf16"), "cuda")
    found = decode(stepper, random_sentences(8, options=OPTIONS))
    assert all(np.isfinite(finished.hypotheses[0].score) for finished in found)


@pytest.mark.slow
def test_memory_is_flat_over_many_requests(bundles: Path) -> None:
    cuda = both(bundles, "macaron", "fp16")[1]
    sentences = random_sentences(32, options=OPTIONS)

    def serve(requests: int) -> int:
        for start in range(0, requests, 32):
            decode(cuda, [sentences[(start + n) % 32] for n in range(1 + start // 32 % 32)])
        return look().free_bytes

    serve(1024)
    before = serve(1024)
    assert serve(_REQUESTS) >= before - 2**20


def test_attention_takes_a_kernel_that_keeps_no_scores_in_memory(bundles: Path) -> None:
    written = write(bundles, "macaron", "cuda", "fp16")
    program = (
        "import sys; from pathlib import Path; "
        "from tests.integration.gpu.test_gpu import told_by; told_by(Path(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(written.folder)],
        cwd=ROOT,
        env={**os.environ, "ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    kernels = set(re.findall(r"SdpaKernel=(\w+)", done.stdout + done.stderr))
    assert kernels == {"EFFICIENT_ATTENTION"}


def told_by(folder: Path) -> None:
    """Decode with a bundle, in a process of which somebody reads what ONNX Runtime says."""
    manifest = Manifest.model_validate_json((folder / "made.json").read_text())
    stepper: Any = stepper_of(Written(folder, manifest), "cuda")
    decode(stepper, [Sentence([5, 6, 7, 3], OPTIONS)])
