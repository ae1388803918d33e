"""Noise over texts: what each kind changes, and what it leaves alone."""

from __future__ import annotations

import random
import re
import unicodedata
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.corpora.noise import (
    add_noise,
    change_number,
    change_unit,
    choose_joins,
    cut_phrase,
    drop_accents,
    drop_end_mark,
    lower,
    mistype,
    names_of,
    put_emoji,
    put_foreign_word,
    put_name,
    put_placeholder,
    title,
)
from training.errors import ConfigError
from training.recipe.sections import NoiseConfig

KEPT = "{userName} %PRODUCTNAME $HOME https://Beispiel.de/Straße A4 <B> Über@post.de Config.Datei"


def generator(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("pair", "frame"),
    [
        (
            ("Es kostet 120 Euro.", "It costs 120 euros."),
            ("Es kostet {} Euro.", "It costs {} euros."),
        ),
        (("Seite 12 (1990)", "Page 12, 2001"), ("Seite {} (1990)", "Page {}, 2001")),
    ],
)
def test_a_number_on_both_sides_becomes_another_on_both(
    pair: tuple[str, str], frame: tuple[str, str]
) -> None:
    draw, lengths = random.Random(3), set()
    for _ in range(200):
        source, target = change_number(pair, draw)
        before, after = frame[0].split("{}")
        number = source.removeprefix(before).removesuffix(after)
        assert number.isdigit()
        assert number[0] != "0"
        assert (source, target) == (frame[0].format(number), frame[1].format(number))
        lengths.add(len(number))
    assert lengths == set(range(2, 13))


@pytest.mark.parametrize(
    "pair",
    [
        ("Ich habe 1 Hund.", "I have 1 dog."),
        ("um 12:30 Uhr", "at 12:30"),
        ("1.200 Euro", "1,200 euros"),
        ("12 und 12", "12 and 12"),
        ("zwölf", "12"),
        ("Version 10.15", "version 10.15"),
        ("A380, 2024-11-25", "A380, 2024-11-25"),
    ],
)
def test_other_numbers_stay(pair: tuple[str, str]) -> None:
    assert change_number(pair, random.Random(1)) == pair


def test_a_quantity_becomes_another_of_its_kind_on_both_sides() -> None:
    draw, units = random.Random(3), set()
    for _ in range(200):
        source, target = change_unit(("Noch 1,5 km bis Köln.", "1.5km more to Cologne."), draw)
        found = re.fullmatch(r"Noch (\d+) (mm|cm|m|km) bis Köln\.", source)
        assert found
        assert target == f"{found[1]}{found[2]} more to Cologne."
        units.add(found[2])
    assert units == {"mm", "cm", "m", "km"}
    source, target = change_unit(("Um 20 % mehr", "20% more"), draw)
    assert source.endswith(" % mehr")
    assert target.endswith("% more")


@pytest.mark.parametrize(
    "pair",
    [
        ("5 km", "3 miles"),
        ("5 km und 3 m", "5 km and 3 m"),
        ("5 Kilometer", "5 km"),
        ("Kanal 5MBit", "channel 5MBit"),
        ("Regel a5 %", "rule a5 %"),
        ("ohne", "without"),
    ],
)
def test_other_quantities_stay(pair: tuple[str, str]) -> None:
    assert change_unit(pair, random.Random(1)) == pair


@pytest.mark.parametrize(
    ("pair", "parts"),
    [
        (
            ("Hinweis: Nur am Montag.", "Note: On Mondays only."),
            {("Hinweis", "Note"), ("Nur am Montag.", "On Mondays only.")},
        ),
        (
            ("Nein danke. Ich bin satt – wirklich!", "No thanks. I am full – really!"),
            {("Ich bin satt", "I am full"), ("wirklich!", "really!"), ("Nein danke", "No thanks")},
        ),
        (
            ("So! Ich bin's nicht.", "Well! It isn't me."),
            {("Ich bin's nicht.", "It isn't me."), ("So", "Well")},
        ),
        (("Fehler: {error}", "Error: {error}"), {("Fehler", "Error")}),
    ],
)
def test_a_phrase_is_the_same_part_of_both_sides(
    pair: tuple[str, str], parts: set[tuple[str, str]]
) -> None:
    draw = random.Random(2)
    assert {cut_phrase(pair, draw) for _ in range(100)} == parts


