"""What a bench asks of a GPU, and what it makes of the answers; there need be none."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench.__main__ import main
from bench.errors import BenchError
from bench.machine.gpu import MeasuredGpu, look_at_gpu, used_memory
from bench.runs.decoding.gpu_work import work_of
from bench.subjects.materials import random_subject, write_materials
from bench.subjects.scenarios import GPU_EAGER, GPU_PEER, PEER_FP32
from bench.systems.pytorch.eager import EagerTranslator
from bench.systems.pytorch.eager_models import to_half
from tests.unit.bench.random_models import ending_joint_model, ending_model, sources
from training.models import TransformerConfig, TranslationModel, build_model

SMI = """#!/bin/sh
case "$*" in
  *memory.used*) echo 1234 ;;
  *) echo "A GPU, 580.65.06, 81559" ;;
esac
"""


def answer(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `script` stand for the driver's tool."""
    tool = folder / "nvidia-smi"
    tool.write_text(script)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_memory_is_what_the_driver_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(tmp_path, SMI, monkeypatch)
    assert used_memory() == 1234 * 2**20


def test_it_is_asked_about_the_gpu_that_cuda_lists_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = '#!/bin/sh\ncase "$*" in *--id=GPU-8b*) echo 77 ;; *) echo 1234 ;; esac\n'
    answer(tmp_path, script, monkeypatch)
    monkeypatch.setattr("bench.machine.gpu.first_uuid", lambda: "GPU-8b")
    assert used_memory() == 77 * 2**20


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_pytorch_that_does_not_see_the_gpu_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(tmp_path, SMI, monkeypatch)
    with pytest.raises(BenchError, match=r"^PyTorch \S+ does not see the A GPU; --device cuda"):
        look_at_gpu()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "No such file or directory: 'nvidia-smi'"),
        (
            "#!/bin/sh\necho 'NVIDIA-SMI has failed:\n no driver.'\nexit 9\n",
            "has failed: no driver.",
        ),
    ],
)
def test_a_machine_without_one_is_refused_before_the_work(
    script: str | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if script is not None:
        answer(tmp_path, script, monkeypatch)
    assert main(["engine", "--device", "cuda", "--shape", "tiny"]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith("error: --device cuda needs a GPU with its driver")
    assert said in told


def test_shortlists_are_for_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["engine", "--device", "cuda", "--shortlist"]) == 1
    assert "leave out --shortlist or --device cuda" in capsys.readouterr().err


def test_work_is_that_of_the_products_written_out() -> None:
    dim, ffn, vocab, length, steps, beams = 16, 24, 50, 7, 10, 3
    config = TransformerConfig(
        model_dim=dim, num_heads=2, ffn_dim=ffn, num_encoder_layers=2, num_decoder_layers=3,
        vocab_size=vocab,
    )  # fmt: skip
    batch = [[4] * length, [5] * length]
    work = work_of(build_model(config), batch, beams, steps)
    own, source, ffns = 4 * dim * dim, 2 * dim * dim, 2 * dim * ffn
    encoder = 2 * (own + ffns) + 3 * source
    decoder = 3 * (own + source + ffns) + dim * vocab
    tokens = len(batch) * length
    attention = 2 * 2 * tokens * length * dim  # of two layers, scores and mixtures
    assert work.weight_bytes == 2 * (encoder + steps * decoder)
    step = 2 * len(batch) * beams * decoder
    without = 2 * tokens * encoder + steps * step
    assert without <= work.operations <= without + 2 * attention


def test_shares_are_of_what_the_gpu_reached() -> None:
    config = TransformerConfig(model_dim=16, num_heads=2, num_decoder_layers=1, vocab_size=9)
    work = work_of(build_model(config), [[4, 3]], 1, 5)
    gpu = MeasuredGpu(
        "A GPU", "580", 80_000, bandwidth=work.weight_bytes, operations=work.operations
    )
    assert work.share(2.0, gpu) == (0.5, 0.5)


@pytest.mark.parametrize("make", [ending_model, lambda: ending_joint_model(encoder_layers=2)])
def test_the_rival_in_fp16_finds_what_it_finds_in_fp32(make: object) -> None:
    assert callable(make)
    model: TranslationModel = make()
    wanted = EagerTranslator(model).translate(sources(10), 3, 30)
    half = to_half(model)
    assert {p.dtype for p in half.parameters()} == {torch.float16}
    found = EagerTranslator(half).translate(sources(10), 3, 30)
    assert sum(a[0] == b[0] for a, b in zip(wanted, found, strict=True)) >= 8
    for (_, ours), (_, theirs) in zip(wanted, found, strict=True):
        assert theirs == pytest.approx(ours, abs=0.02)


def test_a_machine_without_ctranslate2_leaves_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    subject = replace(random_subject("tiny", 1, 2), device="cuda")
    missing = write_materials(subject, [GPU_EAGER, GPU_PEER], tmp_path)
    assert missing.keys() == {GPU_PEER}
    assert "ctranslate2" in missing[GPU_PEER]
    with pytest.raises(ImportError, match="ctranslate2"):  # a table of the CPU's is about it
        write_materials(subject, [PEER_FP32], tmp_path)
