"""The bench of a GPU's systems, with the CPU in the GPU's place: all but speed is the same."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bench.machine.gpu import MeasuredGpu
from bench.reports.report import look_at_machine
from bench.runs.decoding import language
from bench.runs.decoding.engine import EnginePlan, run_engine
from bench.runs.decoding.engine_report import Bleu, to_markdown
from bench.subjects.materials import random_subject
from bench.subjects.scenarios import (
    COMPARISONS,
    GPU_EAGER,
    GPU_FP16,
    GPU_FP16_GRAPHS,
    GPU_FP16_STREAMS,
    GPU_PEER,
    GPU_TENSORRT,
    GPU_TENSORRT_GRAPHS,
    Comparison,
    Scenario,
    System,
)
from serving.errors import BundleError

pytestmark = pytest.mark.slow
GPU = MeasuredGpu("A GPU", "580.65.06", 80_000, bandwidth=3e12, operations=8e14)


def no_library(name: str | None = None) -> None:
    raise BundleError("no TensorRT here")


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, System]:
    """The systems of a GPU, which run on the CPU; they are still written as for a GPU."""
    systems = {s.name: replace(s, device="cpu") for s in (GPU_EAGER, GPU_FP16, GPU_PEER)}
    for system in (GPU_FP16_GRAPHS, GPU_FP16_STREAMS):
        systems[system.name] = replace(system, device="cpu")
    systems |= {s.name: s for s in (GPU_TENSORRT, GPU_TENSORRT_GRAPHS)}
    monkeypatch.setattr("export.engines.engine.find_tensorrt", no_library)
    monkeypatch.setattr(System, "on_gpu", property(lambda system: True))
    may_be_missing = GPU_TENSORRT, GPU_TENSORRT_GRAPHS, systems[GPU_PEER.name]
    for module in ("runs.decoding.engine", "subjects.materials"):
        monkeypatch.setattr(f"bench.{module}.MAY_BE_MISSING", may_be_missing)
    monkeypatch.setenv("MACARON_DEVICE", "cpu")
    given = COMPARISONS["cross", "cuda"]
    comparison = Comparison(
        systems=tuple(systems[s.name] for s in given.systems if s.name in systems),
        ours=systems[given.ours.name],
        rival=systems[given.rival.name],
        beside=tuple(systems[s.name] for s in given.beside),
        slot_limits=given.slot_limits,
    )
    monkeypatch.setitem(COMPARISONS, ("cross", "cuda"), comparison)
    return systems


def test_language_models_are_measured_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("GPU_EAGER", "GPU_FP16", "GPU_FP16_GRAPHS", "GPU_PEER")
    systems = {name: replace(getattr(language, name), device="cpu") for name in names}
    monkeypatch.setattr(System, "on_gpu", property(lambda system: True))
    monkeypatch.setenv("MACARON_DEVICE", "cpu")
    monkeypatch.setitem(language.SYSTEMS, "cuda", tuple(systems.values()))
    monkeypatch.setitem(language.RIVALS, "cuda", (systems["GPU_EAGER"], systems["GPU_PEER"]))
    monkeypatch.setattr(language, "MAY_BE_MISSING", (systems["GPU_PEER"],))
    found = language.compare_rivals(
        "lm_tiny", 1, [Scenario(3, 1, 1)], 1, 1, lambda line: None, "cuda"
    )
    machine = replace(look_at_machine(1), gpu=GPU)
    text = language.rivals_markdown("command", machine, "subject", found)
    (head,) = re.findall(r"^\| batch .*$", text, re.MULTILINE)
    assert head.endswith("| GPU memory, MiB | speed / PyTorch eager |")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| 3 |")]
    assert [row[2] for row in rows] == [
        "PyTorch eager, fp16",
        "this engine, fp16",
        "this engine, fp16, CUDA graphs",
    ]
    # CTranslate2 has no fp16 on a CPU, as it may lack its libraries on a GPU.
    assert "CTranslate2, float16 is left out: " in text


def test_the_table_has_each_system_and_its_shares(on_cpu: dict[str, System]) -> None:
    subject = replace(random_subject("tiny", 1, 8), device="cuda")
    plan = EnginePlan([Scenario(1, 2), Scenario(4, 2)], repetitions=1, cores=1)
    result = run_engine(subject, plan, lambda line: None)
    machine = replace(look_at_machine(1), gpu=GPU)
    text = to_markdown("command", machine, subject, plan, result, Bleu({}, ""))
    (head,) = re.findall(r"^\| batch .*$", text, re.MULTILINE)
    assert "| GPU memory, MiB | speed / PyTorch eager |" in head
    assert head.endswith("| bandwidth | matrix speed |")
    assert "A GPU, 80000 MiB, driver 580.65.06; measured in this run: 3000 GB/s in copies" in text
    rows = [line.split(" | ") for line in text.splitlines() if re.match(r"\| [14] \|", line)]
    assert len(rows) == 2 * 4
    assert all(float(row[-2][:-1]) > 0 for row in rows)
    # CTranslate2 has no fp16 on a CPU, as it may lack its libraries on a GPU.
    left_out = [line for line in text.splitlines() if "is left out" in line]
    assert [line.split(" is left out: ")[0] for line in left_out] == [
        GPU_TENSORRT.name,
        GPU_TENSORRT_GRAPHS.name,
        GPU_PEER.name,
    ]
    assert "no TensorRT here" in left_out[1]
    assert "float16" in left_out[2]
    (agreement,) = result.agreements
    assert agreement.system == on_cpu[GPU_FP16.name]
    assert agreement.identical + agreement.ties >= 0.75 * agreement.sentences
    assert result.slots[25]
    assert not result.rooflines
