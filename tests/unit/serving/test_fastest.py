"""How many threads are fastest: tried once for a bundle and a machine, and kept."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from serving import fastest as room
from serving.fastest import fastest


class Trials:
    """Loads and probes in made-up time."""

    def __init__(self, seconds: dict[int, float]) -> None:
        self.seconds, self.loaded, self.now, self.probes = seconds, list[int](), 0.0, 0

    def load(self, count: int) -> int:
        """Note it."""
        self.loaded.append(count)
        return count

    def probe(self, count: int) -> None:
        """Take its time."""
        self.probes += 1
        self.now += self.seconds[count]

    def perf_counter(self) -> float:
        """The made-up time."""
        return self.now


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MACARON_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def bundle(tmp_path: Path, name: str = "bundle") -> Path:
    """A folder with a manifest of its own."""
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps({"name": name}))
    return folder


def run(
    trials: Trials,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    threads: int = 4,
    use: str = "read",
) -> int:
    with monkeypatch.context() as patch:
        patch.setattr(room.time, "perf_counter", trials.perf_counter)
        return fastest(trials.load, trials.probe, threads, use, folder)


@pytest.mark.parametrize(
    ("seconds", "most", "chosen"),
    [
        ({1: 0.03, 2: 0.015, 3: 0.008}, 3, 3),
        ({1: 0.03, 2: 0.015, 4: 0.0148}, 4, 2),  # more threads that gain nothing are left alone
        ({1: 0.01, 2: 0.03, 4: 0.005, 6: 0.02}, 6, 4),
    ],
)
def test_the_fastest_is_tried_once(
    seconds: dict[int, float],
    most: int,
    chosen: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = Trials(seconds), Trials(seconds)
    folder = bundle(tmp_path)
    assert run(first, monkeypatch, folder, most) == chosen
    assert first.loaded == list(seconds)
    assert run(second, monkeypatch, folder, most) == chosen
    assert (second.loaded, second.probes) == ([chosen], 0)


def test_what_cannot_be_the_fastest_any_more_is_not_tried_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = Trials({1: 0.01, 2: 0.0095, 4: 0.004})
    assert run(trials, monkeypatch, bundle(tmp_path)) == 4
    assert trials.probes == 6 + 4 + 6  # the first of each warms up


def test_one_thread_needs_no_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = Trials({})
    assert run(trials, monkeypatch, bundle(tmp_path), 1) == 1
    assert trials.probes == 0


def test_what_is_kept_is_of_one_bundle_use_number_and_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {1: 0.03, 2: 0.01, 4: 0.05}
    folder = bundle(tmp_path)
    run(Trials(seconds), monkeypatch, folder)
    for changed in (
        {"folder": bundle(tmp_path, "other")},
        {"folder": folder, "use": "generate latency"},
        {"folder": folder, "threads": 2},
    ):
        trials = Trials(seconds)
        run(trials, monkeypatch, **changed)  # type: ignore[arg-type]
        assert trials.probes > 0
    for name, value in (("_processor", lambda _: "another"), ("_SESSIONS", "another")):
        with monkeypatch.context() as patch:
            patch.setattr(room, name, value)
            trials = Trials(seconds)
            run(trials, monkeypatch, folder)
            assert trials.probes > 0


@pytest.mark.parametrize(
    "content",
    ["", "{", "[1]", '{"a": 1}', '{"a": ["x", 1]}', "\x00" * 10],
)
def test_a_file_that_cannot_be_read_is_made_anew(
    content: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir()
    (cache / "threads.json").write_text(content)
    seconds, folder = {1: 0.03, 2: 0.01}, bundle(tmp_path)
    assert run(Trials(seconds), monkeypatch, folder, 2) == 2
    again = Trials(seconds)
    assert run(again, monkeypatch, folder, 2) == 2
    assert again.probes == 0


def test_what_is_old_or_out_of_range_is_tried_anew(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, folder = {1: 0.03, 2: 0.01}, bundle(tmp_path)
    run(Trials(seconds), monkeypatch, folder, 2)
    kept = json.loads((cache / "threads.json").read_text())
    ((key, (count, when)),) = kept.items()
    for spoilt in ([count, when - 31 * 24 * 3600], [7, when]):
        (cache / "threads.json").write_text(json.dumps({key: spoilt}))
        trials = Trials(seconds)
        assert run(trials, monkeypatch, folder, 2) == 2
        assert trials.probes > 0


def test_a_folder_that_cannot_be_written_only_costs_the_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MACARON_CACHE", str(tmp_path / "file"))
    assert run(Trials({1: 0.03, 2: 0.01}), monkeypatch, bundle(tmp_path), 2) == 2


def _keep_many(file: Path, first: int) -> None:
    for number in range(first, first + 25):
        room._keep(file, str(number), 1)


def test_processes_that_keep_at_once_lose_nothing(tmp_path: Path) -> None:
    context: Any = multiprocessing.get_context("spawn")
    file = tmp_path / "threads.json"
    processes = [context.Process(target=_keep_many, args=(file, n * 25)) for n in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert len(json.loads(file.read_text())) == 100
