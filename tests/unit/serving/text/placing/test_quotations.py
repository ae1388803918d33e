"""Quotation marks of a translation."""

from __future__ import annotations

import pytest

from serving.text.alignment import Link, Span
from serving.text.document import Document
from serving.text.edits import edited
from serving.text.growing import GrowingTexts
from serving.text.placing.marks import mark_edits
from serving.text.placing.placement import Translated
from serving.text.placing.quotations import has_quotation, lost_quotation_edits


@pytest.mark.parametrize(
    ("source", "output", "target", "expected"),
    [
        ('"Let\'s go," he said.', "„Gehen wir,“ sagte er.", "de", "„Gehen wir“, sagte er."),
        ('"It rains," he said.', "„Es regnet,“, sagte er.", "de", "„Es regnet“, sagte er."),
        ('"I love it," said Mary.', "„Ich mag es“ sagte Mary.", "de", "„Ich mag es“, sagte Mary."),
        ("„Ich gehe“, sagte er.", '"I go" he said.', "en", '"I go," he said.'),
        (
            "Le mot « chat » est court.",
            'The word " chat" is short.',
            "en",
            'The word "chat" is short.',
        ),
    ],
)
def test_blanks_and_commas_beside_quotation_marks(
    source: str, output: str, target: str, expected: str
) -> None:
    assert edited(output, mark_edits(source, output, target)) == expected


@pytest.mark.parametrize(
    ("source", "output", "target"),
    [
        ("Der „Druck“, der wächst, ist groß.", 'The "pressure" that grows is high.', "en"),
        ("„Wo bist du?“, fragte er.", '"Where are you?" he asked.', "en"),
        ("He said yes.", "Il a dit « oui ».", "fr"),
        ('"I go," he said.', '"Voy" dijo.', "es"),
        ('A 5" disk and a "big" one', 'Eine 5" Platte und eine "große" Platte', "de"),
    ],
)
def test_other_quotations_stay(source: str, output: str, target: str) -> None:
    assert mark_edits(source, output, target) == []


def span(text: str, word: str) -> Span:
    begin = text.index(word)
    return begin, begin + len(word)


def links(source: str, output: str, words: dict[str, str]) -> list[Link]:
    """Links by words, of the output from the source."""
    return [Link(span(source, own), span(output, word), 1.0) for word, own in words.items()]


YEAR = "Er nannte es das „Jahr des Flusses“ gestern."


@pytest.mark.parametrize(
    ("output", "words", "expected"),
    [
        (
            "He called it the year of the river, yesterday.",
            {"He": "Er", "year": "Jahr", "of": "des", "river": "Flusses", "yesterday": "gestern"},
            'He called it the "year of the river", yesterday.',
        ),
        ("Jahr des Flusses it was.", {}, '"Jahr des Flusses" it was.'),
        ("The Jahr des Flusses2 year.", {"year": "Jahr"}, 'The Jahr des Flusses2 "year".'),
        # a word from elsewhere is among them, nothing is linked, only a sign is
        ("The year was that river.", {"year": "Jahr", "was": "es", "river": "Flusses"}, None),
        ("The year.", {"year": "es"}, None),
        ("He, yes.", {",": "Jahr"}, None),
        ('The year "river".', {"year": "Jahr"}, None),
    ],
)
def test_lost_marks_stand_around_what_translates_the_quotation(
    output: str, words: dict[str, str], expected: str | None
) -> None:
    edits = lost_quotation_edits(YEAR, output, links(YEAR, output, words), "en")
    assert edited(output, edits) == (expected or output)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("“Yes.”", "de", "„Ja.“"),
        ('"Yes."', "de", '"Ja."'),
        ("“Yes.”", "fr", "«\u00a0Ja.\u00a0»"),
        ("“Yes.”", "es", '"Ja."'),
        ("“Yes”, “no”", "de", "Ja."),
        ("“Yes.", "de", "Ja."),
        ("Yes”, he said, “and no.", "de", "Ja."),
        ('Yes", he said, "and no.', "de", "Ja."),
        ('A 5" disk', "de", "Ja."),
    ],
)
def test_a_whole_sentence_gets_the_marks_of_its_language(
    source: str, target: str, expected: str
) -> None:
    assert edited("Ja.", lost_quotation_edits(source, "Ja.", [], target)) == expected
    assert has_quotation(source) == (expected != "Ja.")


def test_a_document_asks_for_links_and_streams_a_sentence_with_a_quotation_whole() -> None:
    document = Document(f"Ja. {YEAR}", "text")
    document.divide("de", lambda _: True, target="en")
    assert document.needs_links
    output = "He called it the year of the river"
    given = links(YEAR, output, {"year": "Jahr", "of": "des", "river": "Flusses"})
    growing = GrowingTexts([document])
    assert growing.ended(0, "Yes.") == (0, "Yes. ")
    assert growing.update(1, output[:20]) is None
    assert growing.ended(1, f"{output}.", given) == (0, f'Yes. He called it the "{output[17:]}".')
    rendered = document.render([Translated("Yes."), Translated(f"{output}.", given)])
    assert rendered.text == f'Yes. He called it the "{output[17:]}".'
    assert [rendered.text[slice(*each.target)] for each in rendered.links] == [
        "year",
        "of",
        "river",
    ]
    for target in ("de", "it"):
        other = Document(YEAR, "text")
        other.divide("de", lambda _: True, target=target)
        assert other.needs_links == (target == "de")
