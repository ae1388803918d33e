"""Letters that cannot come from a source, and names that a translation has in no form."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.checking.letters import _ACCENTED, has_similar, lost_words, strange_letters


def strange(source: str, output: str, language: str | None = "en") -> list[str]:
    return [output[begin:end] for begin, end in strange_letters(source, output, language)]


def lost(source: str, output: str, *languages: str | None, broken: bool = False) -> list[str]:
    first, second = languages or ("de", "en")
    spans = lost_words(source, output, first, second, broken=broken)
    return [source[begin:end] for begin, end in spans]


@pytest.mark.parametrize(
    ("source", "output", "found"),
    [
        ("Ja", "Yes 👍", ["👍"]),
        ("Ja 👍", "Yes 👍", []),
        ("Ja", "Y\ufffds", ["\ufffd"]),
        ("Ja", "Y\ue000s", ["\ue000"]),
        ("Ja", "Да", ["Да"]),
        ("Привет", "Дом", []),  # a script of the source
        ("Ja", "Δx → α", []),  # signs of formulas  # noqa: RUF001
        ("Ja", "☀ and ★", ["☀", "★"]),
        ("Ja", "naïve façade", []),
    ],
)
def test_pictures_broken_characters_and_other_scripts_are_strange(
    source: str, output: str, found: list[str]
) -> None:
    assert strange(source, output) == found


def test_letters_of_the_target_s_own_script_are_not() -> None:
    for language in ("ru", "el", "ja", None):
        assert strange("Ja", "Да", language) == []
        assert strange("Ja", "Да 👍", language) == ["👍"]


@given(st.text(), st.sampled_from(["de", "en", "ru", None]))
def test_nothing_is_strange_in_what_the_source_has(text: str, language: str | None) -> None:
    broken = "\ufffd"
    assert [s for s in strange(text, text, language) if broken not in s] == []


@pytest.mark.parametrize(
    ("source", "output", "found"),
    [
        ("Ich heiße Łukasz.", "My name is.", ["Łukasz"]),
        ("Ich heiße Łukasz.", "I am Łukasz.", []),
        ("Ich heiße Łukasz.", "I am Lukasz.", []),
        ("Ich heiße Müller.", "My name is.", []),  # its accent is German
        ("Das ist łatwo.", "This is.", []),  # no name
        ("東京 ist groß.", "It is big.", ["東京"]),
        ("東京 ist groß.", "東京 is big.", []),
        ("Der Winkel α", "The angle", []),  # noqa: RUF001
        ("Der Winkel αβγ", "The angle", ["αβγ"]),
    ],
)
def test_names_and_words_in_other_letters_are_looked_for(
    source: str, output: str, found: list[str]
) -> None:
    assert lost(source, output) == found


def test_in_a_broken_output_any_accent_counts() -> None:
    assert lost("Herr Müller kommt.", "He comes.", broken=True) == ["Müller"]
    assert lost("Herr Müller kommt.", "Mr Muller comes.", broken=True) == []


def test_of_languages_that_are_not_known_little_or_nothing_is_asked() -> None:
    assert lost("東京, Łódź", "x", "de", "it") == ["東京"]  # written in Latin letters
    assert lost("東京, Łódź", "x", "de", "ru") == []
    assert lost("東京, Łódź", "x", None, "en") == []
    assert lost("東京, Łódź", "x", "pl", "en") == []


@pytest.mark.parametrize(
    ("word", "output", "similar"),
    [
        ("Tom", "Tomás está aquí", True),
        ("Łukasz", "Lukas ist da", True),
        ("Straße", "strasse", True),
        ("Ægir", "Aegir", True),
        ("Tom", "Maria", False),
        ("Tom", "Atom", False),  # begins with another letter
        ("Tom", "", False),
    ],
)
def test_a_form_of_a_word_is_like_it_and_begins_as_it_does(
    word: str, output: str, similar: bool
) -> None:
    assert has_similar(word, output) is similar


@given(st.text(alphabet="abcłśćżöüßæ", min_size=1))
def test_a_word_is_like_itself_in_any_case(word: str) -> None:
    assert has_similar(word, f"x {word.capitalize()}, y")


@given(st.text(alphabet="aZé²ł1_ -", max_size=20))
def test_a_word_with_an_accent_is_found_from_its_start_alone(text: str) -> None:
    anywhere = _ACCENTED.pattern.removeprefix(r"(?<![^\W\d_])")
    assert anywhere != _ACCENTED.pattern
    spans = [found.span() for found in _ACCENTED.finditer(text)]
    assert spans == [found.span() for found in re.finditer(anywhere, text)]


def test_the_time_for_a_long_word_grows_with_its_length() -> None:
    def least_s(length: int) -> float:
        taken = []
        for _ in range(5):
            begin = time.thread_time()
            lost("a" * length, "b")
            taken.append(time.thread_time() - begin)
        return min(taken)

    assert least_s(200_000) < 3 * least_s(100_000)