@pytest.mark.parametrize(
    "pair",
    [
        ("Dr. Schmidt kommt.", "Dr. Schmidt is coming."),
        ("Am 3. Mai: zu.", "On May 3 closed."),
        ("Zu: das ist ein langer Satz mit Punkt", "Shut: this is a long sentence with a stop: yes"),
        ("a b c d e f g: a b c d e f g", "h i j k l m n: h i j k l m n"),
        ("(Grund: Zeit)", "(Reason: time)"),
    ],
)
def test_where_no_part_is_certain_all_stays(pair: tuple[str, str]) -> None:
    assert cut_phrase(pair, random.Random(1)) == pair


def test_emojis_are_the_same_on_both_sides() -> None:
    draw, seen = random.Random(4), set()
    for _ in range(400):
        source, target = put_emoji(("Bis bald.", "See you."), draw)
        mark = source.replace("Bis bald.", "")
        assert target.replace("See you.", "") == mark
        assert source.startswith(mark) == target.startswith(mark)
        assert not any(map(str.isalnum, mark))
        seen.add(mark.strip())
    assert {len(mark.replace("\ufe0f", "")) for mark in seen} == {1, 2}
    assert "👍" in seen
    assert len(seen) > 200  # rare ones, too
    assert any("\ufe0f" in mark for mark in seen)


def test_a_name_on_both_sides_becomes_a_word_of_another_script_on_both() -> None:
    draw, scripts = random.Random(3), set()
    for _ in range(400):
        source, target = put_foreign_word(("Ich kenne Tom.", "Do I know Tom?"), draw)
        word = source.removeprefix("Ich kenne ").removesuffix(".")
        assert target == f"Do I know {word}?"
        assert 1 <= len(word) <= 9
        assert word.isalpha()
        scripts |= {unicodedata.name(letter).split()[0] for letter in word}
    assert scripts == {
        "GREEK", "CYRILLIC", "HEBREW", "ARABIC", "DEVANAGARI", "THAI", "HIRAGANA", "KATAKANA",
        "CJK", "HANGUL",
    }  # fmt: skip
    assert put_foreign_word(("Guten Tag", "Hello"), draw) == ("Guten Tag", "Hello")


def test_names_are_what_both_sides_have_with_a_capital_letter_first_and_only_there() -> None:
    pairs = [
        ("Tom kennt Çelik aus Århus.", "Tom knows Çelik from Århus."),
        ("Die API von iPhones und das I", "The API of iPhones and the I"),
        ("Leipzig, Leipzig!", "Leipzig! Leipzig!"),  # twice: which is which?
        ("Anna mag Wien und rote Winde", "Anna likes Vienna and red bindweed"),
        ("Ein Gast in Bonn-Beuel bei x.Bonn", "A guest in Bonn-Beuel at x.Bonn"),
    ]
    assert names_of(pairs) == ["Anna", "Tom", "Århus", "Çelik"]
    assert names_of([]) == []


def test_a_name_on_both_sides_becomes_another_on_both() -> None:
    draw, seen = random.Random(3), set()
    names = ["Leipzig", "Maria", "Tom", "Ng"]
    for _ in range(400):
        source, target = put_name(("Ich kenne Tom.", "Do I know Tom?"), names, draw)
        name = source.removeprefix("Ich kenne ").removesuffix(".")
        assert target == f"Do I know {name}?"
        assert all(word[0].isupper() and word.isalpha() for word in name.split())
        seen.add(name)
    assert seen >= {"Leipzig", "Leiria"}  # as it is, and made up
    assert any(" " in name for name in seen)
    for pair in (("Guten Tag", "Hello"), ("Ich kenne Wien", "I know Vienna"), ("", "")):
        assert put_name(pair, names, draw) == pair
    assert put_name(("Tom", "Tom"), [], draw) == ("Tom", "Tom")


