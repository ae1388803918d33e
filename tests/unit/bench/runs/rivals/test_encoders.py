"""Vectors of rivals are those of the model; its files are what the rivals are given."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.errors import BenchError
from bench.runs.rivals.encoders import (
    PRODUCTS,
    REFERENCE,
    EncoderRivalsPlan,
    compare_encoders,
    mean_cosine,
    rivals_of,
)
from bench.systems.processes.rivals import ENGINE


def plan_of(source: Path) -> EncoderRivalsPlan:
    return EncoderRivalsPlan(source, source, {"a": ["a"]}, [1], {}, repetitions=1, threads=1)


def test_cosines_do_not_depend_on_lengths() -> None:
    first_BD = np.array([[1.0, 0.0], [0.0, 2.0]])
    assert mean_cosine(first_BD, 3 * first_BD) == pytest.approx(1.0)
    assert mean_cosine(first_BD, first_BD[::-1]) == pytest.approx(0.0)
    turned_BD = np.array([[1.0, 1.0], [0.0, 1.0]])
    assert mean_cosine(first_BD, turned_BD) == pytest.approx((1 + np.sqrt(0.5)) / 2)


def test_vectors_of_another_size_are_said() -> None:
    with pytest.raises(BenchError, match=r"the shape of the model's, \(2, 3\), got \(2, 4\)"):
        mean_cosine(np.ones((2, 4)), np.ones((2, 3)))


def test_the_engine_stands_first_and_every_product_is_there(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 6}))
    rivals = rivals_of(plan_of(tmp_path), tmp_path)
    assert [rivals[0].name, rivals[1].name] == [ENGINE, REFERENCE["cpu"]]
    assert {rival.product for rival in rivals} == {ENGINE, *PRODUCTS}
    assert len({rival.name for rival in rivals}) == len(rivals)
    sizes = [r.arguments["size"] for r in rivals if r.product == "fastembed"]
    assert sizes == [6, 6]


def test_on_a_gpu_only_sentence_transformers_is_beside_the_engine(tmp_path: Path) -> None:
    engine, half, whole = rivals_of(replace(plan_of(tmp_path), device="cuda"), tmp_path)
    assert (engine.name, whole.name) == (ENGINE, REFERENCE["cuda"])
    assert [rival.arguments["device"] for rival in (half, whole)] == ["cuda", "cuda"]
    assert [rival.arguments["half"] for rival in (half, whole)] == [True, False]


def test_a_folder_without_the_rivals_tokenizer_is_said(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"it has no tokenizer\.json"):
        compare_encoders(plan_of(tmp_path), tmp_path, lambda _: None)
