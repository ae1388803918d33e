"""Figures of a translation against those of its source."""

import itertools
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.checking.figures import figures, unmatched, written
from serving.checking.units import strange_sign

RIGHT = [
    ("de", "en", "Preis: 100 $", "Price: $100"),
    ("de", "en", "2 Hunde", "two dogs"),
    ("en", "de", "two dogs", "2 Hunde"),
    ("en", "de", "7:30", "halb acht"),
    ("en", "de", "at half past seven", "um 7:30 Uhr"),
    ("en", "de", "at 7:15 am", "um 7.15 Uhr"),
    ("en", "de", "at 7:15 pm", "um 19:15 Uhr"),
    ("de", "en", "um 15 Uhr", "at 3 p.m."),
    ("fr", "en", "à 7h15", "at 7:15"),
    ("fr", "en", "à 19 h", "at 7 p.m."),
    ("es", "en", "a las 3 p. m.", "at 3 pm"),
    ("es", "en", "a las 8 y media", "at 8:30 a.m."),
    ("en", "de", "10,000 people", "10.000 Leute"),
    ("fr", "en", "2 200 112 habitants", "2,200,112 inhabitants"),
    ("en", "fr", "2,200,112 inhabitants", "2\u202f200\u202f112 habitants"),
    ("de", "en", "1,5 Mio. Euro", "1.5 million euros"),
    ("de", "en", "1.500.000 Euro", "1.5 million euros"),
    ("de", "en", "am 1.2.2020", "on February 1, 2020"),
    ("en", "de", "the 1990s", "die 90er"),
    ("de", "en", "die Achtziger", "the 1980s"),
    ("es", "en", "por quinientos yenes", "for 500 yen"),
    ("fr", "en", "au XIXe siècle", "in the 19th century"),
    ("de", "en", "5,0 %", "5%"),
    ("de", "en", "ein Hund", "1 dog"),
    ("en", "de", "555-123-4567", "555 123 4567"),
    ("en", "fr", "won 2-1", "a gagné 2:1"),
    ("en", "de", "CO2 is a gas", "Kohlendioxid ist ein Gas"),
    ("en", "xx", "two", "2"),
    ("en", "de", "at 6 oclock", "um 18 Uhr"),
    ("de", "en", "Die Adresse 192.168.100.200", "The address 192.168.100.200"),
    ("en", "de", "Windows 8.1", "Windows 8.1"),
    ("de", "en", "kostet 1,335 €", "costs €1.335"),
    ("de", "en", "zwischen 19 und 21 Uhr", "between 7 and 9 pm"),
    ("en", "fr", "at 3, 6 and 9 p.m.", "à 15, 18 et 21 heures"),
    ("en", "de", "it weighs 300 pounds", "sie wiegt 140 kg"),
    ("fr", "en", "à 16 km de la frontière", "10 miles from the border"),
    ("es", "en", "una fiebre de 39 grados Celsius", "a fever of 102 degrees Fahrenheit"),
    ("fr", "en", "du 6 au 27 février 2002", "February 6th, 2002 to February 27th, 2002"),
    ("de", "en", "um 5.30", "at 5:30"),
    ("en", "es", "events in 2005 in the timeline for 2005", "la cronología de 2005"),
]
WRONG = [
    ("de", "en", "Preis: 100 $", "Price: $1", ["100"], ["1"]),
    ("en", "de", "10,000 people", "100.000 Personen", ["10,000"], ["100.000"]),
    ("en", "de", "10,000 people", "10,000 Personen", ["10,000"], ["10,000"]),
    ("de", "en", "12.345,67 Euro", "12.345.67 euros", ["12.345,67"], ["12.345.67"]),
    ("de", "en", "10.000 Leute", "10.000 people", ["10.000"], ["10.000"]),
    ("en", "de", "at 7:15 am", "um 19:15 Uhr", ["7:15 am"], ["19:15"]),
    ("de", "en", "2 Hunde", "3 dogs", ["2"], ["3"]),
    ("en", "de", "in 1986", "im Jahr 1968", ["1986"], ["1968"]),
    ("en", "de", "555-123-4567", "555 123 4657", ["4567"], ["4657"]),
    ("de", "en", "DE123456789", "DE123456798", ["123456789"], ["123456798"]),
    ("de", "en", "Ein XL kostet 19,92", "An XL is 7.92", ["19,92"], ["7.92"]),
    ("de", "en", "777 777 6666", "777 6666", ["777"], []),
    ("de", "en", "16 000 Liter", "100 litres", ["16 000"], ["100"]),
    ("en", "de", "10 miles and 3 pounds", "12 Meilen und 3 Pfund", ["10"], ["12"]),
    ("en", "de", "at 7 am", "um 19 Uhr", ["7 am"], ["19"]),
    ("de", "en", "kostet 1,335 €", "costs €1,335", ["1,335"], ["1,335"]),
    ("de", "en", "0,125 mm dick", "0,125 mm thick", ["0,125"], ["0,125"]),
    ("fr", "en", "La note est de 1,85", "The mark is 185", ["1,85"], ["185"]),
    ("de", "en", "0,25 l Milch", "025 l milk", ["0,25"], ["025"]),
    ("de", "en", "7 Hunde", "19 dogs", ["7"], ["19"]),
    ("en", "de", "from 1998 to 1999", "von 1998 bis 1989", ["1999"], ["1989"]),
]
GROUPS = {"en": ",", "de": ".", "fr": "\u202f", "es": "."}
DECIMALS = {"en": ".", "de": ",", "fr": ",", "es": ","}
PAIRS = [("en", "de"), ("de", "en"), ("en", "fr"), ("fr", "en"), ("en", "es"), ("es", "en")]
words = st.lists(st.sampled_from(["xalo", "brin", "fesk", "gruw"]), min_size=1, max_size=4)


