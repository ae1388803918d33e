"""Countries, languages and cities that a translation lost, and what stands in their place."""

import itertools

import pytest
from babel import Locale
from hypothesis import given
from hypothesis import strategies as st

from serving.checking.invariants import Fault, faults, is_noteworthy
from serving.checking.names import has_names, likely_places, lost_names
from serving.checking.repairs import put_right, wishes
from serving.text.alignment import Link
from serving.text.edits import edited
from serving.text.kept.masks import MASKS

LANGUAGES = ("de", "en", "es", "fr")
DIRECTIONS = list(itertools.permutations(LANGUAGES, 2))


def lost(source: str, output: str, languages: tuple[str, str]) -> list[str]:
    return [name.wanted for name in lost_names(source, output, *languages)]


@pytest.mark.parametrize(
    ("languages", "source", "output", "wanted"),
    [
        (("de", "en"), "Kommst du aus Vietnam?", "Are you from vision?", ["Vietnam"]),
        (("de", "en"), "Er lebt in Marokko.", "He lives in Marokko.", ["Morocco"]),
        (("de", "en"), "Er lebt in Marokko.", "He lives in Marocko.", ["Morocco"]),
        (("de", "en"), "Ein Visum für Bolivien", "A visa for bolivies", ["Bolivia"]),
        (("en", "de"), "She is learning Czech.", "Sie lernt Tschech.", ["Tschechisch"]),
        (("en", "de"), "Czech", "Tschech", ["Tschechisch"]),
        (("en", "fr"), "It rains in Indonesia.", "Il pleut en Indonesie.", ["Indonésie"]),
        (("en", "es"), "a Danish law", "una ley Danish", ["danés"]),
        (("es", "en"), "Entiendo el checo.", "I understand checo.", ["Czech"]),
        (("en", "fr"), "on Tuesday, 7 September 1911", "le martes 7 septembre", ["mardi"]),
        (("en", "es"), "Friday, August 11, 1983", "Friday, August 11", ["viernes", "agosto"]),
        (("es", "en"), "19 de mayo de 2008", "19 Maybe of 2008", ["May"]),
        (("de", "en"), "Von Prag nach Moskau", "From Prag to Moskau", ["Prague", "Moscow"]),
        (("en", "de"), "How far is Munich?", "Wie weit ist Munich?", ["München"]),
        (("fr", "en"), "Je vais en Indonésie.", "I'm going to Indian.", ["Indonesia"]),
        (("de", "fr"), "Er fuhr nach Genf.", "Il est allé à Genf.", ["Genève"]),
        (("de-AT", "en-GB"), "In Polen schneit es.", "It is snowing in Polen.", ["Poland"]),
    ],
)
def test_a_name_that_is_missing_copied_or_broken_is_found(languages, source, output, wanted):
    assert lost(source, output, languages) == wanted


@pytest.mark.parametrize(
    ("languages", "source", "output"),
    [
        (("en", "de"), "The French government", "Die französische Regierung"),
        (("de", "en"), "Frankreichs Regierung", "The French government"),
        (("de", "en"), "Die Türkei wählt.", "Turkey votes."),
        (("de", "en"), "Ein Sieg für die Niederlande", "A Dutch victory"),
        (("de", "en"), "Ein Sieg für Polen", "A victory for the Poles"),
        (("en", "de"), "The South Korean company", "Die südkoreanische Firma"),
        (("en", "de"), "Northern Ireland", "Nordirland"),
        (("en", "fr"), "Poland won.", "Les Polonais ont gagné."),
        (("en", "es"), "Greek is hard.", "El griego es difícil."),
        (("de", "en"), "Die Schweiz und Finnland", "Swiss and Finnish"),
        (("en", "de"), "He speaks Polish and Danish.", "Er ist Pole und Däne."),
        (("en", "es"), "a Polish and a Turkish law", "una ley polaca y una turca"),
        (("en", "fr"), "I like French fries.", "J'aime les frites."),
        (("en", "de"), "I am French.", "Ich bin aus Frankreich."),
        (("en", "de"), "He is Chinese.", "Er ist Chinese."),
        (("en", "de"), "on Saturday", "am Sonnabend"),
        (("en", "de"), "every Monday evening", "jeden Montagabend"),
        (("de", "en"), "montags", "on Mondays"),
        (("en", "fr"), "You may go. I march.", "Tu peux partir. Je marche."),
        (("en", "de"), "19 May 2008", "19. MAI 2008"),
        (("en", "de"), "It rains in VIETNAM.", "Es regnet in VIETNAM."),
        (("de", "en"), "Die Lage in Bosnien und Herzegowina", "In Bosnia and Herzegovina"),
    ],
)
def test_adjectives_peoples_and_compounds_are_forms_of_a_name(languages, source, output):
    assert lost(source, output, languages) == []


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("He works for Sony Australia now.", "Er arbeitet jetzt bei Sony Australia."),
        ("The Moscow Times wrote it.", "Die Moscow Times schrieb es."),
        ("We sang \u201cVoices for Africa\u201d.", "Wir sangen \u201eVoices for Africa\u201c."),
    ],
)
def test_a_name_within_another_name_may_be_copied(source, output):
    assert lost(source, output, ("en", "de")) == []


