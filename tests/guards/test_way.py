"""The way of a sentence: the modules of `serving` that one request of one sentence enters."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType

import pytest
from starlette.testclient import TestClient

from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.bundles import load_bundles
from serving.server.models.registry import Registry

ROOT = Path(__file__).resolve().parents[2]
BODY = {"q": "Guten Morgen, wie geht es dir?", "source": "de", "target": "en"}
PASSED = {
    "serving.server.dialects.native.routes",
    "serving.translation.scheduler",
    "serving.queue.decoder",
    "serving.search.beams.beam",
    "serving.runtime.translation_stepper",
}
"""What a sentence cannot do without: where one is missing, its thread was not seen."""
STATED = {
    "modules": r"enters (\d+)\s+modules",
    "moves": r"makes (\d+)\s+different moves",
    "returns": r"(\d+)\s+of\s+them\s+back",
    "between packages": r"(\d+)\s+between\s+packages",
}
REQUESTS = 30
"""On a busy machine most of them see threads take turns otherwise; the shortest way counts."""
Calls = Mapping[int, Sequence[str]]
"""The modules of the functions that each thread called, in order."""


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> list[Calls]:
    """Of equal requests, one after the other, to a server that has answered before."""
    folder = tmp_path_factory.mktemp("bundles")
    (folder / "macaron-de-en").symlink_to(ROOT / "models" / "macaron-de-en")
    settings = Settings(bundles=folder, threads=1, decode_in="threads")
    registry = Registry(settings)
    found: list[Calls] = []
    with noted_calls() as calls:
        try:
            registry.start(load_bundles(settings))
            with TestClient(create_app(registry, settings)) as client:
                for _ in range(REQUESTS):
                    calls.clear()
                    assert client.post("/translate", json=BODY).status_code == 200
                    found.append({thread: list(names) for thread, names in list(calls.items())})
        finally:
            registry.close()
    return found[1:]  # the second one finds everything loaded


@contextmanager
def noted_calls() -> Iterator[dict[int, list[str]]]:
    """What threads that begin within it call."""
    calls: dict[int, list[str]] = defaultdict(list)

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        # Generated methods, such as `__eq__` of dataclasses, are called as a dict happens to look.
        written = not frame.f_code.co_filename.startswith("<")
        if event == "call" and written and name.startswith("serving."):
            calls[threading.get_ident()].append(name)

    threading.setprofile(note)
    try:
        yield calls
    finally:
        threading.setprofile(None)


def measures(calls: Calls) -> dict[str, int]:
    """How long a way is: different modules, and different moves from one to the next."""
    moves: set[tuple[str, str]] = set()
    returns: set[tuple[str, str]] = set()
    for names in calls.values():
        seen: set[str] = set()
        for move in pairwise(names):
            seen.add(move[0])
            if move[0] != move[1]:
                moves.add(move)
                if move[1] in seen:
                    returns.add(move)
    between = [move for move in moves if len({name.split(".")[1] for name in move}) == 2]
    modules = {name for names in calls.values() for name in names}
    return {
        "modules": len(modules),
        "moves": len(moves),
        "returns": len(returns),
        "between packages": len(between),
    }


def test_the_trace_sees_the_threads_of_a_request(ways: list[Calls]) -> None:
    for calls in ways:
        assert {name for names in calls.values() for name in names} >= PASSED


@pytest.mark.parametrize("measure", STATED)
def test_a_sentence_s_way_is_no_longer_than_the_document_says(
    ways: list[Calls], measure: str
) -> None:
    stated = re.search(STATED[measure], (ROOT / "docs/background/architecture.md").read_text())
    assert stated
    # The shortest: threads may take turns otherwise in one of them.
    assert min(measures(calls)[measure] for calls in ways) <= int(stated[1])