@pytest.mark.parametrize(("source", "target", "text", "output"), RIGHT)
def test_a_right_translation_has_no_unmatched_figure(source, target, text, output):
    found = unmatched(text, output, source, target)

    assert not found.missing
    assert not found.extra


@pytest.mark.parametrize(("source", "target", "text", "output", "missing", "extra"), WRONG)
def test_a_changed_figure_is_found_on_both_sides(source, target, text, output, missing, extra):
    found = unmatched(text, output, source, target)

    assert [figure.text for figure in found.missing] == missing
    assert [figure.text for figure in found.extra] == extra


def test_a_sign_of_a_currency_that_the_source_does_not_name_is_strange():
    assert strange_sign("Rabatt: 50 €", "Discount: $50") == ("$", (10, 11))
    assert strange_sign("Preis: 100 $", "Price: 100 $$") == ("$", (12, 13))
    assert strange_sign("50 Dollar", "$50") is None
    assert strange_sign("Es kostet 14,88", "It is $14.88") is None


@pytest.mark.parametrize(
    ("source", "target", "figure", "expected"),
    [
        ("en", "de", "10,000", "10.000"),
        ("en", "de", "1,234.5", "1.234,5"),
        ("de", "en", "1.234,5", "1,234.5"),
        ("fr", "en", "2 200 112", "2,200,112"),
        ("de", "en", "007", "007"),
        ("es", "en", "1.234", "1.234"),
        ("en", "de", "7:15 am", "7:15"),
        ("en", "de", "7:15 pm", "19:15"),
        ("de", "en", "3.2.1", "3.2.1"),
    ],
)
def test_a_figure_is_written_by_the_conventions_of_the_target(source, target, figure, expected):
    assert written(figure, source, target) == expected


def number(value, cents, language):
    whole = f"{value:,}".replace(",", GROUPS[language])
    return whole + (f"{DECIMALS[language]}{cents:02}" if cents else "")


@given(
    st.sampled_from(PAIRS),
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 99)), min_size=1, max_size=4),
    words,
    st.randoms(use_true_random=False),
)
def test_random_figures_in_the_targets_form_and_another_order_pass(pair, values, between, random):
    source, target = pair
    text = " ; ".join(f"{between[0]} {number(*value, source)}" for value in values)
    moved = random.sample(values, len(values))
    output = " ; ".join(f"{between[-1]} {number(*value, target)}" for value in moved)

    found = unmatched(text, output, source, target)

    assert not found.missing
    assert not found.extra


@given(
    st.sampled_from(PAIRS),
    st.integers(101, 10**8).map(str),
    st.integers(0, 8),
    st.sampled_from(string.digits),
    words,
)
def test_a_changed_digit_of_a_large_figure_is_found(pair, digits, place, digit, between):
    place %= len(digits)
    changed = digits[:place] + digit + digits[place + 1 :]
    if int(changed) == int(digits) or changed[0] == "0" or changed[-2:] == digits:
        return
    text = f"{' '.join(between)} {digits} xalo"

    found = unmatched(text, text.replace(digits, changed), *pair)

    assert [figure.text for figure in found.missing] == [digits]


@given(st.text(alphabet="0123456789.,:/-'h apmUr\u202f€%", max_size=40), st.sampled_from(PAIRS))
def test_any_row_of_digits_and_signs_is_read_once_and_equals_itself(text, pair):
    places = [figure.span for figure in figures(text, pair[0])]

    assert all(one[1] <= two[0] for one, two in itertools.pairwise(places))
    assert "".join(c for b, e in places for c in text[b:e] if c in string.digits) == "".join(
        c for c in text if c in string.digits
    )
    found = unmatched(text, text, pair[0], pair[0])
    assert not found.missing
    assert not found.extra


def test_a_text_of_thousands_of_figures_is_not_compared():
    def listed(first, count):
        return "; ".join(map(str, range(first, first + count)))

    begin = time.perf_counter()
    assert not unmatched(listed(20_000, 20_000), listed(70_000, 20_000), "en", "de").missing
    assert time.perf_counter() - begin < 1
    assert len(unmatched(listed(200, 100), listed(700, 100), "en", "de").missing) == 100
