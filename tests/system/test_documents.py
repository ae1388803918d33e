"""A document on a server that is killed: the next one goes on, and decodes nothing twice."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving import Translator
from tests.system.conftest import MODELS
from tests.system.faults import seconds_until
from tests.system.server import PAIR, Server, running

pytestmark = pytest.mark.slow

MODEL = "macaron-de-en"
SHARED = "Die Tür war wie immer offen."
PARAGRAPHS = 600


def own_sentences() -> list[str]:
    """A different one for each paragraph, without figures, which are no part of what is decoded."""
    who = ("Anna", "Peter", "Maria", "Thomas", "Julia", "Karl", "Sophie", "Max", "Laura", "Jan")
    does = ("kauft", "verkauft")
    what = ("Brot", "Milch", "Äpfel", "Käse", "Fisch", "Wein")
    where = ("Berlin", "Hamburg", "Bremen", "Köln", "Leipzig")
    every = itertools.product(who, does, what, where)
    return [f"{a} {b} {c} in {d}." for a, b, c, d in every]


def state_of(server: Server, id: str) -> Any:
    return httpx.get(f"{server.url}/documents/{id}", timeout=60).json()


def num_decoded(server: Server) -> int:
    """Sentences that this process has decoded to the end."""
    text = httpx.get(f"{server.url}/metrics", timeout=60).text
    found = re.search(rf'^macaron_decoded_total{{model="{MODEL}"}} (\S+)$', text, re.MULTILINE)
    return int(float(found[1])) if found else 0


def whole_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def test_a_document_goes_on_after_a_kill_and_nothing_is_decoded_twice(tmp_path: Path) -> None:
    bundles, kept = tmp_path / "bundles", tmp_path / "documents"
    shutil.copytree(MODELS / MODEL, bundles / MODEL)
    source, expected = tmp_path / "a.txt", tmp_path / "expected.txt"
    own = own_sentences()
    source.write_text("".join(f"{sentence} {SHARED}\n" for sentence in own))
    Translator(bundles / MODEL, threads=1).translate_file(source, expected)
    settings = {"MACARON_DOCUMENTS": str(kept)}
    with running(bundles, tmp_path, **settings) as server:
        files = {"file": ("a.txt", source.read_bytes())}
        sent = httpx.post(f"{server.url}/documents", files=files, data=PAIR, timeout=60)
        id = sent.json()["id"]
        seconds_until(lambda: state_of(server, id)["done"] >= 50, 120)
        server.kill()
    _, *sentences = whole_lines(kept / id / "sentences.jsonl")
    units = whole_lines(kept / id / "progress.jsonl")
    assert 50 <= len(units) < PARAGRAPHS
    assert len(units) < len(sentences)  # the one that all share, too
    with running(bundles, tmp_path, **settings) as server:
        seconds_until(lambda: state_of(server, id)["state"] in ("done", "failed"), 240)
        state = state_of(server, id)
        assert (state["state"], state["warnings"]) == ("done", [])
        assert (state["done"], state["total"]) == (PARAGRAPHS, PARAGRAPHS)
        assert num_decoded(server) == PARAGRAPHS + 1 - len(sentences)
        result = httpx.get(f"{server.url}/documents/{id}/result", timeout=60).content
    assert result == expected.read_bytes()
    assert not list(kept.glob("*/*.jsonl"))  # both are of no use any more
