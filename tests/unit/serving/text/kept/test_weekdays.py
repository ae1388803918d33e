"""Abbreviated weekdays, and the times of day behind them."""

from __future__ import annotations

import time

import pytest

from serving.text.document import Document, Format
from serving.text.kept.figures import in_convention
from serving.text.kept.placeholders import placeholders
from serving.text.kept.weekdays import in_language
from serving.text.placing.placement import Translated

DAYS = {
    "de": ["Mo", "Di", "Mi", "Do", "Fr", "Sa", "So"],
    "en": ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"],
    "fr": ["lun", "mar", "mer", "jeu", "ven", "sam", "dim"],
    "es": ["lun", "mar", "mié", "jue", "vie", "sáb", "dom"],
}


@pytest.mark.parametrize("source", DAYS)
@pytest.mark.parametrize("target", DAYS)
def test_each_day_becomes_that_of_the_other_language(source: str, target: str) -> None:
    for own, other in zip(DAYS[source], DAYS[target], strict=True):
        assert in_language(own, source, target) == other
        assert in_language(f"{own.capitalize()}.–{own}.", source, target) == f"{other}–{other}"


@pytest.mark.parametrize(
    ("figure", "source", "target", "expected"),
    [
        ("Mo–Fr", "de", "en", "Mon–Fri"),
        ("Mo.–Fr. 8.30–17.00 Uhr", "de", "en", "Mon–Fri 8:30–17:00"),
        ("Mo-Fr: 9-18 Uhr", "de", "fr", "lun-ven: 9 h-18 h"),
        ("Mo, Mi, Fr 8–12 Uhr", "de", "es", "lun, mié, vie 8:00–12:00"),
        ("Sa. 10 Uhr", "de", "en", "Sat 10:00"),
        ("Mon–Fri 9am–6pm", "en", "de", "Mo–Fr 9–18 Uhr"),
        ("Tues & Thurs 10 am–2 pm", "en", "fr", "mar & jeu 10 h–14 h"),
        ("Lun-Ven 9h30-18h", "fr", "de", "Mo-Fr 9:30-18 Uhr"),
        ("lun–vie 9:00–14:00", "es", "de", "Mo–Fr 9:00–14:00"),
        ("9–18 Uhr", "de", "en", "9:00–18:00"),
        ("Lun. 9h-18h", "fr", "en", "Mon 9:00-18:00"),
        ("Di und Do", "de", "en", "Tue and Thu"),
        ("Mo, Mi. und Fr.", "de", "fr", "lun, mer et ven"),
        ("Sat and Sun 10am–4pm", "en", "es", "sáb y dom 10 am–4 pm"),
        ("lun et mar", "fr", "de", "Mo und Di"),
        ("jue y vie 9:00–14:00", "es", "en", "Thu and Fri 9:00–14:00"),
        ("Mo–Fr 9–18 Uhr", "en", "de", "Mo–Fr 9–18 Uhr"),
        ("Mo–Fr 9–18 Uhr", "de", "it", "Mo–Fr 9–18 Uhr"),
    ],
)
def test_days_and_times_are_written_as_the_target_does(
    figure: str, source: str, target: str, expected: str
) -> None:
    assert in_convention(figure, source, target) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Mo geht.", "So ist es.", "Do it now", "Sun and moon", "Mi casa", "mar y sol", "la mer",
        "en mer 9 Leute", "2h-3h", "So it is", "in the sun and sat down", "Mo und Ben",
        "Fr und Dr.", "So und nicht anders", "Do and Mo",
        "Mo-Frage", "Sat-Anlage", "Fr. Müller", "So 5 Leute", "mo-fr", "DiMi–Fr", "Sam - Max",
    ],
)  # fmt: skip
def test_words_are_no_days(text: str) -> None:
    assert list(placeholders(text)) == []


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("So 7:30 pm works for you?", "7:30 pm"),
        ("So 7:30 works for you?", "7:30"),
        ("Do 5:30 pm or 6 pm work?", "5:30 pm"),
        ("Sortie en mer 9h30, retour", "9h30"),
        ("So 18 Uhr", "So 18 Uhr"),
        ("Do: 9:00", "Do: 9:00"),
        ("mer. 9h30", "mer. 9h30"),
        ("Mer 9h30", "Mer 9h30"),
    ],
)
def test_words_before_a_time_are_days_where_that_is_certain(text: str, time: str) -> None:
    first, *_ = placeholders(text)
    assert text[slice(*first.span)] == time


def test_a_full_stop_behind_days_may_end_the_sentence() -> None:
    for text, expected in (
        ("Geöffnet Mo.–Fr.", "Mo.–Fr"),
        ("Mo.–Fr. geschlossen", "Mo.–Fr."),
        ("Mo.–Fr. Danach nicht.", "Mo.–Fr"),
        ("Di. und Do. geschlossen", "Di. und Do."),
        ("Zu ist Di. und Do.", "Di. und Do"),
        ("Mo, Di und Do. Danach nicht.", "Mo, Di und Do"),
    ):
        [found] = placeholders(text)
        assert text[slice(*found.span)] == expected


@pytest.mark.parametrize(
    ("source", "format", "expected"),
    [
        ("Mo–Fr 9–18 Uhr", "text", "Mon–Fri 9:00–18:00"),
        ("18 Uhr\n3,5 kg\n\n1.234\n", "text", "18:00\n3.5 kg\n\n1.234\n"),
        ("Ein Haus\nSa 10 Uhr\nEin Haus", "text", "A house\nSat 10:00\nA house"),
        ("<td>Mo–Fr</td><td>9–18&nbsp;Uhr</td>", "html", "<td>Mon–Fri</td><td>9:00–18:00</td>"),
        ("3,5\n1.234,56 €\n7", "text", "3,5\n1.234,56 €\n7"),
    ],
)
def test_a_figure_with_a_word_needs_no_other_words(
    source: str, format: Format, expected: str
) -> None:
    document = Document(source, format)
    document.divide("de", lambda _: True, target="en")
    given = [Translated("A house") for _ in document.sentences]
    assert document.render(given).text == expected


def test_opening_hours_in_a_sentence_are_read_as_times() -> None:
    document = Document("Öffnungszeiten: Mo–Fr 9–18 Uhr, Sa 10–14 Uhr", "text")
    document.divide("de", lambda _: True, target="en")
    (sentence,) = document.sentences
    first, second = sentence.removeprefix("Öffnungszeiten: ").split(", ")
    given = Translated(f"Opening hours: {first}, {second}")
    expected = "Opening hours: Mon–Fri 9:00–18:00, Sat 10:00–14:00"
    assert document.render([given]).text == expected


@pytest.mark.parametrize(
    "days", ["Mo, ", "Mo–Fr ", "Mo–", "lun & mar & ", "Sun 1", "Mo 9–", "Mo und "]
)
def test_many_days_take_little_time(days: str) -> None:
    begin = time.perf_counter()
    list(placeholders(days * 5_000))
    assert time.perf_counter() - begin < 2
