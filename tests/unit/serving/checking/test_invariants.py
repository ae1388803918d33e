"""The table of invariants on sentences and their translations."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from serving.checking.invariants import faults, is_noteworthy
from serving.checking.letters import has_similar

RIGHT = [
    ("de", "en", "Ich bin Łukasz.", "I'm Łukasz."),
    ("de", "en", "Ich bin Łukasz.", "I'm Lukasz."),
    ("es", "en", "Sra. García", "Mrs Garcia"),
    ("de", "en", "Er wohnt in Łódź.", "He lives in Lodz."),
    ("de", "en", "東京 ist groß.", "東京 is big."),
    ("de", "en", "Der Winkel α", "The angle alpha"),  # noqa: RUF001
    ("de", "en", "Gut 👍", "Good 👍"),
    ("en", "ru", "Hello", "Привет"),
    ("de", "en", "{n} Dateien", "{n} files"),
    ("de", "en", "Die .doc-Datei", "The .doc file"),
    ("de", "en", "<b>Ja</b>", "<b>Yes</b>"),
    ("en", "es", "Tom is here.", "Tomás está aquí."),
    ("en", "de", "Tom's dog", "Toms Hund"),
    ("es", "en", "Toma el dinero, Tomás.", "Take the money, Tom."),
    ("de", "en", "nein nein nein nein", "no no no no"),
    ("de", "en", "...", ""),
    (None, None, "Ja", "Yes"),
    ("en", "de", "Bug#394544: orphaned", "Fehler 394544: verwaist"),
    ("en", "fr", "radeon: fewer checks (#697229)", "radeon : moins de contrôles (n° 697229)"),
    ("en", "es", "This can be refitted%s.", "Esto se puede ajustar%s."),
    ("es", "en", "El %1$santes de activarlo", "The %1$s before activating it"),
    ("de", "en", "Dein Anteil ist %d $!", "Your share is $%d!"),
    ("en", "de", "The Windows Installer (.msi) file", "Die Windows Installer-Datei (MSI-Datei)"),
    ("fr", "en", "С’est gentil.", "That's kind."),  # noqa: RUF001
]
WRONG = [
    ("de", "en", "Ich bin Łukasz.", "I'm \ufffd\ufffdukasz.", "letters"),
    ("es", "en", "Sra. García", "Sra. 🚀", "letters"),
    ("es", "en", "Soy Josef Patočka", "I am Josef Patories\ufffdka", "letters"),
    ("de", "en", "東京 ist groß.", "🚀 is big.", "letters"),
    ("de", "en", "東京 ist groß.", "It is big.", "letters"),
    ("de", "en", "Ja", "Да", "letters"),
    ("de", "en", "{n} Dateien", "files", "codes"),
    ("de", "en", "{n} Dateien", "{n} {n} files", "codes"),
    ("en", "es", "This can be refitted%s.", "Esto se puede ajustar.", "codes"),
    ("en", "de", "Bug#394544: orphaned", "Fehler 394554: verwaist", "figures"),
    ("de", "en", "<b>Ja</b>", "<b>Yes", "codes"),
    ("de", "en", "Siehe https://a.de/b", "See https://a.de/c", "codes"),
    ("de", "en", "Datei Tom öffnen", "Open a file", "codes"),
    ("de", "en", "Datei Tom öffnen", "Open Tom file Tom", "codes"),
    ("de", "en", "Guten Morgen", " ", "shape"),
    ("de", "en", "Guten Morgen", "good day good day good day good day", "shape"),
    ("de", "en", "Ja", "x" * 200, "shape"),
    ("de", "en", "Ein Satz. " * 20, "A", "shape"),
    ("de", "en", "Preis: 100 $", "Price: $1", "figures"),
    ("de", "en", "Rabatt: 50 €", "Discount: $50", "figures"),
]
names = st.text(alphabet="łśćżőřčşğ", min_size=6, max_size=9).map(str.capitalize)
codes = st.sampled_from(["{name}", "%(count)d", "https://x.org/a?b=1", "<b>", "user_id", "@ada"])


@pytest.mark.parametrize(("source", "target", "text", "output"), RIGHT)
def test_a_right_translation_has_no_fault(source, target, text, output):
    assert faults(text, output, (source, target)) == []


@pytest.mark.parametrize(("source", "target", "text", "output", "kind"), WRONG)
def test_a_wrong_translation_has_a_fault_of_its_kind(source, target, text, output, kind):
    found = faults(text, output, (source, target))

    assert {fault.kind for fault in found} == {kind}
    for fault in found:
        assert fault.source is None or text[slice(*fault.source)] == fault.what
        assert fault.target is None or output[slice(*fault.target)] == fault.what


@given(names, codes, st.integers(2, 10**6))
def test_random_names_codes_and_figures_that_come_out_whole_pass(name, code, number):
    text = f"Hier ist {name} mit {code} und {number} xalo."

    assert faults(text, f"Here {number} xalo is {name} with {code} .", ("de", "en")) == []


@given(names, codes)
def test_a_random_name_or_code_that_is_lost_is_found(name, code):
    assume(not has_similar(name, f"Here is it with {code} xalo."))
    text = f"Hier ist {name} mit {code} xalo."

    assert [f.what for f in faults(text, f"Here is it with {code} xalo.", ("de", "en"))] == [name]
    assert [f.what for f in faults(text, f"Here is {name} with xalo.", ("de", "en"))] == [code]


@given(
    st.from_regex(r"[a-f]{2}[0-9][a-f]{2}[0-9]{2}[a-f][0-9]{3}[a-f]{2}", fullmatch=True), st.data()
)
def test_a_check_sum_of_which_one_sign_was_changed_is_found(serial, data):
    place = data.draw(st.integers(0, len(serial) - 1))
    changed = serial[:place] + ("1" if serial[place] == "0" else "0") + serial[place + 1 :]

    assert faults(f"SHA1: {serial}", f"La SHA1 : {serial}", ("en", "fr")) == []
    found = faults(f"SHA1: {serial}", f"La SHA1 : {changed}", ("en", "fr"))
    assert serial in {fault.wanted for fault in found}


@given(st.sampled_from("🚀😀✅\ufffd"), st.sampled_from(["Ja", "Frau García", "Gut, 5 €"]))
def test_a_stray_picture_or_broken_character_is_found(stray, text):
    found = faults(text, f"{text} {stray}", ("de", "en"))

    assert [fault.what for fault in found if fault.target] == [stray]


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_two_texts_can_be_compared(source, output):
    for fault in faults(source, output, ("de", "en")):
        assert fault.source is None or source[slice(*fault.source)] == fault.what
        assert fault.target is None or output[slice(*fault.target)] == fault.what


def test_a_check_sum_within_a_link_is_part_of_it():
    link = "https://a.de/bebcb64d38e34e7c"

    assert [fault.what for fault in faults(f"Siehe {link}", "See it", ("de", "en"))] == [link]


def test_a_sentence_is_noteworthy_with_figures_other_letters_or_codes():
    languages = ("de", "en")
    assert not is_noteworthy("Ich heiße Ada, „ja“ – c’est ça…", languages)
    for text in ("5 Hunde", "Łukasz", "東京", "{n}", "<b>", "a.de", "50 %"):
        assert is_noteworthy(text, languages)
