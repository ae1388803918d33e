"""What can be written for which device, and what is said of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from export.errors import ExportError
from export.graphs.writing import (
    ALLOWED,
    check_groups,
    check_heads,
    check_precision,
    check_shortlist,
    choose_activations,
)
from training.models import LanguageModelConfig

SIZES: dict[str, Any] = {"model_dim": 32, "ffn_dim": 8, "num_decoder_layers": 1, "vocab_size": 9}


@pytest.mark.parametrize("target", ALLOWED)
@pytest.mark.parametrize("precision", ["fp32", "int8", "fp16", "bf16", "w8a16", "int4"])
def test_precisions_are_of_a_device(target: str, precision: str) -> None:
    if precision in ALLOWED[target]:
        check_precision(precision, target)
        return
    with pytest.raises(ExportError, match=f"--target {target} --precision {precision} is not sup"):
        check_precision(precision, target)


def test_heads_on_a_gpu_are_of_whole_units() -> None:
    narrow = LanguageModelConfig(**SIZES, num_heads=8)
    check_heads(narrow, "cpu")
    with pytest.raises(ExportError, match=r"a multiple of 8 features, got 4 \(num_heads 8\)"):
        check_heads(narrow, "cuda")
    check_heads(LanguageModelConfig(**SIZES, num_heads=4), "cuda")


def test_grouped_queries_are_of_a_cpu() -> None:
    grouped = LanguageModelConfig(**SIZES, num_heads=4, num_kv_heads=2)
    check_groups(grouped, "cpu")
    with pytest.raises(
        ExportError, match=r"support grouped queries \(num_heads 4, num_kv_heads 2\)"
    ):
        check_groups(grouped, "cuda")
    check_groups(LanguageModelConfig(**SIZES, num_heads=4), "cuda")


def test_shortlists_are_of_a_cpu() -> None:
    check_shortlist("cpu")
    with pytest.raises(ExportError, match="--shortlist needs --target cpu, got cuda; leave it out"):
        check_shortlist("cuda")


@pytest.mark.parametrize(
    ("precision", "target", "asked", "found"),
    [
        ("int8", "cpu", None, "static"),
        ("int8", "cpu", "row", "row"),
        ("int8", "cpu", "row16", "row16"),
        ("fp32", "cpu", None, "row"),
        ("fp16", "cuda", None, "row"),
        ("fp32", "cpu", "row", "row"),
    ],
)
def test_activations_are_those_that_are_asked_for(
    precision: str, target: str, asked: Any, found: str
) -> None:
    assert choose_activations(precision, target, asked) == found


@pytest.mark.parametrize("asked", ["static", "row16"])
def test_scales_need_integers(asked: Any) -> None:
    with pytest.raises(
        ExportError, match=f"--activations {asked} needs --precision int8, got fp32"
    ):
        choose_activations("fp32", "cpu", asked)
    with pytest.raises(ExportError, match="--precision int8 is not supported"):
        choose_activations("int8", "cuda", asked)
