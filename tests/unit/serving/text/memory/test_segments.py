"""What of a segment is compared, and how it is made to fit a sentence."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.text.memory.lookup import memory_of
from serving.text.memory.segments import (
    Segment,
    changed_words,
    draft_of,
    fitted,
    key_of,
    values_of,
)

PAGE = Segment("Page 3 of 10", "Seite 3 von 10")


@pytest.mark.parametrize(
    ("segment", "sentence", "expected"),
    [
        (PAGE, "Page 7 of 12", "Seite 7 von 12"),
        (PAGE, "Page 10 of 3", "Seite 10 von 3"),
        (PAGE, "Page 3 of 3", "Seite 3 von 3"),
        (Segment("Hello {name}!", "Hallo {name}!"), "Hello {user}!", "Hallo {user}!"),
        (Segment("It is 1,234.5 now", "Jetzt 1.234,5"), "It is 9.9 now", "Jetzt 9,9"),
        (Segment("It costs 5 euros", "Es kostet 5 Euro"), "It costs 1,500 euros", None),
        (Segment("5% & more", "5 % und mehr"), "7% & more", "7 % und mehr"),
        (Segment("It & 5 kg", "Es und 5 kg"), "It & 7 kg", "Es und 7 kg"),
        (Segment("Version 1.5", "Version 1.5"), "Version 2.25", "Version 2.25"),
        (Segment("Page 3", "Dritte Seite"), "Page 3", "Dritte Seite"),
        (Segment("Page 3", "Dritte Seite"), "Page 4", None),
        (Segment("3 of 3", "3 von 3"), "3 of 4", None),
        (Segment("Page 3", "Seite 3, 3"), "Page 4", None),
        (PAGE, "Page 3", None),
        (Segment("Hello {name}", "Hallo {name}"), "Hello 3", None),
    ],
)
def test_numbers_and_placeholders_go_where_each_has_one_place(
    segment: Segment, sentence: str, expected: str | None
) -> None:
    assert fitted(segment, sentence, "en", "de") == expected


@given(st.lists(st.integers(0, 99_999), min_size=1, max_size=5, unique=True), st.data())
def test_every_number_of_a_sentence_is_in_the_translation_once(
    own: list[int], data: st.DataObject
) -> None:
    new = data.draw(st.lists(st.integers(0, 99_999), min_size=len(own), max_size=len(own)))
    order = data.draw(st.permutations(range(len(own))))
    source = " and ".join(map(str, own))
    target = " und ".join(str(own[place]) for place in order)
    found = fitted(Segment(source, target), " and ".join(map(str, new)), "en", "de")
    assert found == " und ".join(str(new[place]) for place in order)
    assert key_of(source) == key_of(" and ".join(map(str, new)))


@given(st.text(max_size=200))
def test_any_text_is_its_own_segment(text: str) -> None:
    spans = [value.span for value in values_of(text)]
    assert spans == sorted(spans)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    assert fitted(Segment(text, "x"), text, "en", "de") == "x"
    assert "\n" not in key_of(text)


@pytest.mark.parametrize(
    ("sentence", "score"),
    [
        ("Don’t  press 7 buttons", 100),
        ("don't press 5 Buttons", 99),
        ("Don't press 5 button", 95),
        ("Do press 5 keys", None),
    ],
)
def test_what_differs_in_numbers_alone_is_the_same(sentence: str, score: float | None) -> None:
    memory = memory_of([Segment("Don't press 5 buttons", "5 nicht")], ("en", "de"), 75)
    [found] = memory.find([sentence], memory.threshold)
    assert (found and round(found.score)) == score


def test_the_same_words_go_before_what_was_added_later() -> None:
    pairs = [Segment("Part 1", "Teil eins"), Segment("Part 2", "Teil 2"), Segment("part 1", "nein")]
    memory = memory_of(pairs, ("en", "de"), 75)
    found = memory.find(["Part 1", "Part 2", "Part 5"], 75)
    assert [each and each.text for each in found] == ["Teil eins", "Teil 2", "Teil 5"]


@pytest.mark.parametrize(
    ("sentence", "draft", "changed"),
    [
        ("The house is blue.", "The house is red.", (3, 4)),
        ("The house is very red.", "The house is red.", (3, 4)),
        ("The house is red.", "The house is very red.", (3, 4)),
        ("The house is red", "The house is red.", (4, 5)),
        ("The house is red and big.", "The house is red.", (4, 5)),
        ("The house, the house", "The house", None),
        ("A house is red.", "The house is red.", None),
        ("The house is red.", "The house is red.", None),
        ("the house is red.", "The house is red.", None),
        ("a a a", "a a", None),
        ("a b a b c", "a b c", (2, 3)),
        ("", "The house", None),
    ],
)
def test_what_a_sentence_does_not_have_of_a_draft_lies_between_what_both_have(
    sentence: str, draft: str, changed: tuple[int, int] | None
) -> None:
    assert changed_words(sentence, draft) == changed


def test_a_draft_has_the_numbers_of_the_sentence() -> None:
    memory = memory_of([Segment("Page 3 of 10 is red", "Seite 3 von 10 ist rot")], ("en", "de"), 60)
    sentence = "Page 7 of 12 is blue"
    [found] = memory.find([sentence], 60)
    assert found is not None
    assert draft_of(found, sentence) == ("Page 7 of 12 is red", "Seite 7 von 12 ist rot")
