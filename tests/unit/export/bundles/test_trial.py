"""A bundle is tried by what its task is for, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from export.bundles import trial
from export.bundles.trial import try_bundle
from serving.errors import BundleError

SHIPPED = Path(__file__).resolve().parents[4] / "models" / "macaron-de-en"


class HereExecutor:
    """Runs in this process what a new one would."""

    def __init__(self, *_: object) -> None:
        """Starts nothing."""

    def __enter__(self) -> HereExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to end."""

    def submit(self, function: Callable[[Path], int], folder: Path) -> Future[int]:
        future: Future[int] = Future()
        future.set_result(function(folder))
        return future


class DyingExecutor(HereExecutor):
    def submit(self, function: Callable[[Path], int], folder: Path) -> Future[int]:
        future: Future[int] = Future()
        future.set_exception(BrokenProcessPool("killed"))
        return future


@pytest.mark.parametrize(
    ("task", "used"),
    [
        ("translate", ("Translator", "translate")),
        ("generate", ("Generator", "generate")),
        ("embed", ("TextReader", "read")),
        ("classify", ("TextReader", "read")),
    ],
)
def test_what_decodes_or_reads_is_of_the_task(
    task: str, used: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[tuple[str, str, Path]] = []

    def pretend(name: str, method: str) -> Callable[[Path], Any]:
        def load(folder: Path) -> SimpleNamespace:
            return SimpleNamespace(**{method: lambda *_: calls.append((name, method, folder))})

        return load

    held = iter([1000, 1700])
    monkeypatch.setattr(trial, "ProcessPoolExecutor", HereExecutor)
    monkeypatch.setattr(trial, "read_manifest", lambda _: SimpleNamespace(task=task))
    monkeypatch.setattr(trial, "resident_bytes", lambda: next(held))
    for name, method in (
        ("Translator", "translate"), ("Generator", "generate"), ("TextReader", "read"),
    ):  # fmt: skip
        monkeypatch.setattr(trial, name, pretend(name, method))
    assert try_bundle(tmp_path) == 700
    assert calls == [(*used, tmp_path)]


def test_a_process_that_ends_is_a_fault_of_the_bundle(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(trial, "ProcessPoolExecutor", DyingExecutor)
    with pytest.raises(BundleError, match=r"the process that loaded the bundle ended"):
        try_bundle(tmp_path)


def test_a_bundle_takes_memory_in_another_process() -> None:
    weights = sum(path.stat().st_size for path in SHIPPED.iterdir())
    assert weights / 4 < try_bundle(SHIPPED) < 2**30


def test_a_broken_bundle_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trial, "ProcessPoolExecutor", HereExecutor)
    with pytest.raises(BundleError, match="manifest"):
        try_bundle(tmp_path)