@pytest.mark.parametrize(
    ("languages", "source"),
    [
        (("en", "de"), "Jordan and Georgia met in Jersey."),
        (("es", "en"), "Se cree que ha ido a la venda."),
        (("en", "de"), "Nice to meet Florence and Sofia."),
        (("de", "en"), "Die Vietnam-Veteranen trafen sich."),
        (("fr", "en"), "une réunion"),
        (("ru", "en"), "Вьетнам"),
        (("de", "ja"), "Vietnam"),
        ((None, "en"), "Vietnam"),
    ],
)
def test_words_that_may_be_something_else_are_not_names(languages, source):
    assert not has_names(source, *languages)
    assert list(lost_names(source, "", *languages)) == []


def test_what_is_read_in_place_of_kept_objects_is_not_looked_for():
    for name in MASKS:
        assert not any(has_names(name, *languages) for languages in DIRECTIONS)


@pytest.mark.parametrize("languages", DIRECTIONS)
def test_every_country_is_found_and_passes_in_its_own_name(languages):
    """Against Babel itself: what is looked for is what CLDR has."""
    ours, theirs = (Locale(language).territories for language in languages)
    found = 0
    for code, name in ours.items():
        theirs_written = theirs[code].replace("&", "and")
        if lost(name, "something else", languages) == [theirs_written]:
            found += 1
            assert lost(name, theirs_written, languages) == []
    assert found > 150


@given(st.text(max_size=60), st.text(max_size=60), st.sampled_from(DIRECTIONS))
def test_any_texts_can_be_compared(source, output, languages):
    for fault in faults(source, output, languages):
        if fault.kind == "names":
            assert source[slice(*fault.source)] == fault.what


def test_a_copy_is_replaced_then_a_similar_word():
    assert list(likely_places("Polen", "Poland", "Polen and Pollen")) == [(0, 5), (10, 16)]
    assert list(likely_places("Polen", "Poland", "a planned drive")) == []
    assert list(likely_places("South Africa", "Südafrika", "in South Africa")) == [(3, 15)]


def put(source: str, output: str, languages: tuple[str, str], links: tuple[Link, ...] = ()) -> str:
    edits = put_right(source, output, links, languages)
    assert edits is not None
    return edited(output, edits)


def test_a_name_takes_the_place_of_its_copies_in_order():
    output = "Polen and Ungarn left, says Polen."
    right = put("Polen und Ungarn gingen, sagt Polen.", output, ("de", "en"))
    assert right == "Poland and Hungary left, says Poland."


def test_a_name_begins_a_sentence_with_a_capital():
    assert put("El checo es difícil.", "checo is hard.", ("es", "en")) == "Czech is hard."
    assert put("Czech is hard.", "Czech est dur.", ("en", "fr")) == "Tchèque est dur."


def test_a_name_without_a_trace_takes_the_place_of_the_long_word_with_most_attention():
    source, output = "Das ist in Kenia.", "That is in the catch."
    kenya = (11, 16)
    links = (Link(kenya, (11, 14), 0.9), Link(kenya, (15, 20), 0.7), Link((0, 3), (0, 4), 0.9))
    assert put(source, output, ("de", "en"), links) == "That is in the Kenya."
    unsure = tuple(Link(link.source, link.target, 0.4) for link in links)
    assert put_right(source, output, unsure, ("de", "en")) is None


def test_no_second_search_is_asked_to_write_a_name():
    found = faults("500 Leute aus Kenia", "People", ("de", "en"))
    assert [fault.kind for fault in found] == ["figures", "names"]
    assert wishes(found).required == ("500",)
    assert Fault("names", "Kenia", source=(14, 19), wanted="Kenya") in found


def test_a_sentence_with_a_name_is_noteworthy():
    assert is_noteworthy("Ich war in Kenia.", ("de", "en"))
    assert not is_noteworthy("Ich war in Kenia.", ("de", "ja"))