def test_the_names_of_an_epoch_are_those_of_its_pairs() -> None:
    pairs = [("Ich kenne Maria.", "I know Maria."), ("Leipzig liegt dort.", "Leipzig is there.")]
    changed = add_noise(pairs * 200, NoiseConfig(names=1, lower=0.5), generator())
    assert len(changed) > 300
    found = {source.split()[0] for source, target in changed.values() if "liegt dort" in source}
    assert {"Maria", "maria"} <= found
    assert {name for name in found if "z" in name} > {"Mapzig"}  # made up, and in small letters


def test_a_name_on_both_sides_becomes_a_placeholder_on_both() -> None:
    draw, seen = random.Random(5), set()
    for _ in range(400):
        source, target = put_placeholder(("Tom kennt Boston.", "Does Tom know Boston?"), draw)
        if (source, target) == ("Tom kennt Boston.", "Does Tom know Boston?"):
            continue  # it looked for a number
        if source.endswith("Boston."):
            new = source.removesuffix(" kennt Boston.")
            assert target == f"Does {new} know Boston?"
        else:
            new = source.removeprefix("Tom kennt ").removesuffix(".")
            assert target == f"Does Tom know {new}?"
        assert " " not in new or new.startswith("<%=")
        seen.add(new)
    for found in (r"\{\w+\}", r"%\d\$s", r"https://\w+\.org/\w+", r"\w+@\w+\.net", r"\{\d\}"):
        assert any(re.fullmatch(found, each) for each in seen), found


def test_pairs_that_share_nothing_get_no_placeholder() -> None:
    draw = random.Random(1)
    for pair in (("Guten Tag", "Hello"), ("Tom und Tom", "Tom and Tom"), ("a@Tom.de", "a@Tom.de")):
        assert all(put_placeholder(pair, draw) == pair for _ in range(20))


@pytest.mark.parametrize(
    ("text", "small"),
    [
        ("Der HUND bellt.", "der hund bellt."),
        ("„Äpfel“  und (Birnen), E-Mail!", "„äpfel“  und (birnen), e-mail!"),
        (f"Klick {KEPT}", f"klick {KEPT}"),
    ],
)
def test_lower_changes_plain_words(text: str, small: str) -> None:
    assert lower(text) == small


@pytest.mark.parametrize(
    ("text", "titled"),
    [
        ("der HUND bellt.", "Der HUND Bellt."),
        ("„äpfel“ und (birnen), don't", "„Äpfel“ Und (Birnen), Don't"),
        ("ßa", "ßa"),  # its capital is two letters
        ("m ² Ⅷ ½", "M ² Ⅷ ½"),
        (KEPT, KEPT),
    ],
)
def test_title_gives_plain_words_a_capital(text: str, titled: str) -> None:
    assert title(text) == titled


@pytest.mark.parametrize(
    ("text", "spelt_out", "bare"),
    [
        ("Die Größe, überall.", "Die Groesse, ueberall.", "Die Grosse, uberall."),
        ("café à l’été", "cafe a l’ete", "cafe a l’ete"),
        ("Übung ẞ", "Uebung SS", "Ubung SS"),
        (KEPT, KEPT, KEPT),
        ("Привет", "Привет", "Привет"),
        ("мой 한국어", "мой 한국어", "мой 한국어"),
    ],
)
def test_accents_go(text: str, spelt_out: str, bare: str) -> None:
    assert drop_accents(text, spelt_out=True) == spelt_out
    assert drop_accents(text, spelt_out=False) == bare


@pytest.mark.parametrize(
    ("pair", "bare"),
    [
        (("Gut.", "Good."), ("Gut", "Good")),
        (("Gut?", "Good?"), ("Gut", "Good")),
        (("Gut.", "Good!"), ("Gut.", "Good!")),
        (("Gut...", "Good..."), ("Gut...", "Good...")),
        ((".", "."), (".", ".")),
        (("Gut .", "Good ."), ("Gut .", "Good .")),
        (("Gut", "Good."), ("Gut", "Good.")),
    ],
)
def test_the_end_mark_goes_where_both_sides_have_it(
    pair: tuple[str, str], bare: tuple[str, str]
) -> None:
    assert drop_end_mark(pair) == bare


