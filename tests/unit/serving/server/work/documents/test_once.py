"""Sentences that a document has several times: each is decoded once, by the real scheduler."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from serving.server.http.settings import Settings
from tests.unit.serving.echo import ByteTokenizer, EchoStepper, EchoTranslator, served, wait_until
from tests.unit.serving.search.fake_stepper import FakeState

SHARED = "Das steht immer da."
ASKED = "Wie geht es?"
MANY = 480
"""Paragraphs: 30 times as many as one job has."""


class CountingStepper(EchoStepper):
    """Counts the sentences that are encoded, which is once for each that is decoded; stops when
    there are more than `most`."""

    def __init__(self) -> None:
        super().__init__()
        self.sentences: Counter[str] = Counter()
        self.most = sys.maxsize

    def encode(self, sources: Sequence[Sequence[int]]) -> FakeState:
        """The caches, as of the echo."""
        self.sentences.update(ByteTokenizer().decode(list(source)) for source in sources)
        if self.sentences.total() > self.most:
            self.gate.clear()
        return super().encode(sources)


@contextlib.contextmanager
def counting(folder: Path, threads: int) -> Iterator[tuple[Any, CountingStepper]]:
    """A server with documents in a folder."""
    stepper = CountingStepper()
    echo = EchoTranslator(stepper=stepper, search={"beam_size": 1})
    with served(echo, settings=Settings(documents=folder, threads=threads)) as (client, _):
        stepper.sentences.clear()  # it has been warmed up
        yield client, stepper


def own_sentences(count: int) -> list[str]:
    """Different ones, without figures: sentences that differ in figures alone are equal."""
    letters = itertools.product("aeiou", "nrst", "aeiou", "nrst", "aeiou")
    return [f"Da ist {''.join(each)}." for each in itertools.islice(letters, count)]


def text_of(sentences: list[str]) -> str:
    return "\n".join(f"{sentence} {SHARED}" for sentence in sentences) + "\n"


def send(client: TestClient, text: str) -> str:
    data = {"source": "de", "target": "en"}
    sent = client.post("/documents", files={"file": ("a.txt", text)}, data=data)
    assert sent.status_code == 200, sent.text
    return str(sent.json()["id"])


def state_of(client: TestClient, id: str) -> Any:
    return client.get(f"/documents/{id}").json()


def finish(client: TestClient, id: str) -> str:
    """The document, once it is done."""
    wait_until(lambda: state_of(client, id)["state"] in ("done", "failed"), 300)
    assert (state_of(client, id)["state"], state_of(client, id)["warnings"]) == ("done", [])
    return client.get(f"/documents/{id}/result").text


@contextlib.contextmanager
def asking(client: TestClient) -> Iterator[None]:
    """A client that asks several times a second."""
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(0.2):
            body = {"q": ASKED, "source": "de", "target": "en"}
            assert client.post("/translate", json=body).json()["translatedText"] == ASKED

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.5)
    yield
    ended.set()
    thread.join(30)


@pytest.mark.parametrize(
    ("threads", "asked"),
    [
        (2, False),
        pytest.param(1, False, marks=pytest.mark.slow),
        pytest.param(1, True, marks=pytest.mark.slow),
        pytest.param(2, True, marks=pytest.mark.slow),
    ],
)
def test_a_sentence_that_all_paragraphs_share_is_decoded_once(
    tmp_path: Path, threads: int, asked: bool
) -> None:
    own = own_sentences(MANY)
    with counting(tmp_path, threads) as (client, stepper):
        with asking(client) if asked else contextlib.nullcontext():
            assert finish(client, send(client, text_of(own))) == text_of(own)
        assert bool(stepper.sentences.pop(ASKED, 0)) == asked
        assert stepper.sentences == dict.fromkeys([*own, SHARED], 1)
        assert stepper.sentences.total() == MANY + 1


def test_who_goes_on_decodes_no_sentence_of_those_that_are_kept(tmp_path: Path) -> None:
    own = own_sentences(200)
    with counting(tmp_path, 1) as (client, before):
        before.most = 60
        id = send(client, text_of(own))
        wait_until(lambda: not before.gate.is_set())
        client.portal.call(client.app.state.backend.documents.close)
    done = len((tmp_path / id / "progress.jsonl").read_text().splitlines())
    assert 16 <= done <= 60
    with counting(tmp_path, 1) as (client, after):
        documents = client.app.state.backend.documents
        client.portal.call(documents.start)
        assert finish(client, id) == text_of(own)
        client.portal.call(documents.close)
    assert not after.sentences.keys() & {*own[:done], SHARED}
    assert after.sentences.keys() | before.sentences.keys() == {*own, SHARED}
    assert set(after.sentences.values()) == {1}
