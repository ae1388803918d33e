"""What each named filter drops and lets by."""

from __future__ import annotations

from typing import Any

import pytest

from training.errors import ConfigError
from training.recipe.config import TranslationRecipe, recipe_from_dict, recipe_to_dict
from training.recipe.filters import (
    FILTERS,
    DuplicatesFilter,
    Filter,
    LanguageFilter,
    LengthFilter,
    NearDuplicatesFilter,
    NumbersFilter,
    Pair,
    RatioFilter,
    ScriptFilter,
)
from training.recipe.sections import DataConfig


def dropped(some: Filter, *pairs: Pair, languages: tuple[str, str] = ("de", "en")) -> list[bool]:
    drops = some.start(languages)
    return [drops(pair) for pair in pairs]


def test_length_bounds_both_sides() -> None:
    some = LengthFilter(min_characters=2, max_characters=4)
    assert dropped(some, ("ab", "abcd"), ("a", "ab"), ("ab", "abcde")) == [False, True, True]


def test_ratio_lets_short_pairs_by() -> None:
    some = RatioFilter(max_ratio=2, short=10)
    assert dropped(some, ("a" * 10, "b"), ("a" * 11, "b" * 5), ("a" * 12, "b" * 6)) == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("pair", "drops"),
    [
        (("Ich bezahle 1.234,50 Euro.", "I pay 1,234.50 euros."), False),
        (("Ich bezahle 10.000 Euro.", "I pay 10000 euros."), False),
        (("Ich bezahle 1.234 Euro.", "I pay 1,243 euros."), True),
        (("Am 05.03.2020 um 14:00 Uhr", "At 14:00 on 5/3/2020"), False),
        (("10 und 20", "20 and 10"), False),
        (("10 und 10", "10"), True),
        (("3 Katzen", "three cats"), False),  # one digit
        (("ein Jahr", "12 months"), True),
        (("Seite ٢٣", "page 23"), False),
        (("Fassung 2²", "version 2²"), False),
    ],
)
def test_numbers_are_compared_by_value_in_any_order(pair: Pair, drops: bool) -> None:
    assert dropped(NumbersFilter(), pair, pair[::-1]) == [drops, drops]


def test_a_number_may_have_more_digits_than_python_reads() -> None:
    drops = NumbersFilter().start(("de", "en"))
    assert not drops(("1" * 5000, f"0{'1' * 5000}"))
    assert drops(("1" * 5000, "1" * 4999))


def test_numbers_of_one_digit_are_compared_where_asked_for() -> None:
    assert dropped(NumbersFilter(min_digits=1), ("3 Katzen", "three cats"), ("3 K", "3 c")) == [
        True,
        False,
    ]


def test_language_drops_what_is_surely_in_another() -> None:
    german = "Das Wetter ist heute wirklich sehr schön, und wir gehen spazieren."
    english = "The weather is really very nice today, and we are going for a walk."
    some = LanguageFilter()
    pairs = ((german, english), (english, english), (german, german), ("OK", "OK"))
    assert dropped(some, *pairs) == [False, True, True, False]
    assert dropped(some, (english, german), languages=("en-GB", "de")) == [False]
    assert dropped(LanguageFilter(min_letters=500), (english, english)) == [False]
    with pytest.raises(ConfigError, match="does not know 'xx'"):
        some.start(("xx", "en"))


def test_script_drops_foreign_letters() -> None:
    pairs = (("Привет, мир", "hello"), ("Hallo", "hello"), ("12 + 3 = 15", "…"), ("Hi Мир", "x"))
    assert dropped(ScriptFilter(), *pairs) == [True, False, False, True]
    assert dropped(ScriptFilter(source=("cyrillic",)), *pairs) == [False, True, False, False]
    assert dropped(ScriptFilter(min_share=0.4), pairs[3]) == [False]


def test_duplicates_are_equal_to_the_letter() -> None:
    pairs = (("a", "b"), ("a", "b"), ("a", "B"), ("a", "b"))
    assert dropped(DuplicatesFilter(), *pairs) == [False, True, False, True]


def test_near_duplicates_differ_in_case_marks_spaces_and_digits_only() -> None:
    pairs = (
        ("Seite 3 von 10.", "Page 3 of 10."),
        ("SEITE 12 von 10", "page 1 of 300!"),
        ("Seite 3 von 10.", "Pages 3 of 10."),
        ("!", "!"),
        ("?", "?"),
    )
    assert dropped(NearDuplicatesFilter(), *pairs) == [False, True, False, False, False]


def test_a_check_remembers_one_reading_only() -> None:
    some = DuplicatesFilter()
    assert dropped(some, ("a", "b")) == dropped(some, ("a", "b")) == [False]


def recipe(**data: Any) -> DataConfig:
    built = recipe_from_dict(
        {
            "name": "some",
            "model": {"preset": "macaron_tiny"},
            "data": {
                "source_language": "de",
                "target_language": "en",
                "train": [{"source": "a", "target": "b"}],
                **data,
            },
        }
    )
    assert isinstance(built, TranslationRecipe)
    assert recipe_from_dict(recipe_to_dict(built)) == built
    return built.data


def test_a_recipe_lists_filters_by_name_with_their_options() -> None:
    data = recipe(filters=[{"name": "length", "max_characters": 99}, {"name": "numbers"}])
    assert data.steps == (LengthFilter(max_characters=99), NumbersFilter())
    assert recipe(filters=[]).steps == ()


def test_every_filter_can_be_named() -> None:
    assert [step.name for step in recipe(filters=[{"name": name} for name in FILTERS]).steps] == [
        "encoding", "length", "ratio", "script", "language", "numbers", "duplicates",
        "near_duplicates",
    ]  # fmt: skip


def test_a_recipe_without_filters_has_those_of_its_ratio() -> None:
    names = [step.name for step in recipe().steps]
    assert names == ["encoding", "length", "ratio", "duplicates"]
    assert RatioFilter(max_ratio=2.5) in recipe(max_length_ratio=2.5).steps


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"filters": [{"name": "lenght"}]}, r"unknown data.filters\[0\].name 'lenght'; did"),
        ({"filters": [{"max_ratio": 2}]}, r"missing key 'data.filters\[0\].name' \(there are"),
        ({"filters": ["length"]}, r"data.filters\[0\] must be a mapping, got 'length'"),
        (
            {"filters": [{"name": "length"}, {"name": "ratio", "ratio": 2}]},
            r"unknown key 'data.filters\[1\].ratio'",
        ),
        ({"filters": [{"name": "ratio", "max_ratio": 0.5}]}, "ratio: max_ratio must be >= 1"),
        ({"filters": [{"name": "length", "max_characters": 0}]}, "max_characters must be >= 1"),
        ({"filters": [{"name": "language", "min_probability": 2}]}, r"must be in \[0, 1\], got 2"),
        (
            {"filters": [{"name": "script", "source": ["latn"]}]},
            "unknown script.*did you mean 'lat",
        ),
        ({"filters": [], "max_length_ratio": 2}, "set max_ratio of the filter"),
    ],
)
def test_what_a_recipe_gets_wrong_is_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        recipe(**data)
