"""Sentences that the jobs of a document share."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from serving.errors import DeadlineExceededError, InvalidTextError
from serving.queue.ticket import RequestTiming
from serving.server.work.translating.sentences import DocumentSentences
from serving.text.alignment import Link
from serving.text.memory.segments import Draft
from serving.translation.results import TextHypothesis, Translation
from serving.translation.ticket import Completed, Request, TranslationTicket

TIMING = RequestTiming(0.0, 0.0, 0.0, 1)
LINKS = (Link((0, 1), (0, 1), 0.5),)


class Submitted:
    """Stands for a scheduler; the texts that it was given, and their tickets."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.tickets: list[TranslationTicket] = []

    def __call__(self, requests: Sequence[Request]) -> list[TranslationTicket]:
        new = [TranslationTicket() for _ in requests]
        self.texts += [request.text for request in requests]
        self.tickets += new
        return new

    def end(self) -> None:
        """Capitals for all."""
        for text, ticket in zip(self.texts, self.tickets, strict=True):
            words = text.upper()
            best = TextHypothesis(words, 0.0, 0.0, (), (), finished=True, alignment=LINKS)
            ticket.complete(Completed(Translation(words, (best,)), TIMING))


@pytest.fixture
def submitted() -> Submitted:
    return Submitted()


@pytest.fixture
def sentences(tmp_path: Path) -> Iterator[DocumentSentences]:
    sentences = DocumentSentences(tmp_path / "sentences", "a document")
    yield sentences
    sentences.close()


def requests(*texts: str, timeout_s: float = 9.0) -> list[Request]:
    return [Request(text=text, source="de", target="en", timeout_s=timeout_s) for text in texts]


def found(tickets: Sequence[TranslationTicket]) -> list[str]:
    return [ticket.result(timeout=0).translation.text for ticket in tickets]


def test_equal_sentences_of_one_job_and_of_the_next_are_submitted_once(
    sentences: DocumentSentences, submitted: Submitted
) -> None:
    first = sentences.submit_all(requests("a", "b", "a"), "model", submitted)
    second = sentences.submit_all(requests("b", "c"), "model", submitted)
    submitted.end()
    third = sentences.submit_all(requests("c", "a"), "model", submitted)
    sentences.save()
    fourth = sentences.submit_all(requests("b", "b"), "model", submitted)
    assert [found(each) for each in (first, second, third, fourth)] == [
        ["A", "B", "A"],
        ["B", "C"],
        ["C", "A"],
        ["B", "B"],
    ]
    assert submitted.texts == ["a", "b", "c"]


def test_what_decides_a_translation_tells_sentences_apart(
    sentences: DocumentSentences, submitted: Submitted
) -> None:
    asked = [
        Request(text="a", source="de", target="en"),
        Request(text="a", source="de", target="fr"),
        Request(text="a", source="de", target="en", alignments=True),
        Request(text="a", source="de", target="en", draft=Draft("b", "B")),
    ]
    sentences.submit_all(asked, "model", submitted)
    sentences.submit_all(asked[:1], "another model", submitted)
    assert len(submitted.texts) == 5


def test_a_later_process_goes_on_with_what_is_saved(tmp_path: Path, submitted: Submitted) -> None:
    first = DocumentSentences(tmp_path / "sentences", "a document")
    first.submit_all(requests("a", "b", timeout_s=1.0), "model", submitted)
    submitted.end()
    first.save()
    first.submit_all(requests("c"), "model", submitted)
    submitted.end()
    first.close()  # as if it had been killed before it could save
    later = DocumentSentences(tmp_path / "sentences", "a document")
    tickets = later.submit_all(requests("a", "b", "c", timeout_s=2.0), "model", submitted)
    assert submitted.texts == ["a", "b", "c", "c"]
    assert found(tickets[:2]) == ["A", "B"]
    assert tickets[0].result().translation.linked.links == LINKS
    later.close()
    other = DocumentSentences(tmp_path / "sentences", "another document")
    other.submit_all(requests("a"), "model", submitted)
    other.close()
    assert submitted.texts[4:] == ["a"]


@pytest.mark.parametrize("saved", [False, True])
def test_a_sentence_that_failed_is_submitted_again(
    sentences: DocumentSentences, submitted: Submitted, saved: bool
) -> None:
    (ticket,) = sentences.submit_all(requests("a"), "model", submitted)
    ticket.fail(DeadlineExceededError("too late"))
    if saved:
        sentences.save()
    (again,) = sentences.submit_all(requests("a"), "model", submitted)
    assert submitted.texts == ["a", "a"]
    assert not again.done


def test_an_error_names_the_text_at_fault_among_all(
    sentences: DocumentSentences, submitted: Submitted
) -> None:
    sentences.submit_all(requests("a"), "model", submitted)

    def refuse(asked: Sequence[Request]) -> list[TranslationTicket]:
        assert [request.text for request in asked] == ["b", "c"]
        error = InvalidTextError("no text")
        error.index = 1
        raise error

    with pytest.raises(InvalidTextError) as raised:
        sentences.submit_all(requests("a", "b", "b", "c"), "model", refuse)
    assert raised.value.index == 3
    sentences.submit_all(requests("a", "b", "b", "c"), "model", submitted)
    assert submitted.texts == ["a", "b", "c"]


def test_jobs_that_come_at_once_submit_a_sentence_once(
    sentences: DocumentSentences, submitted: Submitted
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(asked: Sequence[Request]) -> list[TranslationTicket]:
        begun.set()
        assert go_on.wait(10)
        return submitted(asked)

    def ask() -> None:
        sentences.submit_all(requests("a"), "model", slow)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
        assert begun.wait(10)
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert submitted.texts == ["a"]
