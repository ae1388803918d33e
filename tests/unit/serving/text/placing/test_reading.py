"""How sentences are read that models misread as they are written."""

from __future__ import annotations

import pytest

from serving.text.alignment import Link, word_spans
from serving.text.document import Document
from serving.text.edits import edited
from serving.text.glossary import TermIndex, terms_of
from serving.text.placing.placement import Translated
from serving.text.placing.reading import reading_edits


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("We have one problem—money.", "We have one problem – money."),
        ("El hombre —era viejo— no habló.", "El hombre – era viejo – no habló."),
        ("Es mentira —contestó él—.", "Es mentira – contestó él."),
        ("Il – 2 – est là –mais", "Il – 2 – est là – mais"),
        ("She waited -- 2 hours", "She waited – 2 hours"),
        ("The line Paris–London opens.", "The line Paris–London opens."),
        ("Pass --all or foo--bar, pages 3—4.", "Pass --all or foo--bar, pages 3—4."),
        ("—Sí.", "—Sí."),
    ],
)
def test_dashes_are_read_with_blanks(written: str, read: str) -> None:
    assert edited(written, reading_edits(written, "es", "en")) == read


def divided(source: str, target: str = "de", longest: int = 100) -> Document:
    document = Document(source, "text")
    document.divide("en", lambda text: len(text) <= longest, target=target)
    return document


def test_links_lead_to_the_sentence_as_it_is_written() -> None:
    source, output = "One dog—two cats.", "Ein Hund – zwei Katzen."
    document = divided(source)
    assert document.sentences == ["One dog – two cats."]
    words = zip(word_spans(document.sentences[0]), word_spans(output), strict=True)
    links = [Link(ours, theirs, 1.0) for ours, theirs in words]
    rendered = document.render([Translated(output, links)])
    assert rendered.text == output
    assert [source[slice(*link.source)] for link in rendered.links] == [
        *("One", "dog", "—", "two", "cats", ".")
    ]


def test_a_copied_sentence_comes_back_as_it_was_written() -> None:
    source = "One dog—two {name}."
    document = divided(source)
    links = [Link(span, span, 1.0) for span in word_spans(document.sentences[0])]
    rendered = document.render([Translated(document.sentences[0], links)])
    assert rendered.text == source
    assert all(link.source == link.target for link in rendered.links)
    assert document.written(0, document.sentences[0], ended=True) == source


def test_terms_are_found_in_the_sentence_as_it_is_read() -> None:
    document = divided("One dog—my {name}—two cats.")
    (term,) = terms_of([TermIndex([("cats", "Katzen")], "en", "de")], document, 0)
    assert document.sentences[0][slice(*term.span)] == "cats"


def test_a_sentence_that_would_become_too_long_is_read_as_it_is_written() -> None:
    assert divided("One dog—two cats.", longest=18).sentences == ["One dog—two cats."]


def test_sentences_of_other_languages_are_read_as_they_are_written() -> None:
    assert divided("One dog—two cats.", target="ja").sentences == ["One dog—two cats."]
