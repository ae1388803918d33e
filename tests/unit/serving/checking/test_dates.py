"""Months and days of months in texts."""

import itertools

import pytest
from babel.dates import format_date

from serving.checking.dates import LANGUAGES, is_day, is_in_date, months, weekdays
from serving.checking.invariants import faults
from serving.text.alignment import Span


def found(text: str, part: str) -> Span:
    begin = text.index(part)
    return begin, begin + len(part)


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_date_that_babel_writes_has_its_day(language):
    import datetime

    for month in range(1, 13):
        day = datetime.date(2011, month, 17)
        for style in ("long", "full"):
            text = format_date(day, style, locale=language)
            assert is_day(text, found(text, "17"), language), text
            assert not is_day(text, found(text, "2011"), language), text
            name = months(language)[f"month {month}"]
            assert is_in_date(text, found(text, name)), text
            assert style == "long" or weekdays(language)[f"weekday {day.weekday()}"] in text


@pytest.mark.parametrize(
    ("language", "text"),
    [("en", "17 people may come"), ("de", "17 Hunde im Mai"), ("fr", "17 mars"), ("ja", "17 May")],
)
def test_a_number_elsewhere_is_no_day(language, text):
    assert is_day(text, (0, 2), language) == (text == "17 mars")


def test_a_month_without_a_number_is_not_in_a_date():
    assert not is_in_date("You may go in March, I think.", found("You may go in March,", "March"))


@pytest.mark.parametrize(("ours", "theirs"), list(itertools.permutations(sorted(LANGUAGES), 2)))
def test_a_day_that_is_lost_is_a_fault_and_a_month_in_figures_is_none(ours, theirs):
    import datetime

    day = datetime.date(2011, 11, 17)
    source, right = (format_date(day, "full", locale=language) for language in (ours, theirs))

    assert faults(source, right, (ours, theirs)) == []
    lost = faults(source, right.replace("17", ""), (ours, theirs))
    assert [(fault.kind, fault.what.rstrip(".")) for fault in lost] == [("figures", "17")]
    wrong = faults(source, right.replace(months(theirs)["month 11"], "x"), (ours, theirs))
    assert [fault.kind for fault in wrong] == ["names"]
    assert faults("17.11.2011", right, (ours, theirs)) == []
