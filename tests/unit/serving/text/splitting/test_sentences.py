"""Where sentences are divided."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.text.splitting.sentences import divided, has_words, in_clauses, sentence_spans
from tests.unit.serving.text.fakes import read


def sentences(text: str, language: str = "de") -> list[str]:
    return [text[slice(*span)] for span in sentence_spans(text, language)]


FRENCH = [
    "Mme. Petit est là.", "M. Dupont arrive.", "Le Dr. Martin est là.", "St. Étienne est grande.",
    "Mlle. Blanc et MM. Noir sont là.", "C'était en 52 av. J.-C. et il mourut.",
    "Il vécut au Ier s. apr. J.-C. à Rome.", "Voir p. 5 et fig. 3 du vol. 2.",
    "Il habite au no. 5, bd. Victor Hugo.", "Les fruits, p. ex. Les pommes, sont bons.",
    "J. R. R. Tolkien l'a écrit.", "Un fruit, c.-à-d. Une pomme.", "Il vit av. Foch à Paris.",
]  # fmt: skip
SPANISH = [
    "La 3.ª vez fue mejor.", "El 1.er piso está vacío.", "Vive en el 2.º piso.",
    "El Sr. López y la Srta. Pérez llegaron.", "El Dr. Ruiz y la Dra. Gil llegaron.",
    "Llegó a las 3 p. m. y comió.", "A las 10 a.m. empieza.", "Murió en 44 a. C. en Roma.",
    "Nació en 70 d. C. y vivió.", "Los EE. UU. son grandes.", "Ud. Sabe eso.", "D. Juan llegó.",
    "Vive en la Avda. Mayor, núm. 5.", "Véase pág. 5 y fig. 3.", "Un nombre, p. ej. María.",
]  # fmt: skip


@pytest.mark.parametrize(
    ("language", "text", "wanted"),
    [
        (
            "de",
            "Am 3. Mai kam Dr. Müller, d. h. um 8 Uhr. Er ging.",
            ["Am 3. Mai kam Dr. Müller, d. h. um 8 Uhr.", "Er ging."],
        ),
        (
            "en",
            "Mr. Smith met Dr. Jones at 5 p.m. on Jan. 3. It cost $3.50, i.e. a lot.",
            ["Mr. Smith met Dr. Jones at 5 p.m. on Jan. 3.", "It cost $3.50, i.e. a lot."],
        ),
        ("fr", "Elle vient, p. ex. demain. Et toi ?", ["Elle vient, p. ex. demain.", "Et toi ?"]),
        ("de", "Ja! Nein? Doch …", ["Ja!", "Nein?", "Doch …"]),
        ("tlh", "nuqneH. Qapla'!", ["nuqneH.", "Qapla'!"]),
    ],
)
def test_punctuation(language: str, text: str, wanted: list[str]) -> None:
    assert sentences(text, language) == wanted


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("de", "Das war im 4. Quartal gut."),
        ("de", "Er kommt am 9. März an."),
        ("de", "Die 2. Bundesliga ist gut."),
        ("de", "Der 1. und 2. Platz sind weg."),
        ("de", "Wir kommen evtl. Montag vorbei."),
        ("de", "Das gilt inkl. Versand und zzgl. Steuer."),
        ("de", "Die Fa. Meyer u. a. Firmen"),
        ("de", "Das gilt z. B. Dienstags."),
        ("de", "Siehe Bd. 3, Kap. 4 und ggf. Anhang 2."),
        ("de", "im XIX. Jahrhundert"),
        ("de", "J. R. R. Tolkien schrieb es."),
        ("de", "Prof. Dr. K. Meyer kommt."),
        ("de", "Das ist z.B. Berlin, u.a. Hamburg und i.d.R. Bonn."),
        ("de", "Gib es z.Hd. Frau Meyer."),
        ("de", "Wir kommen am 3.5. Montag früh."),
        ("en", "The U.S. President is here."),
        ("en", "The U.N. Security Council met at the L.A. Times."),
        ("en", "A Ph.D. Student came at 5 p.m. Tuesday."),
        ("en", "At 9 a.m. Eastern"),
        ("en", "Use e.g. This one."),
        ("en", "It is No. 5 here, and approx. 5 km."),
        ("en", "See Fig. 3 and Eq. 4 in Vol. 2, ch. 7."),
        ("en", "J. R. R. Tolkien wrote it."),
        ("en", "Max. Speed is 5."),
        ("de", "Die 1. u. 2. Klasse fährt."),
        ("de", "Der 1. bzw. 2. Mann kommt."),
        ("de", "Es dauert ca. 5. Minuten."),
        ("en", "We use ASP.NET and VB.NET here."),
        *(("fr", text) for text in FRENCH),
        *(("es", text) for text in SPANISH),
    ],
)
def test_a_full_stop_of_an_abbreviation_or_a_number_ends_nothing(language: str, text: str) -> None:
    assert sentences(text, language) == [text]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("de", "Das war 1995.|Dann ging er."),
        ("de", "Es war der 5.|Das war gut."),
        ("de", "Er ist 12.|Sie ist 11."),
        ("en", "I said no.|Then we left."),
        ("en", "It took 5 min.|Then we left."),
        ("en", "He works at Acme Inc.|The firm is big."),
        ("en", "This is Plan B.|It works."),
        ("en", "He moved to the U.S.|He likes it."),
        ("en", "It was 5 p.m.|The train left."),
        ("de", "Wir kommen am 3.5.|Bitte warte."),
        ("de", "Es kamen ca. 5.|Dann gingen sie."),
        ("fr", "Il est parti.|Mme Petit reste."),
        ("fr", "Il est né en 52 av. J.-C.|Rome était grande."),
        ("es", "Tengo 3.|Ella tiene 4."),
    ],
)
def test_a_full_stop_that_ends_a_sentence_does(language: str, text: str) -> None:
    assert sentences(text.replace("|", " "), language) == text.split("|")


def test_a_variable_may_be_the_number_of_an_ordinal() -> None:
    for language, wanted in (("de", [True, False, False]), ("en", [False, False, False])):
        for text, together in zip(
            ("Der {n}. Tag war gut.", "Version {n}. Tag eins.", "Bis {n}. Dann los."),
            wanted,
            strict=True,
        ):
            assert (len(read(text, language=language).sentences) == 1) is together


def test_a_line_break_or_a_tab_ends_a_sentence() -> None:
    assert sentences(" eins\r\n\r\n  zwei \tdrei\u2028vier\n") == ["eins", "zwei", "drei", "vier"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("- eins\n* zwei\n  • drei\n– vier", ["eins", "zwei", "drei", "vier"]),
        ("1. Eins.\n2. Zwei.", ["Eins.", "Zwei."]),
        ("(1) Eins. (2) Zwei.", ["Eins.", "Zwei."]),
        ("> > Zitat. Mehr.", ["Zitat.", "Mehr."]),
        ("# Titel", ["Titel"]),
        ("3. Mai 2020", ["3. Mai 2020"]),
        ("-5 Grad", ["-5 Grad"]),
        ("1)", []),
        ("1. Erstens ist es gut", ["Erstens ist es gut"]),
        ("Seite | Firma | 7", ["Seite", "Firma", "7"]),
    ],
)
def test_markers_of_lists_are_no_part_of_a_sentence(text: str, wanted: list[str]) -> None:
    assert sentences(text) == wanted


@pytest.mark.parametrize("language", ["de", "en", "fr"])
@pytest.mark.parametrize("space", ["\xa0", "\u202f", "\u3000"])
def test_a_no_break_space_before_a_full_stop(language: str, space: str) -> None:
    text = f"Das ist Plan B{space}. Und das?"
    assert "".join(text[slice(*span)] for span in sentence_spans(text, language)).endswith("das?")
    assert sentences(f"B{space}.") == [f"B{space}."]


LEFT_OUT = re.compile(r"(?:\s|\(?[aB]\.?\))*")


@given(st.text(alphabet=st.sampled_from("aB. !?\n\t\r\u2028\xa0ü„“…)(")))
@example("B\xa0.")
@example("B.) ?")
def test_nothing_but_white_space_and_markers_is_left_out(text: str) -> None:
    done = 0
    for begin, end in sentence_spans(text, "de"):
        assert done <= begin < end
        assert text[begin:end] == text[begin:end].strip()
        assert LEFT_OUT.fullmatch(text, done, begin)
        done = end
    assert LEFT_OUT.fullmatch(text, done)


def parts(text: str, longest: int) -> list[str]:
    spans = divided(text, (0, len(text)), lambda part: len(part) <= longest)
    return [text[slice(*span)] for span in spans]


def test_a_long_sentence_is_divided_after_a_clause() -> None:
    text = "Er ging weg, weil es spät war; sie blieb noch da, weil sie Zeit hatte."
    assert parts(text, 100) == [text]
    assert parts(text, 45) == [
        "Er ging weg, weil es spät war;",
        "sie blieb noch da, weil sie Zeit hatte.",
    ]
    assert parts(text, 25)[:2] == ["Er ging weg,", "weil es spät war;"]


def test_without_clauses_it_is_divided_at_a_space() -> None:
    assert parts("eins zwei drei vier", 10) == ["eins zwei", "drei vier"]


def test_a_word_is_never_cut() -> None:
    assert parts("kurz " + "x" * 40, 10) == ["kurz", "x" * 40]


@given(st.text(alphabet="ab ,;.", min_size=1, max_size=200), st.integers(1, 50))
def test_parts_fit_or_are_words(text: str, longest: int) -> None:
    text = text.strip() or "a"
    found = parts(text, longest)
    assert "".join(found).replace(" ", "") == text.replace(" ", "")
    assert all(len(part) <= longest or " " not in part for part in found)


@pytest.mark.parametrize(
    "text", ["---", "* * *", " | + => ", "…", "«»", "", "5", "06:45", "👍", "½"]
)
def test_signs_numbers_and_pictures_are_no_words(text: str) -> None:
    assert not has_words(text)


@pytest.mark.parametrize("text", ["a.", "5 km", "東京", "ʰ", "Ω!"])
def test_letters_are(text: str) -> None:
    assert has_words(text)


def clauses(text: str, usual: int) -> list[str]:
    spans = in_clauses(text, (0, len(text)), lambda part: len(part) <= usual)
    return [text[slice(*span)] for span in spans]


def test_a_sentence_of_unusual_length_is_divided_into_clauses_alone() -> None:
    text = "Er ging weg, weil es spät war; sie blieb noch da, weil sie Zeit hatte."
    assert clauses(text, 100) == [text]
    assert clauses(text, 25) == [
        "Er ging weg,",
        "weil es spät war;",
        "sie blieb noch da,",
        "weil sie Zeit hatte.",
    ]
    assert clauses("eins zwei drei vier", 10) == ["eins zwei drei vier"]
    assert clauses("Ja, das ist sehr lang und es geht immer weiter", 10) == [
        "Ja, das ist sehr lang und es geht immer weiter"  # not near the middle
    ]


@given(st.text(alphabet="ab ,;.", min_size=1, max_size=200), st.integers(1, 50))
def test_clauses_contain_all_but_white_space(text: str, usual: int) -> None:
    text = text.strip() or "a"
    found = list(in_clauses(text, (0, len(text)), lambda part: len(part) <= usual))
    assert all(begin < end for begin, end in found)
    assert "".join(text[slice(*span)] for span in found).replace(" ", "") == text.replace(" ", "")
    for (_, end), (begin, _) in pairwise(found):
        assert not text[end:begin].strip()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("—Gracias por todo.", ["Gracias por todo."]),
        ("— ¿Qué tal?", ["¿Qué tal?"]),
        ("—¿Qué tal?\n—Bien.", ["¿Qué tal?", "Bien."]),
        ("--Adiós.", ["Adiós."]),
        ("1.) Tür öffnen", ["Tür öffnen"]),
        ("–5 Grad", ["–5 Grad"]),
        ("--help zeigt alles", ["--help zeigt alles"]),
    ],
)
def test_a_dash_before_what_somebody_says_is_no_part_of_it(text: str, wanted: list[str]) -> None:
    assert sentences(text, "es") == wanted
