"""The way of a sentence: the modules of `serving` that one request of one sentence enters."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from types import FrameType

import pytest
from starlette.testclient import TestClient

from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.bundles import load_bundles
from serving.server.models.registry import Registry

ROOT = Path(__file__).resolve().parents[2]


def test_a_sentence_enters_no_more_modules_than_the_document_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stated = re.search(
        r"enters (\d+)\s+modules of `serving`", (ROOT / "docs/architecture.md").read_text()
    )
    assert stated
    (tmp_path / "macaron-de-en").symlink_to(ROOT / "models" / "macaron-de-en")
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered.add(frame.f_globals.get("__name__", ""))

    # Decoding threads are noted from their first call on: what they do before a request is emptied.
    threading.setprofile(note)
    settings = Settings(bundles=tmp_path, threads=1, decode_in="threads")
    registry = Registry(settings)
    body = {"q": "Guten Morgen, wie geht es dir?", "source": "de", "target": "en"}
    try:
        registry.start(load_bundles(settings))
        with TestClient(create_app(registry, settings)) as client:
            for _ in range(2):  # the second finds everything loaded
                entered.clear()
                assert client.post("/translate", json=body).status_code == 200
            found = sorted(name for name in entered if name.startswith("serving."))
    finally:
        threading.setprofile(None)
        registry.close()
    assert len(found) > 40  # else it was not seen
    assert len(found) <= int(stated[1]), found
