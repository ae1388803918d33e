from __future__ import annotations

import pytest

from serving.text.document import Document, Format
from serving.text.placing.placement import Translated
from tests.unit.serving.text.fakes import backwards

_GERMAN = {"and": "und", "dogs": "hunde", "cats": "katzen"}


def read(text: str, format: Format = "text", source: str = "en", target: str = "de") -> Document:
    document = Document(text, format)
    document.divide(source, lambda _: True, target=target)
    return document


def german(sentence: str) -> Translated:
    return Translated(" ".join(_GERMAN.get(word.lower(), word) for word in sentence.split()))


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("Dogs & cats", "text"),
        ("Dogs &amp; cats", "html"),
        ("Dogs &amp; cats", "xml"),
        ("<b>Dogs</b> & <i>cats</i>", "html"),
        ("Dogs & **cats**", "markdown"),
    ],
)
def test_models_read_a_word_for_the_sign_between_words(text: str, format: Format) -> None:
    assert read(text, format).sentences == ["Dogs and cats"]


@pytest.mark.parametrize(("source", "word"), [("de", "und"), ("fr", "et"), ("es-MX", "y")])
def test_the_word_is_of_the_source_language(source: str, word: str) -> None:
    assert read("Anna & Otto", source=source, target="en").sentences == [f"Anna {word} Otto"]


@pytest.mark.parametrize("target", ["", "pl"])
def test_where_a_language_is_not_known_to_profit_the_sign_is_left_out(target: str) -> None:
    assert read("Dogs & cats", target=target).sentences == ["Dogs cats"]


@pytest.mark.parametrize("text", ["AT&T", "R & D", "Q & A", "5 & 6", "a dog & 5", "dogs &cats"])
def test_other_signs_are_no_words(text: str) -> None:
    assert not any("and" in sentence for sentence in read(f"see {text}.").sentences)


@pytest.mark.parametrize(
    ("text", "format", "expected"),
    [
        ("Dogs & cats", "text", "hunde & katzen"),
        ("Dogs &amp; cats", "xml", "hunde &amp; katzen"),
        ("Dogs & cats and cats & dogs", "text", "hunde & katzen und katzen & hunde"),
    ],
)
def test_the_sign_comes_back_in_the_place_of_the_word(
    text: str, format: Format, expected: str
) -> None:
    document = read(text, format)
    assert document.render([german(s) for s in document.sentences]).text == expected
    assert document.warnings == []


def test_of_several_words_the_one_that_is_linked_to_the_sign_is_replaced() -> None:
    document = read("Anna and Otto & Karl")
    assert (
        document.render([backwards(s) for s in document.sentences]).text == "KARL & OTTO AND ANNA"
    )


def test_a_translation_without_the_word_gets_the_sign_at_its_place() -> None:
    document = read("Dogs & cats")
    rendered = document.render([Translated("Haustiere")]).text
    assert rendered.count("&") == 1
    assert "and" not in rendered


def test_a_known_translation_has_its_own_signs() -> None:
    document = read("Dogs & cats")
    assert document.as_given(0) == "Dogs & cats"
    taken = document.take(0, "Hunde und Katzen")
    assert taken == "Hunde und Katzen"
    assert document.render([Translated(taken)]).text == "Hunde und Katzen"


def test_what_is_said_of_a_sentence_names_its_own_words() -> None:
    document = read("Dogs & cats and birds")
    assert document.as_in_text(0, "cats and birds") == "cats and birds"
