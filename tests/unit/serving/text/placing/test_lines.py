"""Line breaks within the translations of wrapped sentences."""

from __future__ import annotations

import random
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.text.placing.placement import Translated
from tests.unit.serving.text.fakes import (
    TRANSLATORS,
    Translator,
    backwards,
    read,
    same,
    translated,
    upper,
)

FIRST = "ich wollte dir nur kurz schreiben, dass wir am Samstag doch nicht kommen"
SECOND = "können, weil unser Auto in der Werkstatt steht."


def put(source: str, *translations: str) -> str:
    return read(source).render([Translated(text) for text in translations]).text


def test_a_line_ends_at_its_share_of_the_sentence() -> None:
    source = f"{FIRST}\n{SECOND}"
    target = (
        "I only wanted to tell you that we can not come on Saturday as our car is in the garage."
    )
    assert put(source, target) == (
        "I only wanted to tell you that we can not come on\nSaturday as our car is in the garage."
    )


@pytest.mark.parametrize("target", ["a", "a b", "a b c", "a b c d"])
def test_too_few_spaces_for_the_lines_lose_and_double_nothing(target: str) -> None:
    source = f"{FIRST}\n{FIRST}\n{SECOND[:20]}"
    result = put(source, target)
    assert result.count("\n") == 2
    assert result.split() == target.split()


def test_a_break_within_a_kept_object_stays_in_it() -> None:
    message = f"{{n, plural, one {{ein Haus}} other {{viele\nkleine Häuser}}}} {FIRST}"
    source = f"{FIRST} und\n{message[:-20]}\nund {SECOND}"
    assert translated(source, upper).count("\n") == source.count("\n")


def test_the_lines_of_a_translation_go_on_for_the_next_model() -> None:
    source = f"Zum Fest: {FIRST}, dass wir am Samstag gern\n{SECOND[:-1]} oder auch nicht.\n"
    between = put(
        source, "we only wanted to tell you that we would like to but can not come there."
    )
    assert between.count("\n") == 2
    assert read(between).sentences == [" ".join(between.split())]


def test_marks_of_quotation_and_indentation_stand_before_each_line() -> None:
    source = f"> {FIRST}\n> {SECOND}\n"
    assert put(source, "EINS ZWEI DREI") == "> EINS ZWEI\n> DREI\n"


def test_a_divided_word_is_read_as_one_and_its_line_ends() -> None:
    source = f"> {FIRST[:-6]}Bundes-\n> regierung {SECOND}"
    document = read(source)
    assert "nicht Bundesregierung können" in document.sentences[0]
    assert document.render([Translated("eins zwei drei")]).text == "> eins zwei\n> drei"
    assert translated(source, same) == source
    source = source.replace("> ", "")
    document = read(f"{source} Ja.")
    unchanged = [Translated(document.sentences[0]), Translated("Yes.")]
    assert document.render(unchanged).text == f"{source} Yes."


def test_a_break_between_sentences_stays_between_them() -> None:
    source = f"Hallo. Ja, {FIRST}.\nWir, {FIRST}\n{SECOND}"
    assert put(source, "A.", "B b.", "C c.") == "A. B b.\nC\nc."


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("Wort", "Wort\n"),
        ("", "\n"),
        ("今日は行けません", "今日は行けません\n"),
        ("Cela vous plaît-il ? Oui !", "Cela vous plaît-il ?\nOui !"),
        ("20 % von 20 %", "20 % von\n20 %"),
    ],
)
def test_a_break_needs_a_space(target: str, expected: str) -> None:
    assert put(f"{FIRST}\n{SECOND}", target) == expected


def test_a_break_is_not_within_a_kept_object() -> None:
    source = f"es kostet 1.234,5 kg, {FIRST[:40]} und\n{SECOND}"
    document = read(source)
    mask = document.sentences[0].split("kostet ")[1].split(", ich")[0]
    assert " " in mask
    rendered = document.render([Translated(f"a {mask}")]).text
    assert rendered == "a\n1.234,5 kg"


def test_links_are_between_the_texts_as_they_are_written() -> None:
    source = f"> {FIRST}\n> {SECOND}"
    document = read(source)
    rendered = document.render([backwards(sentence) for sentence in document.sentences])
    assert rendered.links
    for link in rendered.links:
        own, other = source[slice(*link.source)], rendered.text[slice(*link.target)]
        assert own.upper() == other


WORDS = st.lists(
    st.sampled_from(
        ["wort", "zwei", "Haus", "ende.", "Neu", "{name}", "%d", "<b>hier</b>", "3,5", "12 €",
         "https://x.org/a", "BITTE", "ja,", "wohl-bekannt", "Bundes-regierung",
         "und", "gehen", "Tom", "20 km", "'so'"]
    ),
    min_size=20,
    max_size=80,
)  # fmt: skip


@pytest.mark.parametrize("translator", [same, *TRANSLATORS])
@settings(deadline=None)
@given(WORDS, st.integers(50, 100), st.sampled_from(["", "> ", "    "]), st.booleans())
def test_as_many_lines_come_out_with_the_same_marks(
    translator: Translator, words: list[str], width: int, indent: str, windows: bool
) -> None:
    filled = textwrap.fill(" ".join(words), width)  # also at hyphens
    source = textwrap.indent(filled, indent)
    source = source.replace("\n", "\r\n") if windows else source
    result = translated(source, translator)
    assert result.count("\n") == source.count("\n")
    assert result.count("\r") == source.count("\r")
    assert result.count(">") - result.count("b>") == source.count(">") - source.count("b>")
    if translator is same:
        assert result == source


@settings(deadline=None)
@given(WORDS, st.integers(50, 100), st.randoms(use_true_random=False))
def test_kept_objects_survive_any_translation(
    words: list[str], width: int, chance: random.Random
) -> None:
    source = textwrap.fill(" ".join(words), width)

    def rubbish(sentence: str) -> Translated:
        return Translated(" ".join(chance.choices(["a", "Tom", ",", sentence], k=3)))

    result = translated(source, rubbish)
    for kept in ("{name}", "%d", "https://x.org/a"):
        assert result.count(kept) == source.count(kept)
