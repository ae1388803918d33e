"""Which figures are kept, what models read in their place, and how they are written."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.text.document import Document, Format
from serving.text.kept.figures import IDENTIFIER, in_convention
from serving.text.kept.placeholders import placeholders
from serving.text.placing.placement import Translated
from tests.unit.serving.text.fakes import TRANSLATORS, Translator, read, translated, upper

PRICES = [
    "50 €", "50€", "$100", "$ 100", "US$ 5.50", "1.299,00 €", "$1,299.00", "1 299,00 €", "£20",
    "¥5000", "EUR 20,50", "20 EUR", "CHF 15.50", "10–20 €", "750,- EUR", "5,– €", "$5k",
    "€1.5bn", "3,50\u00a0€",
]  # fmt: skip
NUMBERS = [
    "10,000", "10.000", "2 200 112", "2\u202f200\u00a0112", "1.234.567", "1'000'000", "1,234.50",
    "4711000", "3:1", "16:9",
]  # fmt: skip
MEASURES = [
    "200 g", "1,5 kg", "250 ml", "0,25 l", "1 L", "80cm", "5 km", "130 km/h", "20 m²", "2 m",
    "35 °C", "5-10 kg", "74,5 m²", "1.5 l",
]  # fmt: skip
SHARES = ["50 %", "50%", "2,3 %", "4.75%", "5–10 %", "100\u00a0%"]
DECIMALS = ["1,5", "0,25", "12,80", "39,4", "0,125"]
ORDINALS = ["3.ª", "2.º", "1.er", "21ª", "n.º 5", "N.º 12", "n° 12", "nº 7"]
ERAS = ["44 v. Chr.", "70 n. Chr.", "52 av. J.-C.", "44 a. C.", "44 BC", "44 B.C.", "70 A.D."]
TIMES = [
    "7:15 am", "7:15am", "7:15 AM", "10:30", "19:15 Uhr", "7.15 Uhr", "8 Uhr", "7 Uhr 15", "5 p.m.",
    "3 p. m.", "7pm",    "12:30:45", "10h30", "10 h 30", "10:30–11:30",
    "9–18 Uhr", "9 bis 18 Uhr", "8.30–17.00 Uhr", "Mo–Fr", "Mo.–Fr. 9–18 Uhr",
    "Sa 10 Uhr", "Mo, Mi, Fr 8–12 Uhr", "Mon–Fri 9am–6pm", "lun-ven: 9h-18h",
    "9 am-5 pm", "10am–6pm", "2-4 pm", "9:00 am - 5:30 pm", "7 p.m.-10 p.m.", "8:30-11 AM",
]  # fmt: skip
IDENTIFIERS = [
    "555-123-4567", "555-1234", "(030) 1234567", "+49 30 1234567", "+1 (202) 555-0100",
    "0800 123 456", "030/1234567", "030.1234567", "12.34 56.78 90",
    "01 23 45 67 89", "4111 1111 1111 1111", "4111-1111-1111-1111",
    "DE123456789", "GB 123 4567 89", "FR 12 345678901", "ATU12345678", "ESX1234567X",
    "DE89 3704 0044 0532 0130 00", "978-3-16-148410-0", "12/345/67890", "192.168.100.200",
    "AB12CD34", "K12345-AB",
]  # fmt: skip


def found(text: str) -> list[tuple[str, str]]:
    return [(text[slice(*p.span)], p.kind) for p in placeholders(text)]


@pytest.mark.parametrize(
    "figure", PRICES + NUMBERS + MEASURES + SHARES + DECIMALS + ERAS + ORDINALS + TIMES
)
def test_figures(figure: str) -> None:
    for text in ("Das ist {}, ja", "({}) da", "Heute {}: ja", "{}, bitte"):
        assert found(text.format(figure)) == [(figure, "figure")]


@settings(deadline=None, max_examples=1000)
@given(st.lists(st.sampled_from(["00", "+", *"0149 ()/.-,a", "\u00a0"]), max_size=20).map("".join))
def test_a_phone_is_found_as_if_its_digits_were_counted_everywhere(text: str) -> None:
    everywhere = IDENTIFIER.replace(r"(?=\+|00)", "")
    assert everywhere != IDENTIFIER
    spans, others = (
        [each.span() for each in re.finditer(pattern, text, re.VERBOSE)]
        for pattern in (IDENTIFIER, everywhere)
    )
    assert spans == others


@pytest.mark.parametrize("number", IDENTIFIERS)
def test_numbers_that_count_nothing(number: str) -> None:
    for text in ("Das ist {}.", "({}) da", "Ruf {} an", "{}"):
        assert found(text.format(number)) == [(number, "word")]


@pytest.mark.parametrize(
    "text",
    [
        "5 Leute", "1995 und 2020", "Am 12.11.2024", "in 2020 100 people",
        "Tag 3 am Meer", "um 5 am Montag", "Zimmer 2 Am Ende", "1., 2. und 3.", "5-10 Leute",
        "A320 und COVID-19", "Kapitel 5. 10 Leute", "der 2. Mai", "von 2019-2020", "+5 Grad",
        "2024-11-12", "5 h", "Nr. 12", "USA 1994", "EUR und USD", "in $ bezahlt", "x:1",
        "Version 2.100", "§ 1.234", "5 mal", "3 l'ont vu", "2 m’ont dit", "5 km-Lauf",
        "4 m/Sekunde", "1 m 80", "1.2.2020", "10,5-fach", "Größe 5 M", "3 kgs",
    ],
)  # fmt: skip
def test_what_is_read(text: str) -> None:
    assert all(kind == "symbol" for _, kind in found(text))


@pytest.mark.parametrize(
    "text",
    [
        "Version 2.5 is new", "Python 3.11 runs", "The latest version is 2.5", "See section 3.2",
        "Fig. 2.1 shows it", "1.1 Purpose", "Release of 2.5", "We meet at 5.30", "am 3.5 um acht",
        "Upgrade to 8.1", "Chapter 4.2 and 4.3", "Er kommt am 3.5.", "um 5.30",
    ],
)  # fmt: skip
def test_a_number_with_a_point_may_be_no_decimal(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "About 8.4 million people", "It rose to 2.3", "It is 0.05",
        "The rope is 4.5 meters long", "Windows is 1.92 meters wide", "between 1.5 and 2.5",
        "from 7.9 to 8.5 percent", "2.5 hours later",
    ],
)  # fmt: skip
def test_a_number_with_a_point_that_counts_something_is_a_decimal(text: str) -> None:
    numbers = re.findall(r"\d+\.\d+", text)
    assert found(text) == [(number, "figure") for number in numbers]


def test_a_long_list_of_decimals_takes_little_time() -> None:
    begin = time.perf_counter()
    assert found("1.5, " * 4000) == []
    assert time.perf_counter() - begin < 1


def test_the_french_first_of_a_month_is_a_figure() -> None:
    assert found("le 1er mai") == [("1er", "figure")]
    assert found("le 1er homme") == []
    assert found("au 2e étage") == [("2e", "figure")]
    assert found("la 23ème fois") == [("23ème", "figure")]
    assert found("0x1e 2e5 x2e Z 2e!") == []
    ranks = {"1er": "1st", "2e": "2nd", "11ème": "11th", "1ère": "1st", "23e": "23rd"}
    assert {rank: in_convention(rank, "fr", "en") for rank in ranks} == ranks
    assert in_convention("2e", "fr", "de") == "2e"
    document = Document("Il part le 1er mai.", "text")
    document.divide("fr", lambda _: True, target="en")
    assert document.sentences == ["Il part le 27 mai."]
    assert document.render([Translated("He leaves on May 27.")]).text == "He leaves on May 1st."


def test_a_full_stop_that_ends_a_sentence_is_no_part_of_a_time() -> None:
    assert read("It was 5:30 p.m. The train left.", language="en").sentences == [
        "It was 10.", "The train left.",
    ]  # fmt: skip
    assert read("He came at 5 p.m. Tuesday.", language="en").sentences == ["He came at 10 Tuesday."]
    assert read("At 5 p.m. he came.", language="en").sentences == ["At 10 he came."]


def test_a_number_stands_for_a_figure_and_an_hour_for_a_time() -> None:
    assert read("Um 19:15 Uhr kostet es 1.299 € oder 5 €.").sentences == [
        "Um 10 kostet es 27 oder 38."
    ]
    assert read("Die 27 Hunde um 10 kosten 50 € um 11:15.").sentences == [
        "Die 27 Hunde um 10 kosten 38 um 9."
    ]


@pytest.mark.parametrize("format", ["text", "html", "xml", "markdown"])
@pytest.mark.parametrize(
    "figure", [*PRICES, *NUMBERS, *MEASURES, *SHARES, *ORDINALS, *TIMES, *IDENTIFIERS]
)
@pytest.mark.parametrize("translator", TRANSLATORS)
def test_a_figure_comes_out_once(figure: str, translator: Translator, format: Format) -> None:
    for text in (f"Das macht {figure}, ja", f"Es sind ({figure}) da"):
        result = translated(text, translator, format)
        assert result.count(figure) == 1, result


@pytest.mark.parametrize("translator", TRANSLATORS)
@pytest.mark.parametrize(
    "kept", ["<b>5</b> €", "<b>1.299</b>,00 €", "<i>555</i>-<i>123</i>-4567", "$<b>5</b>"]
)
def test_a_figure_in_pieces_stays(kept: str, translator: Translator) -> None:
    for format in ("html", "xml"):
        result = translated(f"<p>Das macht {kept} heute</p>", translator, format)
        assert result.count(kept) == 1


@pytest.mark.parametrize(
    ("source", "target", "figure", "wanted"),
    [
        ("de", "en", "1.299,00 €", "1,299.00 €"),
        ("de", "en", "3,50 €", "3.50 €"),
        ("de", "en", "10.000", "10,000"),
        ("de", "en", "10–20 €", "10–20 €"),
        ("de", "en", "2 200 112", "2 200 112"),
        ("de", "en", "1 299,00 €", "1,299.00 €"),
        ("de", "en", "19:15 Uhr", "19:15"),
        ("de", "en", "7.15 Uhr", "7:15"),
        ("de", "en", "1,299.00 €", "1,299.00 €"),
        ("en", "de", "$1,299.50", "$1.299,50"),
        ("en", "de", "10,000", "10.000"),
        ("en", "de", "7:15 am", "7:15 Uhr"),
        ("en", "de", "9 a.m.", "9 Uhr"),
        ("en", "de", "20 BRL", "20 BRL"),
        ("en", "de", "20 AUD", "20 AUD"),
        ("de", "en", "8 Uhr", "8:00"),
        ("de", "en", "9 bis 18 Uhr", "9:00 to 18:00"),
        ("de", "fr", "9.30 bis 18 Uhr", "9:30 à 18 h"),
        ("de", "es", "9:30 bis 18:15 Uhr", "9:30 a 18:15"),
        ("de", "en", "7 Uhr 15", "7:15"),
        ("de", "fr", "8 Uhr", "8 h"),
        ("en", "de", "12:15 am", "0:15 Uhr"),
        ("en", "de", "12:15 pm", "12:15 Uhr"),
        ("en", "de", "5 p.m.", "17 Uhr"),
        ("en", "de", "4:30-5:30 pm", "16:30-17:30 Uhr"),
        ("en", "de", "9 am-5 pm", "9-17 Uhr"),
        ("en", "de", "2-4 pm", "14-16 Uhr"),
        ("en", "de", "9-5 pm", "9-17 Uhr"),
        ("en", "de", "11:30 - 1 pm", "11:30 - 13 Uhr"),
        ("en", "de", "12-2 pm", "12-14 Uhr"),
        ("en", "de", "6pm–8am", "18–8 Uhr"),
        ("en", "fr", "9:00 am-5:30 pm", "9 h 00-17 h 30"),
        ("en", "es", "9 am-5 pm", "9 am-5 pm"),
        ("en", "es", "2-4 pm", "2-4 pm"),
        ("en", "de", "10:30", "10:30"),
        ("en", "fr", "$1,299.50", "$1\u202f299,50"),
        ("en", "fr", "7:15 pm", "19 h 15"),
        ("en", "fr", "3:1", "3:1"),
        ("en", "es", "5 p.m.", "5 p.\u00a0m."),
        ("en", "es", "5pm", "5 pm"),
        ("en", "es", "10,000", "10.000"),
        ("fr", "en", "2 200 112", "2,200,112"),
        ("fr", "en", "1\u202f299,00 €", "1,299.00 €"),
        ("fr", "en", "10 h 30", "10:30"),
        ("es", "en", "3 p. m.", "3 p.m."),
        ("de", "en", "750,- EUR", "750 EUR"),
        ("de", "en", "5,– €", "5 €"),
        ("de", "de", "750,- EUR", "750,- EUR"),
        ("es", "en", "3.ª", "3rd"),
        ("es", "en", "1.er", "1st"),
        ("es", "en", "12.º", "12th"),
        ("es", "en", "22ª", "22nd"),
        ("es", "en", "n.º 5", "No. 5"),
        ("fr", "en", "n° 12", "No. 12"),
        ("fr", "en", "52 av. J.-C.", "52\u00a0BC"),
        ("es", "en", "70 d. C.", "70\u00a0AD"),
        ("de", "en", "44 v. Chr.", "44\u00a0BC"),
        ("en", "de", "44 B.C.", "44\u00a0v.\u00a0Chr."),
        ("en", "fr", "44 BC", "44\u00a0av. J.-C."),
        ("en", "es", "70 AD", "70\u00a0d.\u00a0C."),
        ("es", "en", "1.299,00 €", "1,299.00 €"),
        ("fr", "en", "1,5", "1.5"),
        ("es", "en", "0,25 l", "0.25 l"),
        ("de", "en", "74,5 m²", "74.5 m²"),
        ("en", "es", "4.75%", "4,75\u00a0%"),
        ("en", "de", "50%", "50\u00a0%"),
        ("en", "fr", "50 %", "50 %"),
        ("de", "en", "50 %", "50%"),
        ("de", "fr", "50%", "50\u00a0%"),
        ("fr", "en", "200 g", "200 g"),
        ("en", "ja", "10,000", "10,000"),
        ("de", "de", "10.000", "10.000"),
    ],
)
def test_figures_are_written_as_the_target_does(
    source: str, target: str, figure: str, wanted: str
) -> None:
    assert in_convention(figure, source, target) == wanted
    document = Document(f"Es, {figure}, ist", "text")
    document.divide(source, lambda _: True, target=target)
    result = document.render([upper(sentence) for sentence in document.sentences]).text
    assert result == f"ES, {wanted}, IST"


@pytest.mark.parametrize(
    ("source", "read_as"),
    [
        ("Es sind 50 % mehr.", "Es sind 50 % mehr."),
        ("Es sind 50 % mehr und 50 Leute.", "Es sind 27 % mehr und 50 Leute."),
        ("Es sind 5 % und 15 % mehr.", "Es sind 5 % und 15 % mehr."),
        ("Es sind 2,5 % mehr.", "Es sind 27 % mehr."),
        ("Es sind 12 km und 200 g.", "Es sind 12 km und 27."),
    ],
)
def test_a_whole_number_with_a_sign_that_models_know_is_read_as_it_is(
    source: str, read_as: str
) -> None:
    assert read(source).sentences == [read_as]


@pytest.mark.parametrize(
    ("translation", "wanted"),
    [
        ("Le 50 des 5 gens.", "Le 50\u00a0% des 5\u00a0% gens."),
        ("Le 50% des 5 % gens.", "Le 50\u00a0% des 5\u00a0% gens."),
        ("Le 50 pour cent des 5%s gens.", "Le 50\u00a0% des 5\u00a0% gens."),
        ("Le % 50 des 5 % gens.", "Le 50\u00a0% des 5\u00a0% gens."),
        ("Le 5 des 50 gens.", "Le 5\u00a0% des 50\u00a0% gens."),
    ],
)
def test_a_sign_that_a_model_lost_or_wrote_otherwise_comes_back(
    translation: str, wanted: str
) -> None:
    document = Document("Of the people 50% and 5%.", "text")
    document.divide("en", lambda _: True, target="fr")
    assert document.render([Translated(translation)]).text == wanted
    assert document.as_in_text(0, "50% and 5%") == "50% and 5%"


@pytest.mark.parametrize(
    ("translation", "wanted"),
    [
        ("Er kam um 10 Uhr.", "Er kam um 7:15 Uhr."),
        ("Er kam um 10 Uhr Uhr.", "Er kam um 7:15 Uhr Uhr."),
        ("Er kam um 10 Uhrzeit.", "Er kam um 7:15 Uhr Uhrzeit."),
        ("Um 10 kam er.", "Um 7:15 Uhr kam er."),
    ],
)
def test_a_unit_that_the_model_writes_is_not_written_twice(translation: str, wanted: str) -> None:
    document = Document("He came at 7:15 am.", "text")
    document.divide("en", lambda _: True, target="de")
    assert document.render([Translated(translation)]).text == wanted


def test_the_full_stop_of_a_sentence_is_not_doubled() -> None:
    document = Document("He died in 44 BC. Then he came.", "text")
    document.divide("en", lambda _: True, target="de")
    assert document.sentences == ["He died in 27.", "Then he came."]
    result = document.render([upper(sentence) for sentence in document.sentences]).text
    assert result == "HE DIED IN 44\u00a0v.\u00a0Chr. THEN HE CAME."


def test_without_a_sentence_a_figure_stays_as_it_was() -> None:
    document = Document("1.299,00 €\nHund", "text")
    document.divide("de", lambda _: True, target="en")
    assert document.render([upper("Hund")]).text == "1.299,00 €\nHUND"


def test_a_day_and_minutes_in_words_are_no_hours_from_and_to() -> None:
    def figures(text: str) -> list[str]:
        return [text[slice(*thing.given)] for thing in read(text).with_kept(0)[1]]

    assert figures("Von 10 bis 12 Uhr ist Pause.") == ["10 bis 12 Uhr"]
    assert figures("Von 8.30 bis 12.15 Uhr ist Pause.") == ["8.30 bis 12.15 Uhr"]
    assert "12 Uhr 30" in figures("Von 10 bis 12 Uhr 30 ist Pause.")
    assert "18 Uhr" in figures("Wir kommen am 20.12 bis 18 Uhr.")
