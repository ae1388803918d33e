"""How many batches are decoded at once, by threads or by processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serving.bundle.folder import parse_manifest
from serving.processes import presets as loading

BUNDLE = Path(__file__).resolve().parents[4] / "models" / "macaron-de-en"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What would be loaded, of a bundle that is said to be for a GPU."""
    asked: list[tuple[str, dict[str, Any]]] = []
    manifest = parse_manifest(BUNDLE).model_copy(update={"target": "cuda"})
    monkeypatch.delenv("MACARON_DEVICE", raising=False)
    monkeypatch.setattr(loading, "parse_manifest", lambda _: manifest)
    for kind in ("Translator", "IsolatedTranslator"):
        monkeypatch.setattr(
            loading, kind, lambda folder, kind=kind, **options: asked.append((kind, options))
        )
    return asked


@pytest.mark.parametrize("preset", ["latency", "throughput"])
def test_a_gpu_has_one_process_or_threads_for_its_streams(
    monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, dict[str, Any]]], preset: Any
) -> None:
    loading.DecodingProcesses(preset, 4).load(BUNDLE)
    monkeypatch.setenv("MACARON_CUDA_STREAMS", "3")
    loading.DecodingProcesses(preset, 4).load(BUNDLE)
    loading.load_translator(BUNDLE, preset, 4)
    (first, one), *others = asked
    assert (first, one["processes"].size, one.get("tune", False)) == (
        "IsolatedTranslator",
        1,
        False,
    )
    assert [kind for kind, _ in others] == ["Translator"] * 2
    assert [(each["threads"], each["workers"]) for _, each in others] == [(1, 8)] * 2


def test_several_gpus_have_a_process_each_for_all_models(
    monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, dict[str, Any]]]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2,5")
    processes = loading.DecodingProcesses("throughput", 4)
    for _ in range(2):
        processes.load(BUNDLE)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    loading.DecodingProcesses("throughput", 4).load(BUNDLE)
    groups = [each["processes"] for _, each in asked]
    assert [group.size for group in groups] == [3, 3, 1]
    assert groups[0] is groups[1]
    processes.close()


def test_on_the_cpu_streams_count_for_nothing(
    monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, dict[str, Any]]]
) -> None:
    monkeypatch.setenv("MACARON_CUDA_STREAMS", "3")
    monkeypatch.setenv("MACARON_DEVICE", "cpu")
    loading.DecodingProcesses("throughput", 4).load(BUNDLE)
    loading.DecodingProcesses("latency", 4).load(BUNDLE)
    assert [(kind, each["processes"].size, each.get("tune", False)) for kind, each in asked] == [
        ("IsolatedTranslator", 4, False),
        ("IsolatedTranslator", 1, True),
    ]


@pytest.mark.parametrize(
    ("load", "here", "there"),
    [
        ("load_generator", "generation.presets.load_generator", "generator.IsolatedGenerator"),
        ("load_reader", "encoding.presets.load_reader", "reader.IsolatedReader"),
    ],
)
def test_other_models_have_a_process_on_each_of_several_gpus(
    monkeypatch: pytest.MonkeyPatch,
    asked: list[tuple[str, dict[str, Any]]],
    load: str,
    here: str,
    there: str,
) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(f"serving.{here}", lambda *_: sizes.append(0))
    monkeypatch.setattr(
        f"serving.processes.{there}", lambda _, processes, *__: sizes.append(processes.size)
    )
    for shown, streams, device in (
        ("1,2,5", "1", "auto"),
        ("5", "1", "auto"),
        ("1,2,5", "2", "auto"),
        ("1,2,5", "1", "cpu"),
    ):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
        monkeypatch.setenv("MACARON_CUDA_STREAMS", streams)
        monkeypatch.setenv("MACARON_DEVICE", device)
        getattr(loading.DecodingProcesses("throughput", 4), load)(BUNDLE)
    assert sizes == [3, 0, 0, 0]
    assert asked == []
