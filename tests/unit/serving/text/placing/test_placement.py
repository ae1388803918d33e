from __future__ import annotations

import pytest

from serving.text.document import Document, Format
from serving.text.placing.placement import Translated


def read(text: str, format: Format = "text") -> Document:
    document = Document(text, format)
    document.divide("en", lambda _: True, target="de")
    return document


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("open the {name} door", "die Tomtür öffnen", "die {name}-Tür öffnen"),
        ("open the %s door", "die Tomtür öffnen", "die %s-Tür öffnen"),
        ("a %s door and a %s", "eine Tomtür und ein Boston", "eine %s-Tür und ein %s"),
        ("a %s and a %s door", "ein Tom und eine Bostontür", "ein %s und eine %s-Tür"),
    ],
)
def test_a_word_that_a_translation_joins_to_a_placeholder_stands_behind_it(
    text: str, translation: str, expected: str
) -> None:
    document = read(text)
    assert document.render([Translated(translation)]).text == expected
    assert document.warnings == []


def test_a_joined_word_beside_markup_is_whole() -> None:
    document = read("the <b>{name}</b> door is open", "html")
    rendered = document.render([Translated("die Tomtür ist offen")]).text
    assert rendered.count("{name}") == 1
    assert "Tür" in rendered
    assert "Tom" not in rendered


@pytest.mark.parametrize("word", ["Londoners", "Londonern", "londonische"])
def test_an_inflected_name_is_replaced_whole(word: str) -> None:
    document = read("the Tom, Boston and Paris of {name}")
    assert document.sentences == ["the Tom, Boston and Paris of London"]
    rendered = document.render([Translated(f"die Tom, Boston und Paris des {word}")]).text
    assert "{name}-" not in rendered
    assert document.warnings == ["placeholder"]