@given(st.integers(0, 10**6))
def test_a_typing_slip_is_one_edit_behind_the_first_letter_of_a_word(seed: int) -> None:
    text = f"Der Hunde 1234 {KEPT} bellen,"
    slipped = mistype(text, random.Random(seed))
    tokens, found = text.split(), slipped.split()
    assert len(tokens) == len(found)
    changed = [(a, b) for a, b in zip(tokens, found, strict=True) if a != b]
    assert len(changed) <= 1  # a doubled or swapped letter may stay the same
    for word, wrong in changed:
        assert word in ("Hunde", "bellen,")
        assert word[0] == wrong[0]
        assert abs(len(word) - len(wrong)) <= 1
        if len(word) == len(wrong):
            assert sum(a != b for a, b in zip(word, wrong, strict=True)) <= 2


def test_every_kind_of_slip_comes() -> None:
    found = {mistype("Wort", random.Random(seed)) for seed in range(200)}
    assert found >= {"Wrot", "Wot", "Woort", "Wprt", "Wor", "Wortt"}


def test_a_text_without_a_long_word_has_no_slip() -> None:
    for text in ("", "Ja, na gut", "1234567", KEPT):
        assert mistype(text, random.Random(1)) == text


PAIRS = [(f"Der Hund Nummer {n} läuft.", f"Dog number {n} runs.") for n in range(2000)]


@pytest.mark.parametrize("kind", ["lower", "title", "typos", "punctuation", "accents", "copy"])
def test_each_kind_falls_on_its_share(kind: str) -> None:
    changed = add_noise(PAIRS, NoiseConfig(**{kind: 0.1}), generator())
    assert 140 < len(changed) < 260
    sides = Counter(
        (source != PAIRS[place][0], target != PAIRS[place][1])
        for place, (source, target) in changed.items()
    )
    assert set(sides) == {(True, kind == "punctuation")}
    if kind == "copy":
        assert all(source == target for source, target in changed.values())


def test_kinds_that_fall_on_one_pair_are_applied_one_after_the_other() -> None:
    changed = add_noise(PAIRS, NoiseConfig(lower=1, accents=1, punctuation=1), generator())
    assert len(changed) == len(PAIRS)
    assert {source.split()[-1] for source, _ in changed.values()} == {"lauft", "laeuft"}
    assert changed[7][0].startswith("der hund nummer 7")
    assert changed[7][1] == "Dog number 7 runs"


def test_the_generator_decides() -> None:
    noise = NoiseConfig(typos=0.3, accents=0.3)
    assert add_noise(PAIRS, noise, generator(3)) == add_noise(PAIRS, noise, generator(3))
    assert add_noise(PAIRS, noise, generator(3)) != add_noise(PAIRS, noise, generator(4))


def test_without_noise_nothing_changes() -> None:
    assert add_noise(PAIRS, NoiseConfig(), generator()) == {}
    assert choose_joins([0] * 50, 0.0, generator()) == []


def test_joins_are_twos_and_threes_of_one_origin() -> None:
    origins = [n % 3 for n in range(3000)]
    groups = choose_joins(origins, 0.2, generator())
    assert {len(group) for group in groups} == {2, 3}
    assert all(len({origins[place] for place in group}) == 1 for group in groups)
    places = list(chain.from_iterable(groups))
    assert len(set(places)) == len(places)
    assert 500 < len(places) < 700
    assert any(group != sorted(group) for group in groups)  # neighbours by chance, not by place


@pytest.mark.parametrize("kind", ["lower", "join"])
def test_a_share_is_at_most_one(kind: str) -> None:
    for share in (-0.1, 1.1):
        with pytest.raises(ConfigError, match=rf"data\.noise\.{kind} must be in \[0, 1\]"):
            NoiseConfig(**{kind: share})
