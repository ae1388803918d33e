"""What becomes of a translation that differs from its source."""

from dataclasses import replace
from typing import cast

import pytest

from serving.checking.invariants import faults
from serving.checking.repairs import Repair
from serving.errors import InvalidOptionError
from serving.search.beams.constraints import Constraints
from serving.search.beams.sentence import Original, Sentence
from serving.text.alignment import Link
from serving.text.terms import TermReader, Terms
from serving.translation.results import Again, Done, TextHypothesis, Translation
from serving.translation.verification import verified


class Reader:
    """Writes every term but those that the model is said not to know."""

    def __init__(self, unknown: str = "") -> None:
        self.unknown, self.asked = unknown, Terms()

    def constraints(self, text: str, terms: Terms) -> Constraints:
        if self.unknown in (*terms.required, *terms.forbidden):
            raise InvalidOptionError("unknown", parameter="required")
        self.asked = terms
        return Constraints(required=((7,),))


def hypothesis(text: str, links: tuple[Link, ...] | None = None) -> TextHypothesis:
    return TextHypothesis(text, 0.0, 0.0, (text,), (0.0,), finished=True, alignment=links)


def translation(*texts: str, links: tuple[Link, ...] | None = None) -> Translation:
    return Translation(texts[0], tuple(hypothesis(text, links) for text in texts))


def check(
    source: str,
    found: Translation,
    *others: str,
    first: Translation | None = None,
    streamed: bool = False,
    reader: Reader | None = None,
) -> Done | Again:
    original = Original(source, "de", "en", noteworthy=True, first=first)
    sentence = Sentence((5, 3), original=original, streamed=streamed)
    more = tuple(map(hypothesis, others))
    terms = cast(TermReader, reader or Reader())
    wrong = faults(source, (first or found).text, ("de", "en"))
    return verified(sentence, original, found, wrong, lambda: more, terms)


def test_the_next_best_hypothesis_without_a_fault_is_taken() -> None:
    found = check("Preis: 100 $", translation("Price: $1"), "Price: $10", "Price: $100")

    assert isinstance(found, Done)
    assert found.translation.text == "Price: $100"
    assert [each.text for each in found.translation.hypotheses] == ["Price: $100"]
    assert found.translation.repaired[0] == Repair("figures", "100", "hypothesis")


def test_of_several_hypotheses_that_were_asked_for_the_right_one_comes_first() -> None:
    found = check("Preis: 100 $", translation("Price: $1", "Price: $100", "Price $100"))

    assert isinstance(found, Done)
    texts = [each.text for each in found.translation.hypotheses]
    assert texts == ["Price: $100", "Price: $1", "Price $100"]


def test_a_figure_that_became_another_like_it_is_put_right_where_it_stands() -> None:
    found = check("10.000 Leute", translation("100,000 people"))

    assert isinstance(found, Done)
    assert found.translation.text == "10,000 people"
    assert {repair.by for repair in found.translation.repaired} == {"source"}


def test_what_is_missing_is_required_of_a_second_search() -> None:
    reader = Reader()
    first = translation("dogs")

    found = check("500 Hunde", first, reader=reader)

    assert isinstance(found, Again)
    assert found.sentence.text == "500 Hunde"
    assert found.sentence.original is not None
    assert found.sentence.original.first == first
    assert reader.asked == Terms(required=("500",))


def test_the_second_search_is_taken_where_it_is_right_without_links_that_nobody_asked_for() -> None:
    links = (Link((0, 3), (0, 3), 1.0),)

    found = check("500 Hunde", translation("500 dogs", links=links), first=translation("dogs"))

    assert isinstance(found, Done)
    assert found.translation.hypotheses[0].alignment is None
    assert found.translation.repaired == (Repair("figures", "500", "search"),)
    assert found.translation.warnings == ()


def test_after_a_second_search_links_say_where_the_sources_form_belongs() -> None:
    source, output = "Frau Żółćek lacht.", "Mrs Bile laughs."
    links = (Link((5, 11), (4, 8), 1.0), Link((12, 17), (9, 15), 1.0))

    found = check(source, translation(output, links=links), first=translation("Mrs Bile laughed."))

    assert isinstance(found, Done)
    assert found.translation.text == "Mrs Żółćek laughs."


