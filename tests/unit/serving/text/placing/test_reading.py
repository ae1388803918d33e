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


@pytest.mark.parametrize(
    ("written", "language", "read"),
    [
        ("«Das ist gut», sagte er.", "de", '"Das ist gut", sagte er.'),
        ("Wählen Sie ‚Ja‘ oder ‚Nein‘.", "de", 'Wählen Sie "Ja" oder "Nein".'),  # noqa: RUF001
        ("»Wo bist du?«, fragte sie.", "de", "»Wo bist du?«, fragte sie."),
        ("„Er rief: ‚Nein!‘“", "de", "„Er rief: 'Nein!'“"),  # noqa: RUF001
        ("Hans‘ Hund, gibt‘s", "de", "Hans‘ Hund, gibt‘s"),  # noqa: RUF001
        ("Le mot « chat » est court.", "fr", "Le mot «chat» est court."),
        ("« — Oui », dit-il.", "fr", "« – Oui», dit-il."),
        ("La palabra «gato» es corta.", "es", "La palabra «gato» es corta."),
    ],
)
def test_rare_quotation_marks_are_read_as_others(written: str, language: str, read: str) -> None:
    assert edited(written, reading_edits(written, language, "en")) == read


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
    assert document.written(0, Translated(document.sentences[0]), ended=True) == source


def test_terms_are_found_in_the_sentence_as_it_is_read() -> None:
    document = divided("One dog—my {name}—two cats.")
    (term,) = terms_of([TermIndex([("cats", "Katzen")], "en", "de")], document, 0)
    assert document.sentences[0][slice(*term.span)] == "cats"


def test_an_abbreviation_may_be_a_term() -> None:
    document = divided("My {name} weighs 5 lbs today.")
    (term,) = terms_of([TermIndex([("lbs", "Pfd.")], "en", "de")], document, 0)
    assert document.sentences[0][slice(*term.span)] == "pounds"


def test_a_sentence_that_would_become_too_long_is_read_as_it_is_written() -> None:
    assert divided("One dog—two cats.", longest=18).sentences == ["One dog—two cats."]


def test_sentences_of_other_languages_are_read_as_they_are_written() -> None:
    assert divided("One dog—two cats.", target="ja").sentences == ["One dog—two cats."]


def test_a_mark_that_is_read_as_another_need_not_be_spelt() -> None:
    document = Document("Das Wort ‚Haus‘ ist kurz.", "text")  # noqa: RUF001
    document.divide("de", lambda _: True, target="en", spells=lambda text: "‚" not in text)  # noqa: RUF001
    assert document.sentences == ['Das Wort "Haus" ist kurz.']
