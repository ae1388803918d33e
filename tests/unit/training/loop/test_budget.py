"""The token budget that a device has memory for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

import training.loop.budget
from tests.toy.recipe import write_toy_recipe
from training.__main__ import main
from training.errors import ConfigError
from training.loop.budget import find_budget, free_bytes
from training.recipe.config import TranslationRecipe, load_recipe

CPU = torch.device("cpu")


def load(folder: Path, *overrides: str) -> TranslationRecipe:
    found = load_recipe(str(write_toy_recipe(folder)), ["data.token_budget=auto", *overrides])
    assert isinstance(found, TranslationRecipe)
    return found


def pretend(
    monkeypatch: pytest.MonkeyPatch, free: int | None, taken: Callable[[int], int]
) -> list[int]:
    """Let a device have so much memory, and budgets take what `taken` says; returns those tried."""
    tried: list[int] = []

    class FakeProbe:
        def __init__(self, *_: object) -> None:
            """No model is made."""

        def measure(self, budget: int) -> int:
            tried.append(budget)
            return taken(budget)

    monkeypatch.setattr(training.loop.budget, "free_bytes", lambda device: free)
    monkeypatch.setattr(training.loop.budget, "MemoryProbe", FakeProbe)
    return tried


def test_the_budget_fits_into_half_of_the_memory_and_leaves_little_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = pretend(monkeypatch, 2_000_000, lambda budget: 100_000 + 200 * budget)
    with caplog.at_level(logging.INFO):
        budget = find_budget(load(tmp_path), CPU)
    assert 0.8 * 1_000_000 < 100_000 + 200 * budget <= 1_000_000
    assert all(100_000 + 200 * tokens <= 1_000_000 for tokens in tried)
    (line,) = caplog.messages
    assert line.startswith(f"data.token_budget: auto is {budget} on cpu, where an update takes ")


def test_several_processes_share_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, 4_000_000, lambda budget: 200 * budget)
    one, two = (find_budget(load(tmp_path), CPU, processes) for processes in (1, 2))
    assert one > two > 0.4 * one


def test_where_the_first_does_not_fit_it_is_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, 200_000, lambda budget: 200 * budget)
    assert find_budget(load(tmp_path), CPU) == 256


def test_the_budget_is_not_larger_than_is_of_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = pretend(monkeypatch, 10**15, lambda budget: 200 * budget)
    assert find_budget(load(tmp_path), CPU) == max(tried) == 8192


def test_a_joint_model_counts_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 10**15, lambda budget: budget)
    recipe = load(
        tmp_path, "model={preset: joint_fast_tiny, vocab_size: 300}", "data.max_pieces=20"
    )
    assert find_budget(recipe, CPU) == 8192 * 21


def test_where_memory_ends_the_last_that_fitted_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(budget: int) -> int:
        if budget > 3000:
            raise torch.OutOfMemoryError("out of memory")
        return budget

    pretend(monkeypatch, 10**15, taken)
    assert find_budget(load(tmp_path), CPU) == 2048


def test_a_system_that_tells_nothing_has_the_usual_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pretend(monkeypatch, None, lambda budget: budget)
    assert find_budget(load(tmp_path), CPU) == 4096
    assert "the system states no free memory" in caplog.text


def test_a_control_group_bounds_the_memory(tmp_path: Path) -> None:
    told = (tmp_path / "meminfo", tmp_path)
    assert free_bytes(CPU, *told) is None
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:     8000 kB\n")
    assert free_bytes(CPU, *told) == 8_192_000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes(CPU, *told) == 8_192_000
    (tmp_path / "memory.max").write_text("5000000\n")
    (tmp_path / "memory.current").write_text("2000000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 500000\n")
    assert free_bytes(CPU, *told) == 3_500_000


def test_any_other_word_is_refused(tmp_path: Path) -> None:
    recipe = str(write_toy_recipe(tmp_path))
    with pytest.raises(ConfigError, match="token_budget must be an integer or 'auto', got 'a'"):
        load_recipe(recipe, ["data.token_budget=a"])


def test_a_run_finds_its_budget_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recipe, run = write_toy_recipe(tmp_path), tmp_path / "run"
    words = [str(recipe), "--run", str(run), "data.token_budget=auto", "data.max_pieces=20"]
    words += ["loop.max_steps=2", "loop.bleu_sentences=0"]
    command = ["train", "--threads", "1", *words]
    assert main(["data", *words]) == 0  # finds none
    assert yaml.safe_load((run / "config.yaml").read_text())["data"]["token_budget"] == "auto"
    vocabulary = (run / "tokenizer.model").stat().st_mtime_ns
    caplog.set_level(logging.INFO)
    assert main([*command, "--stop-after", "1"]) == 0
    assert caplog.text.count("data.token_budget: auto is") == 1
    found = yaml.safe_load((run / "config.yaml").read_text())["data"]["token_budget"]
    assert 256 <= found <= 8192
    assert (run / "tokenizer.model").stat().st_mtime_ns == vocabulary
    pretend(monkeypatch, 10, lambda budget: budget)  # a smaller machine
    assert main(command) == 0
    assert caplog.text.count("data.token_budget: auto is") == 1
    assert yaml.safe_load((run / "config.yaml").read_text())["data"]["token_budget"] == found