def test_a_copied_name_is_put_right_where_it_stands() -> None:
    found = check("Er lebt in Marokko.", translation("He lives in Marokko."))

    assert isinstance(found, Done)
    assert found.translation.text == "He lives in Morocco."
    assert found.translation.repaired == (Repair("names", "Marokko", "source"),)


def test_another_search_of_the_same_sentence_says_where_a_name_belongs() -> None:
    source, first = "Er lebt in Kenia.", translation("He lives in the catch.")
    links = (Link((11, 16), (16, 21), 0.8),)

    again = check(source, first)
    found = check(source, translation(first.text, links=links), first=first)

    assert isinstance(again, Again)
    assert again.sentence.text == source
    assert again.sentence.constraints is None
    assert isinstance(found, Done)
    assert found.translation.text == "He lives in the Kenya."
    assert found.translation.hypotheses[0].alignment is None


def test_what_is_streamed_gets_a_warning_for_a_name() -> None:
    first = translation("He lives in the catch.")

    found = check("Er lebt in Kenia.", first, streamed=True)

    assert found == Done(replace(first, warnings=("names",)))


def test_what_nothing_puts_right_is_the_first_translation_with_a_warning() -> None:
    first = translation("dogs")

    found = check("500 Hunde", translation("hounds"), first=first)

    assert found == Done(replace(first, warnings=("figures",)))


def test_a_second_search_that_loses_the_same_name_without_a_trace_is_not_right() -> None:
    """Broken characters said that there was a name; without them nothing tells of it."""
    first, second = translation("\U0001f680 laughs."), translation("WebAuthn laughs.")

    told = check("Sören lacht.", second, first=first, streamed=True)
    found = check("Sören lacht.", second, first=first)

    assert isinstance(told, Done)
    assert (told.translation.warnings, told.translation.repaired) == (("letters",), ())
    assert isinstance(found, Done)
    assert found.translation.text == "Sören laughs."
    assert {repair.by for repair in found.translation.repaired} == {"source"}


def test_a_term_that_the_model_cannot_write_leaves_a_warning() -> None:
    found = check("500 Hunde", translation("dogs"), reader=Reader(unknown="500"))

    assert isinstance(found, Done)
    assert found.translation.warnings == ("figures",)


def test_of_a_streamed_sentence_only_a_second_search_is_made() -> None:
    found = check("Gut", translation("Good 🚀"), "Good", streamed=True)

    assert isinstance(found, Again)
    again = check(
        "Gut", translation("Good 🚀"), "Good", streamed=True, first=translation("Good 🚀")
    )
    assert isinstance(again, Done)
    assert again.translation.text == "Good 🚀"
    assert again.translation.warnings == ("letters",)


@pytest.mark.parametrize("unknown", ["García", ""])
def test_a_name_takes_the_place_of_the_picture_that_it_became(unknown: str) -> None:
    """Where the model cannot write it, and where a second search writes what is far less likely."""
    reader = Reader(unknown) if unknown else Reader()
    first = translation("Mrs. 🚀")
    done = check("Frau García", first, reader=reader)
    if not unknown:
        assert isinstance(done, Again)
        unlikely = Translation("García", (replace(hypothesis("García"), score=-9.0),))
        done = check("Frau García", unlikely, first=first)
    assert isinstance(done, Done)
    assert done.translation.text == "Mrs. García"
    assert {repair.by for repair in done.translation.repaired} == {"source"}
    assert done.translation.warnings == ()


def test_a_long_list_of_lost_figures_is_not_decoded_once_more() -> None:
    source, lost = "Am 3. mit 14, 25, 36 und 47 Gästen", translation("With guests")
    found = check(source, lost)

    assert isinstance(found, Done)
    assert found.translation.text == "With guests"
    assert "figures" in found.translation.warnings
    assert isinstance(check("Mit 14 und 25 Gästen", lost), Again)
