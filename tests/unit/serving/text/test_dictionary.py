"""Words that a dictionary has, and how they are found in texts."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import BundleError
from serving.text.dictionary import Dictionary, DictionaryEntry, read_dictionary

DICTIONARY = Dictionary(
    DictionaryEntry(*row)
    for row in (
        ("de", "Apotheke/Apotheken", "en", "pharmacy/pharmacies, drugstore/drugstores"),
        ("de", "Vertrag/Verträge", "en", "contract/contracts"),
        ("de", "Wal/Wale", "en", "whale/whales"),
        ("de", "Segel/Segel", "en", "sail/sails"),
        ("de", "Beamter/Beamte", "en", "official/officials"),
        ("de", "Mehl", "en", "flour"),
        ("de", "Käse/Käse", "fr", "fromage/fromages"),
        ("de", "Mieter/Mieter, ", "fr", "locataire/locataires"),
        ("de", "verschimmelt", "en", "mouldy, moldy"),
        ("de", "dunkel", "en", "dark"),
        ("en", "garlic", "de", "Knoblauch"),
        ("en", "garlic press/garlic presses", "de", "Knoblauchpresse/Knoblauchpressen"),
        ("fr", "gousse d'ail/gousses d'ail", "en", "clove of garlic/cloves of garlic"),
        ("fr", "moisi/moisie/moisis/moisies", "en", "mouldy"),
        ("es", "sartén/sartenes", "en", "pan/pans"),
    )
)


def words(text: str, source: str = "de", target: str = "en") -> list[tuple[str, str, str]]:
    return [
        (text[slice(*match.span)], match.target, match.plural)
        for match in DICTIONARY.found(text, source, target)
    ]


@pytest.mark.parametrize(
    ("text", "source", "wanted"),
    [
        ("Die Apotheke, zwei Apotheken", "de", ["pharmacy", "pharmacies"]),
        ("des Vertrags, des Vertrages, den Verträgen", "de", ["contract", "contract", "contracts"]),
        ("APOTHEKE apotheke Apothekerin Haus-Apotheke", "de", []),
        ("in Wales, des Wals, mit Walen", "de", ["whale", "whales"]),
        ("des Segeles", "de", []),
        ("Mehls", "de", ["flour"]),
        ("verschimmeltes Brot, verschimmelten", "de", ["mouldy", "mouldy"]),
        ("Verschimmelte Äpfel. Verschimmelte", "de", ["mouldy"]),
        ("dunkle, dunkelem, dunklen, dunkeln", "de", ["dark", "dark", "dark"]),
        ("verschimmelts verschimmeltes.", "de", ["mouldy"]),
        ("gousses d’ail et gousse d'ail", "fr", ["cloves of garlic", "clove of garlic"]),
        ("Gousse d'oignon, gousse", "fr", []),
        ("une poire moisie, des pains moisis", "fr", ["mouldy", "mouldy"]),
        ("Sartenes y Sartenes", "es", ["pans"]),
    ],
)
def test_each_form_of_a_word_is_found(text: str, source: str, wanted: list[str]) -> None:
    assert [target for _, target, _ in words(text, source)] == wanted


def test_of_words_that_begin_together_the_longest_counts() -> None:
    assert words("A garlic press, some garlic", "en", "de") == [
        ("garlic press", "Knoblauchpresse", ""),
        ("garlic", "Knoblauch", ""),
    ]
    assert words("A garlic pressing", "en", "de") == [("garlic", "Knoblauch", "")]


def test_a_form_that_may_be_either_has_both_numbers() -> None:
    assert words("ein Segel und den Segeln") == [
        ("Segel", "sail", "sails"),
        ("Segeln", "sail", "sails"),
    ]
    assert words("ein Beamter, der Beamte, die Beamten") == [
        ("Beamter", "official", ""),
        ("Beamte", "official", "officials"),
        ("Beamten", "official", "officials"),
    ]


def test_every_translation_counts_as_right() -> None:
    [match] = DICTIONARY.found("Apotheken", "de", "en")
    assert match.source == "Apotheken"
    assert match.others == ("pharmacy", "pharmacies", "drugstore", "drugstores")


@pytest.mark.parametrize(("source", "target"), [("en", "fr"), ("de", "es"), ("xx", "en")])
def test_no_other_pair_has_words(source: str, target: str) -> None:
    assert DICTIONARY.found("Apotheke garlic Käse", source, target) == ()


def test_accents_may_be_decomposed_and_hyphens_typographic() -> None:
    text = unicodedata.normalize("NFD", "Käse mit Käse")
    first, second = DICTIONARY.found(text, "de", "fr")
    assert text[slice(*first.span)] == text[slice(*second.span)] == "Ka\u0308se"


@given(st.lists(st.sampled_from(["Apotheken", "Mehl", "der", "Wales", "- ", "’", "\n", "Ä\u0308"])))
def test_words_stand_where_they_are_said_to_be(parts: list[str]) -> None:
    text = " ".join(parts)
    found = words(text)
    assert [word for word, _, _ in found] == [p for p in parts if p in ("Apotheken", "Mehl")]
    ends = [match.span for match in DICTIONARY.found(text, "de", "en")]
    assert ends == sorted(ends)


def test_the_first_of_two_entries_counts_and_what_is_written_before_what_follows() -> None:
    entries = [
        DictionaryEntry("de", "Wand/Wände", "en", "wall"),
        DictionaryEntry("de", "Wand", "en", "face"),
        DictionaryEntry("de", "Wands", "en", "wands"),
    ]
    found = Dictionary(entries).found("Wand Wands", "de", "en")
    assert [match.target for match in found] == ["wall", "wands"]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("de\tMehl\ten\n", r"line 1 must have a language, a word, a language and its translations"),
        (
            "de\tMehl\ten\tflour\nde\t \ten\tx\n",
            r"line 2 must have .*; write it again with `macaron",
        ),
        ("de\tMehl/\ten\tflour\n", r"line 1: 'Mehl/' must be a word, a singular and a plural"),
        ("de\tMehl\ten\ta/b/c\n", "line 1: 'a/b/c' must be a word"),
        ("de\tMehl\ten\t,\n", "line 1: '' must be a word"),
        ("de\t500\ten\tflour\n", "line 1: '500' must be a word"),
        (b"\xff", "cannot be read"),
    ],
)
def test_a_file_of_another_form_is_refused(
    tmp_path: Path, content: str | bytes, wanted: str
) -> None:
    file = tmp_path / "dictionary.tsv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BundleError, match=wanted):
        read_dictionary(file)


def test_a_faulty_line_of_many_words_is_found_at_once(tmp_path: Path) -> None:
    file = tmp_path / "dictionary.tsv"
    file.write_text("de\tWort\ten\t" + "vocabulary, " * 60 + "24\n")
    with pytest.raises(BundleError, match="line 1: '24' must be a word"):
        read_dictionary(file)


def test_a_verb_at_the_beginning_is_no_plural() -> None:
    dictionary = Dictionary([DictionaryEntry("de", "Backe/Backen", "en", "cheek/cheeks")])
    for text, count in (
        ("Backen Sie den Kuchen", 0),
        ("Backen wir?", 0),
        ("Backen und Kinn", 1),
        ("Rote Backen Sie", 1),
        ("Backe Sie", 1),
    ):
        assert len(dictionary.found(text, "de", "en")) == count


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "dictionary.tsv"
    file.write_text("de\tMehl\ten\tflour\n", encoding="utf-8")
    [match] = read_dictionary(file).found("500 g Mehl", "de", "en")
    assert (match.span, match.target) == ((6, 10), "flour")
    with pytest.raises(BundleError, match="cannot be read"):
        read_dictionary(tmp_path / "none")
