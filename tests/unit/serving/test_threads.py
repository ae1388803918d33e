"""Presets: who gets which threads, and what a process may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving import threads
from serving.generation.presets import load_generator
from serving.processes.presets import MOST_WORKERS, load_translator
from tests.unit.serving.echo import echo_manifest

FOR_CPU = echo_manifest()


@pytest.mark.parametrize("count", [1, 3, 2 * MOST_WORKERS])
def test_throughput_decodes_a_batch_a_thread(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: dict[str, int] = {}

    def load(_: Path, *, threads: int, workers: int, limits: object) -> None:
        loaded.update(threads=threads, workers=workers)

    monkeypatch.setattr("serving.processes.presets.Translator", load)
    monkeypatch.setattr("serving.processes.presets.parse_manifest", lambda folder: FOR_CPU)
    load_translator(Path("bundle"), "throughput", count)
    assert loaded == {"threads": count, "workers": min(count, MOST_WORKERS)}


@pytest.mark.parametrize(("preset", "chosen"), [("latency", 1), ("throughput", 2)])
def test_a_language_model_gets_the_threads_that_its_preset_gains_from(
    preset: threads.Preset, chosen: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many prompts two threads make more in the time, of one they do not."""
    now = 0.0

    class Slow:
        def __init__(self, _: Path, *, threads: int, limits: None) -> None:
            self.threads = threads

        def generate(self, prompts: list[str], _: object) -> None:
            nonlocal now
            now += len(prompts) / self.threads if len(prompts) > 1 else 1.0

    monkeypatch.setenv("MACARON_CACHE", str(tmp_path))
    monkeypatch.setattr("serving.fastest.time.perf_counter", lambda: now)
    monkeypatch.setattr("serving.generation.presets.Generator", Slow)
    monkeypatch.setattr("serving.generation.presets.parse_manifest", lambda folder: FOR_CPU)
    assert load_generator(Path("bundle"), preset, 2).threads == chosen  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("quota", "allowed"),
    [
        ("max 100000", 64),
        ("150000 100000", 2),
        ("20000 100000", 1),
        ("6400000 50000", 64),
        ("", 64),
    ],
)
def test_a_containers_quota_bounds_the_threads(
    quota: str, allowed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: set(range(64)))
    assert threads.default_threads(tmp_path / "cpu.max") == allowed
    assert threads.default_threads(tmp_path / "no such file") == 64
