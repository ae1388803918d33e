"""Servers are loaded in turns, and the table says by what a rival is slower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.errors import BenchError
from bench.machine.load import Load
from bench.reports.report import Machine
from bench.runs.rivals import servers
from bench.runs.rivals.servers import (
    OURS,
    ServerRivals,
    ServerRivalsPlan,
    ServerSystem,
    ServerTurns,
    compare_servers,
    server_rivals_markdown,
    take_server_turns,
)

MODELS = Path(__file__).resolve().parents[5] / "models"
PLAN = ServerRivalsPlan(
    bundle=MODELS / "macaron-de-en",
    run=Path("runs/shipped"),
    texts=["a", "b", "c", "d", "e", "f"],
    clients=[1, 3],
    seconds=10,
    pythons={},
    repetitions=2,
    cores=2,
)
SLOW = "slow"


def load(latencies_ms: Sequence[float], failed: int = 0) -> Load:
    return Load(list(latencies_ms), failed, 2.0, 0.1)


class Loads:
    """Takes the place of the generator of load; some calls are not answered."""

    def __init__(self, unanswered: Sequence[tuple[str, int]] = ()) -> None:
        self.calls: list[tuple[str, int, float, str]] = []
        self._unanswered = list(unanswered)

    def __call__(self, url: str, bodies: Any, clients: int, seconds: float) -> Load:
        assert sorted(body["q"] for body in bodies) == list(PLAN.texts)
        self.calls.append((url, clients, seconds, bodies[0]["q"]))
        count = sum(call[0] == url for call in self.calls)
        if (url, count) in self._unanswered:
            return load([], failed=7)
        return load([10.0, 20.0] if url == OURS else [40.0, 60.0])


def run(
    loads: Loads, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[ServerTurns], dict[str, str], list[str]]:
    monkeypatch.setattr(servers, "full_load", loads)
    bodies = [{"q": text} for text in PLAN.texts]
    left_out: dict[str, str] = {}
    told: list[str] = []
    asked = {name: (name, bodies) for name in (OURS, SLOW)}
    return take_server_turns(asked, PLAN, told.append, left_out), left_out, told


def test_systems_take_turns_and_begin_at_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = Loads()
    found, left_out, told = run(loads, monkeypatch)
    turns = [
        (name, clients, seconds, first)
        for clients in (1, 3)
        for seconds, first in ((2.0, "a"), (10, "c"), (10, "e"))
        for name in (OURS, SLOW)
    ]
    assert loads.calls == turns
    assert [(each.clients, each.system) for each in found] == [
        (1, OURS),
        (1, SLOW),
        (3, OURS),
        (3, SLOW),
    ]
    assert all(len(each.loads) == 2 for each in found)
    assert left_out == {}
    assert told[:2] == ["1 clients: warming up", "1 clients: repetition 1"]


def test_a_rival_that_answers_nothing_in_its_warm_up_has_no_row_for_these_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, left_out, _ = run(Loads([(SLOW, 1)]), monkeypatch)
    assert [(each.clients, each.system) for each in found] == [(1, OURS), (3, OURS), (3, SLOW)]
    assert left_out == {"slow, 1 clients": "none of 7 requests of 1 clients was answered"}


@pytest.mark.parametrize(("name", "call"), [(SLOW, 2), (OURS, 1)])
def test_a_server_that_stops_answering_ends_the_run(
    name: str, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BenchError, match=f"^{name}: none of 7 requests of 1 clients was answered"):
        run(Loads([(name, call)]), monkeypatch)


def written(found: ServerRivals) -> str:
    machine = Machine("a processor", 2, 2, 8.0, 0.0, others_after=0.0)
    return server_rivals_markdown("command", machine, PLAN, found)


def test_tables_have_ratios_within_a_repetition() -> None:
    ours = [load([10.0] * 4), load([20.0] * 2)]
    theirs = [load([40.0] * 2, failed=0), load([20.0] * 1, failed=0)]
    found = ServerRivals(
        [ServerTurns(8, OURS, ours), ServerTurns(8, SLOW, theirs)],
        [ServerSystem(OURS, 6, 300 * 2**20), ServerSystem(SLOW, 4, 2**31)],
        {"other": "it is not there"},
        "libretranslate 9.3",
    )
    text = written(found)
    assert f"| 8 | {OURS} | 1.5 (1.0-2.0) | 15 | 15 (10-20) | 0 | 1 | 1 |" in text
    assert (
        "| 8 | slow | 0.8 (0.5-1.0) | 30 | 30 (20-40) | 0 | 2.00 (2.00-2.00) | 2.50 (1.00-4.00) |"
    ) in text
    assert f"| {OURS} | 6 of 6 | 300 |\n| slow | 4 of 6 | 2,048 |" in text
    assert "Rivals: libretranslate 9.3; its CTranslate2 chooses by itself" in text
    assert text.endswith("\n\nother is left out: it is not there.")
    assert "beam_size 4, length_penalty 0.2" in text


def test_latencies_of_requests_that_failed_have_no_ratio() -> None:
    theirs = ServerTurns(8, SLOW, [load([40.0], failed=1)])
    found = ServerRivals([ServerTurns(8, OURS, [load([10.0])]), theirs])
    text = written(found)
    assert "| 8 | slow | 0.5 (0.5-0.5) | 40 | inf (inf-inf) | 1 | 1.00 (1.00-1.00) |  |" in text
    assert "No rival could be loaded." in text


def test_too_few_texts_are_said_before_anything_starts(tmp_path: Path) -> None:
    plan = replace(PLAN, clients=[1, 4])
    with pytest.raises(BenchError, match=r"--texts must have at least 8 different lines .* got 6"):
        compare_servers(plan, tmp_path, lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_other_languages_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = SimpleNamespace(source_language="fr", target_language="en")
    run = SimpleNamespace(recipe=SimpleNamespace(data=data))
    monkeypatch.setattr(servers, "load_trained", lambda _: run)
    with pytest.raises(BenchError, match="--bundle must translate from fr to en as the run"):
        compare_servers(PLAN, tmp_path, lambda _: None)
