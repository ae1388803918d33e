"""Words that excuse a figure that is missing on the other side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.checking.number_words import has_large_word, has_number_word, known

COUNTED = {
    "en": [
        "two dogs",
        "Seventeen of them",
        "his fortieth year",
        "twice",
        "a dozen",
        "in May",
        "XIV",
    ],
    "de": ["zwei Hunde", "siebzehn", "Anderthalb Stunden", "dreimal", "im Oktober", "Ludwig XIV."],
    "fr": ["deux chiens", "dix-sept", "une vingtaine", "le troisième", "en août", "Louis XIV"],
    "es": ["dos perros", "diecisiete", "un par", "el tercer día", "en enero", "Siglo XX"],
}
UNCOUNTED = {
    "en": ["The dog sleeps.", "a stone", "Ivy climbs", "civil"],
    "de": ["Ein Hund schläft.", "Ein Baum", "Mix"],
    "fr": ["Un chien dort.", "un arbre"],
    "es": ["El perro duerme.", "un árbol"],
}
LARGE = {
    "en": "three hundred, a Thousand, 5 million, 3 bn, two centuries",
    "de": "dreihundert, Tausend, 5 Millionen, 3 Mrd, 5 Tsd",
    "fr": "trois cents, Mille, 5 millions, 3 md, deux siècles",
    "es": "trescientos, Mil, 5 millones, cien, dos siglos",
}
SMALL = {
    "en": "twenty dogs, a couple, mammals",
    "de": "zwanzig Hunde, ein Paar",
    "fr": "vingt chiens, un accent",
    "es": "veinte perros, milagro",
}


@pytest.mark.parametrize("language", COUNTED)
def test_numbers_in_words_are_found(language: str) -> None:
    assert known(language)
    for text in COUNTED[language]:
        assert has_number_word(text, language), text
    for text in UNCOUNTED[language]:
        assert not has_number_word(text, language), text


@pytest.mark.parametrize("language", LARGE)
def test_large_numbers_are_distinguished_from_small_ones(language: str) -> None:
    for text in LARGE[language].split(", "):
        assert has_large_word(text, language), text
    for text in SMALL[language].split(", "):
        assert not has_large_word(text, language), text


@given(st.text(), st.sampled_from([None, "it", "ja", ""]))
def test_of_other_languages_anything_may_be_a_number(text: str, language: str | None) -> None:
    assert not known(language)
    assert has_number_word(text, language)
    assert has_large_word(text, language)


@given(st.sampled_from(sorted(COUNTED)), st.data())
def test_a_word_is_found_wherever_it_stands(language: str, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(COUNTED[language]))
    before, behind = st.sampled_from(["", "x ", "… ("]), st.sampled_from(["", " x", "…)", "\n"])
    assert has_number_word(data.draw(before) + text + data.draw(behind), language)


def test_roman_numbers_are_in_capitals() -> None:
    assert has_number_word("the XV century", "en")
    assert has_number_word("IV", "de")
    assert not has_number_word("xv", "en")


@pytest.mark.parametrize(
    ("language", "text", "found"),
    [
        ("de", "Der Preis", False),
        ("fr", "Le prix de la Mer, ce me", False),
        ("en", "I am old", False),
        ("en", "Henry V", True),
        ("fr", "au XIXe siecle", True),
        ("fr", "Napoléon Ier", True),
        ("es", "el XXº aniversario", True),
        ("de", "Band III", True),
        ("en", "DVD", False),
    ],
)
def test_a_word_of_letters_of_roman_numbers_is_none(language: str, text: str, found: bool) -> None:
    assert has_number_word(text, language) is found
