"""Ordinals of English translations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.text.document import Document
from serving.text.edits import edited
from serving.text.placing.marks import certain, mark_edits
from serving.text.placing.placement import Translated


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("on May 3th at 14:30.", "on May 3rd at 14:30."),
        ("the 1th and the 2th of June", "the 1st and the 2nd of June"),
        ("the 11st, 12nd and 13rd", "the 11th, 12th and 13th"),
        ("the 21th, 112nd and 1,001th", "the 21st, 112th and 1,001st"),
        ("his 23th (and 3th)", "his 23rd (and 3rd)"),
    ],
)
def test_an_ordinal_has_the_ending_of_its_number(output: str, expected: str) -> None:
    source = "ohne Zahlen"
    assert edited(output, mark_edits(source, output, "en")) == expected


@pytest.mark.parametrize(
    ("source", "output", "target"),
    [
        ("am 3. Mai", "on May 3rd", "en"),
        ("die Band 4st", "the band 4st", "en"),
        ("der Code x3th", "the code x3th", "en"),
        ("der Code 3thX", "the code 3thX", "en"),
        ("on the 3th", "am 3th", "de"),
    ],
)
def test_right_ordinals_names_and_other_languages_stay(
    source: str, output: str, target: str
) -> None:
    assert mark_edits(source, output, target) == []


@given(st.integers(0, 10**6))
def test_every_number_ends_as_people_say_it(number: int) -> None:
    teen = number % 100 in (11, 12, 13)
    ending = "th" if teen else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    for wrong in ("st", "nd", "rd", "th"):
        output = f"the {number}{wrong} time"
        edits = mark_edits("das Mal", output, "en")
        assert edited(output, edits) == f"the {number}{ending} time"


def test_what_was_streamed_stays() -> None:
    """A number at the end of what is certain may still become an ordinal."""
    source, output = "Am 3. Mai und am 21. Juni.", "On the 3th of May and the 21th of June."
    final = edited(output, mark_edits(source, output, "en"))
    for end in range(len(output) + 1):
        begun = certain(output[:end])
        assert final.startswith(edited(begun, mark_edits(source, begun, "en", ended=False)))


def test_a_document_s_translation_has_them_linked() -> None:
    document = Document("Er kommt am 3. Mai.", "text")
    document.divide("de", lambda _: True, target="en")
    assert document.render([Translated("He comes on May 3th.")]).text == "He comes on May 3rd."
