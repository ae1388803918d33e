"""What is done about translations with faults."""

import pytest

from serving.checking.invariants import faults
from serving.checking.repairs import (
    Repair,
    first_without_faults,
    put_right,
    repairs,
    wishes,
)
from serving.text.alignment import Link
from serving.text.edits import edited

DE_EN = "de", "en"


def linked(source, target, *pairs):
    """Links between words that stand once in each text."""
    places = []
    for ours, theirs in pairs:
        begin, first = source.index(ours), target.index(theirs)
        places.append(Link((begin, begin + len(ours)), (first, first + len(theirs)), 0.9))
    return places


def test_the_first_output_without_a_fault_is_taken():
    assert first_without_faults("100 Hunde", ["10 dogs", "100 dogs", "100 hounds"], DE_EN, []) == 1
    assert first_without_faults("100 Hunde", ["10 dogs"], DE_EN, []) is None


def test_an_output_is_no_better_that_loses_the_same_word_without_a_broken_letter():
    outputs = ["Mrs. \U0001f680", "Mrs. WebAuthn", "Mrs. Garcia"]
    wrong = faults("Sra. García", outputs[0], ("es", "en"))
    assert first_without_faults("Sra. García", outputs, ("es", "en"), wrong) == 2


def test_a_second_search_must_write_what_is_missing():
    assert wishes(faults("10.000 Hunde", "100 dogs", DE_EN)).required == ("10,000",)
    assert wishes(faults("10.000 Hunde", "100 dogs", DE_EN)).forbidden == ()


def test_a_second_search_must_not_write_what_only_is_too_much():
    found = wishes(faults("Gut", "Good 🚀", DE_EN))

    assert found.required == ()
    assert found.forbidden == ("🚀",)
    assert not wishes(faults("Gut", "", DE_EN))


@pytest.mark.parametrize(
    ("text", "output", "expected"),
    [
        ("Preis: 100 $", "Price: $1", "Price: $100"),
        ("10.000 Hunde", "100,000 dogs", "10,000 dogs"),
        ("Ich bin Łukasz.", "I'm \ufffd\ufffdukasz.", "I'm Łukasz."),
        ("Herr García kommt", "Mr 🚀 is coming", "Mr García is coming"),
    ],
)
def test_the_sources_form_takes_the_place_of_the_only_thing_that_is_too_much(
    text, output, expected
):
    assert edited(output, put_right(text, output, (), DE_EN)) == expected


def test_figures_with_the_same_digits_are_one_figure_written_in_two_ways():
    edits = put_right("3.000 bis 5.000 Pfund", "3.000 to 5.000 pounds", (), DE_EN)

    assert edited("3.000 to 5.000 pounds", edits) == "3,000 to 5,000 pounds"


def test_of_several_figures_links_say_which_is_which():
    source, output = "Von 1980 bis 1995", "From 1890 to 1959"
    links = linked(source, output, ("1980", "1890"), ("1995", "1959"))

    assert put_right(source, output, (), DE_EN) is None
    assert edited(output, put_right(source, output, links, DE_EN)) == "From 1980 to 1995"


def test_a_name_takes_the_place_of_the_words_that_are_linked_to_it():
    source, output = "Frau Żółć lacht.", "Mrs Bile laughs."
    links = linked(source, output, ("Żółć", "Bile"), ("lacht", "laughs"))

    assert edited(output, put_right(source, output, links, DE_EN)) == "Mrs Żółć laughs."


def test_what_has_no_place_is_left():
    assert put_right("500 Hunde", "dogs", (), DE_EN) is None
    assert put_right("Gut", "Good 🚀", (), DE_EN) is None


def test_a_repair_is_reported_once_for_each_thing():
    found = faults("Preis: 100 $", "Price: $1", DE_EN)

    assert repairs(found + found, "source") == (
        Repair("figures", "100", "source"),
        Repair("figures", "1", "source"),
    )
