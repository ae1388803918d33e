"""Texts that grow: what is told is how the whole begins."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.text.document import Document, Format
from serving.text.growing import GrowingTexts
from serving.text.placing.placement import Translated


def divided(source: str, format: Format) -> Document:
    document = Document(source, format)
    document.divide("en", lambda _: True)
    return document


def translation(sentence: str) -> str:
    """Longer than the sentence, with characters that HTML escapes."""
    return f"<{sentence.upper()} & co>"


@pytest.mark.parametrize(
    ("source", "format"),
    [
        ("One two. Three four!\n\n  Five?\tSix.\n", "text"),
        ("A zero.\0Between. Others.\0", "text"),
        ("<p>One &auml; two. Three.</p>\n<ul><li>Four</li><li>...</li><li>Five.</li></ul>", "html"),
        ("...", "text"),
        ("One. This is a line that goes on in the next line, because\nit is full. Two.", "text"),
        ("", "html"),
    ],
)
@given(st.randoms(use_true_random=False))
def test_every_told_text_is_how_the_whole_begins(
    source: str, format: Format, rng: random.Random
) -> None:
    documents = [divided(source, format), divided("Before. " + source, format)]
    texts = [list(map(translation, document.sentences)) for document in documents]
    wholes = [
        document.render([Translated(text) for text in own]).text
        for document, own in zip(documents, texts, strict=True)
    ]
    growing, flat = GrowingTexts(documents), [text for own in texts for text in own]
    lengths, told = [0] * len(flat), ["", ""]
    while any(length < len(text) for length, text in zip(lengths, flat, strict=True)):
        number = rng.choice([n for n, text in enumerate(flat) if lengths[n] < len(text)])
        lengths[number] = min(lengths[number] + rng.randint(1, 9), len(flat[number]))
        if lengths[number] == len(flat[number]):
            grown = growing.ended(number, flat[number])
        else:
            grown = growing.update(number, flat[number][: lengths[number]])
        if grown is not None:
            index, text = grown
            assert wholes[index].startswith(text)
            assert len(text) > len(told[index])
            told[index] = text
    assert all(
        not own or whole == text for own, whole, text in zip(texts, wholes, told, strict=True)
    )


def test_news_have_all_that_is_certain() -> None:
    growing = GrowingTexts([divided(" One. Two. Three.\n", "text")])
    assert growing.update(1, "zw") is None
    assert growing.update(0, "ei") == (0, " ei")
    assert growing.ended(2, "drei.") is None
    assert growing.ended(0, "eins.") == (0, " eins. zw")
    assert growing.update(1, "zw") is None
    assert growing.ended(1, "zwei.") == (0, " eins. zwei. drei.\n")


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("Nein… Was???", "No.. What? "),
        ("Ich sagte: Nein!!!", 'I said: "No!" '),
        ("Na ja ... gut,", "Well.. all right."),
        ("Bald,", "Soon"),
        ('"Komm," rief er, "Tom!"', '" Come" he called, " Tom".'),
        ("Er kam—aber spät.", "He came - but -- late.."),
    ],
)
def test_marks_that_may_change_are_told_at_the_end(source: str, output: str) -> None:
    document = Document(source, "text")
    document.divide("de", lambda _: True, split=False, target="en")
    whole = document.render([Translated(output)]).text
    growing = GrowingTexts([document])
    updates = [growing.update(0, output[:length]) for length in range(len(output))]
    told = [grown[1] for grown in updates if grown]
    assert told
    assert all(map(whole.startswith, told))
    assert growing.ended(0, output) == (0, whole)


def test_markup_within_a_sentence_is_reported_with_the_whole() -> None:
    growing = GrowingTexts([divided("<p>One <b>two</b>. Three.</p>", "html")])
    assert growing.ended(0, "eins zwei.") is None
    assert growing.ended(1, "drei.") is None


def test_a_long_text_is_not_rendered_for_each_event(monkeypatch: pytest.MonkeyPatch) -> None:
    document = divided("One two. " * 400, "text")
    growing = GrowingTexts([document])

    def render(*_: object) -> None:
        raise AssertionError("rendered again")

    monkeypatch.setattr(Document, "render", render)
    for number in range(400):
        growing.update(number, "eins")
        growing.ended(number, "eins zwei.")
    assert growing.ended(399, "eins zwei.") is None
