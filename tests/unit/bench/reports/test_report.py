"""What the report says of results made by hand."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from bench.reports.report import Machine, versions
from bench.runs.decoding.engine import Agreement, EnginePlan, Result, Roofline
from bench.runs.decoding.engine_report import (
    Bleu,
    score_translations,
    to_markdown,
    unequal,
    write_record,
)
from bench.subjects.materials import DecodedModel
from bench.subjects.scenarios import (
    EAGER,
    OUR_FP32,
    OUR_INT8,
    OUR_SHORTLIST,
    PEER_FP32,
    Scenario,
    Setting,
)
from bench.systems.processes.repetitions import Measured
from bench.systems.processes.worker import RepetitionTime, SlotCount
from export.comparison.significance import BleuChange
from training.models import JointConfig, ModelConfig, TransformerConfig, build_model

MACHINE = Machine(cpu="a CPU", cores=2, processors=2, memory_gib=4.0, others=0.01)
SCENARIO = Scenario(8, 5)
SIZES: dict[str, Any] = {"model_dim": 16, "num_heads": 2, "num_decoder_layers": 4, "vocab_size": 9}


def make_result(subject: DecodedModel) -> Result:
    """System n needs n times 100 ms a sentence."""
    measured = [
        Measured(system, Setting(1, 1), SCENARIO, [RepetitionTime(0.1 * n, 1, 25, 2**20)])
        for n, system in enumerate(subject.comparison.systems, 1)
    ]
    result = Result(measured=measured)
    result.agreements = [Agreement(OUR_FP32, subject.comparison.rival, 5, 64, 63, 1, 1e-6)]
    result.rooflines = [Roofline(result.best(OUR_INT8, SCENARIO), [60.0])]
    result.slots = {25: [SlotCount(25, 10), SlotCount(100, 20)]}
    return result


def make_subject(config: ModelConfig) -> DecodedModel:
    return DecodedModel("random", build_model(config), [[4, 3]], [], None)


PLAN = EnginePlan([SCENARIO], repetitions=1, cores=2)


def test_a_joint_model_has_no_column_of_ctranslate2(tmp_path: Path) -> None:
    subject = make_subject(JointConfig(**SIZES))
    result = make_result(subject)
    bleu = Bleu({}, "")
    text = to_markdown("command", MACHINE, subject, PLAN, result, bleu)
    lines = text.splitlines()
    assert "CTranslate2 int8" not in text
    assert "| 8 | 5 | this engine, int8 | 1 x 1 | 300.0 (300.0-300.0) | 83 | 1 | 0.33 |" in lines
    assert "Same outputs as PyTorch eager fp32, beam 5: 63 of 64 (98.44%); 1 more are ties" in text
    assert "batch 8, beam 5, 1 x 1: alone 60.00 of 300.00 ms/sentence" in text
    assert "reaches 20% of their speed" in text
    # 25 and 100 of 125 slots; a slot has 8 caches of 16 floats for each of 10 and 20 positions.
    assert "beam 5: 0.50 of beams x steps (limit 0.5); worst of 2 sentences 0.80;" in text
    assert "cache, KiB/sentence: 562, reordered by parent 938.  " in text

    write_record(tmp_path / "record.json", "command", MACHINE, subject, PLAN, result, bleu)
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["agreement"][0]["rival"] == EAGER.name
    assert record["rows"][1]["speed_over"] == {EAGER.name: pytest.approx(0.5)}
    assert record["int8_products"] == [
        {
            "workers": 1,
            "threads": 1,
            "batch": 8,
            "beam_size": 5,
            "top_k": 0,
            "ms_per_sentence": [60.0],
            "share": pytest.approx(0.2),
        }
    ]
    (slots,) = record["slots"]
    assert slots["shares"] == [0.2, 0.8]
    assert slots["reordered_bytes"] == 125 * 15 * 8 * 16 * 4


def test_a_baseline_stands_beside_both() -> None:
    subject = make_subject(TransformerConfig(**SIZES))
    text = to_markdown("command", MACHINE, subject, PLAN, make_result(subject), Bleu({}, ""))
    lines = text.splitlines()
    (head,) = [line for line in lines if line.startswith("| batch")]
    assert head.endswith(" | speed / PyTorch eager | speed / CTranslate2 int8 |")
    assert (
        "| 8 | 5 | this engine, int8 | 1 x 1 | 300.0 (300.0-300.0) | 83 | 1 | 0.33 | 1.67 |"
        in lines
    )
    assert "(limit 0.7)" in text
    assert "cache, KiB/sentence: 31, reordered by parent 62.  " in text


def test_quality_stands_beside_that_of_ctranslate2_of_the_same_kind() -> None:
    subject = make_subject(TransformerConfig(**SIZES))
    close, far = BleuChange(-0.3, -0.5, -0.1), BleuChange(-0.4, -0.6, -0.21)
    bleu = Bleu({}, "", {(OUR_FP32, 5): close, (OUR_INT8, 5): far, (OUR_SHORTLIST, 5): far})
    text = to_markdown("command", MACHINE, subject, PLAN, make_result(subject), bleu)
    assert (
        f"{OUR_FP32.name}, beam 5: -0.30 (-0.50 to -0.10); {OUR_INT8.name}, beam 5: -0.40" in text
    )
    (line,) = unequal(bleu)  # an interval that reaches 0.2 does not tell; lists are each its own
    assert line.startswith(f"beam 5: BLEU of {OUR_INT8.name} is -0.40 (-0.60 to -0.21) beside")


def test_bleu_of_the_same_translations_is_the_same() -> None:
    texts = ["one of them is here", "two of them are here"]
    subject = replace(make_subject(TransformerConfig(**SIZES)), references=texts)
    result = make_result(subject)
    result.translations = {(OUR_FP32, 5): texts, (PEER_FP32, 5): texts, (OUR_INT8, 5): texts}
    bleu = score_translations(subject, result)
    assert bleu.changes == {(OUR_FP32, 5): BleuChange(0.0, 0.0, 0.0)}
    assert bleu.scores[OUR_INT8, 5] == pytest.approx(100)


def test_versions_are_those_of_the_modules_that_are_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As onnxruntime-gpu is beside the package for the CPU, on a machine without CTranslate2.
    monkeypatch.setattr(onnxruntime, "__version__", "9.8.7")
    monkeypatch.setattr(onnxruntime, "cuda_version", "13.0")
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.setenv("CT2_USE_MKL", "1")
    found = versions()
    assert found["onnxruntime"] == "9.8.7 (CUDA 13.0)"
    assert "ctranslate2" not in found
