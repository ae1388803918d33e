from __future__ import annotations

import pytest

from tests.unit.serving.documents.fakes import translated, written

PAGE = """\
= Größe
Anna Muster <anna@example.org>
:toc: left
:lang: de

// Ein Kommentar, der bleibt
== Ein Kapitel

Ein Absatz über *zwei fette* Zeilen mit `code_x` und
einer https://example.org/[Seite], siehe <<ziel>> oder {datum}.

[[ziel]]
.Titel davor
[source,python]
----
print("bleibt")
----

* erster Punkt
  geht weiter
** [x] zweiter Punkt
. dritter Punkt
+
angehängt

Begriff:: Seine Erklärung.

NOTE: Ein Hinweis.

[WARNING]
====
Eine Warnung.
====

image::bild.png[bleibt]

[cols="1,2",options="header"]
|===
|Kopf eins |Kopf zwei

|eine Zelle
2+|breite Zelle
l|bleibt
|===

 bleibt wörtlich

....
bleibt
....

include::bleibt.adoc[]

[listing]
bleibt auch

Zeile eins +
Zeile zwei
"""


def asciidoc(text: str) -> str:
    return translated(text.encode(), "a.adoc").decode()


def test_prose_is_translated_and_all_else_stays() -> None:
    expected = PAGE.replace("\n  geht", " geht")
    for words in (
        *("= Größe", "Ein Kapitel", "Ein Absatz über ", "zwei fette", " Zeilen mit "),
        *(" und\neiner ", "Seite", ", siehe ", " oder ", "Titel davor", "erster Punkt geht weiter"),
        *("zweiter Punkt", "dritter Punkt", "angehängt", "Begriff", "Seine Erklärung"),
        *("Ein Hinweis", "Eine Warnung", "Kopf eins", "Kopf zwei", "eine Zelle", "breite Zelle"),
        *("Zeile eins", "Zeile zwei"),
    ):
        assert words in expected
        expected = expected.replace(words, words.upper(), 1)
    found = asciidoc(PAGE)
    assert " ".join(found.split()) == " ".join(expected.split())
    assert [line for line in found.splitlines() if not line] == [
        line for line in PAGE.splitlines() if not line
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Ein **fetter** Text", "EIN **FETTER** TEXT"),
        ("Ein _kursiver_ Text", "EIN _KURSIVER_ TEXT"),
        ("Ein [.rot]#roter# Text", "EIN [.rot]#ROTER# TEXT"),
        ("Siehe xref:a.adoc#b[diese Seite]", "SIEHE xref:a.adoc#b[DIESE SEITE]"),
        ("Siehe <<b,diese Seite>> dort", "SIEHE <<b,DIESE SEITE>> DORT"),
        ("Ein Satzfootnote:[Eine Notiz.] dazu", "EIN SATZfootnote:[EINE NOTIZ.] DAZU"),
        ("Drücke kbd:[Strg+C] und +roh+", "DRÜCKE kbd:[Strg+C] UND +roh+"),
        (r"Kein \*fetter* Text", r"KEIN \*FETTER* TEXT"),
        ("Der Name a_b_c und 2 * 3 * 4", "DER NAME a_b_c UND 2 * 3 * 4"),
        ('Ein "`Zitat`" dazu', 'EIN "`ZITAT`" DAZU'),
    ],
)
def test_inline_markup_goes_with_its_words(source: str, expected: str) -> None:
    assert asciidoc(source) == expected


def test_bars_in_cells_stay_escaped_and_tables_of_csv_stay_with_a_warning() -> None:
    assert asciidoc("|===\n|ein \\| zwei\n|===\n") == "|===\n|EIN \\| ZWEI\n|===\n"
    csv = ",===\neins,zwei\n,===\n"
    done = written(csv.encode(), "a.asciidoc")
    assert done.content.decode() == csv


def test_a_title_with_a_line_below_it_gets_one_of_its_new_length() -> None:
    assert asciidoc("Große Straße\n------------\n\nText\n") == (
        "GROSSE STRASSE\n--------------\n\nTEXT\n"
    )


def test_two_thousand_paragraphs_are_read_at_once() -> None:
    text = "Ein *fetter Satz* mit `code` und _mehr_ davon.\n\n" * 2000 + "*" * 20_000
    assert asciidoc(text).count("EIN *FETTER SATZ*") == 2000


def test_what_stands_below_a_term_or_behind_a_continuation_is_translated() -> None:
    source = (
        "Begriff::\n  Die Erklärung\n  geht weiter\nZweiter::\nHier auch\nDritter::\n\n"
        "* Punkt\n+\nFortsetzung hier.\n* [x] erledigt\n\nAbsatz\n* ohne Liste\n"
    )
    expected = (
        source.replace("Begriff", "BEGRIFF")
        .replace("Die Erklärung\n  geht weiter", "DIE ERKLÄRUNG GEHT WEITER")
        .replace("Zweiter", "ZWEITER")
        .replace("Hier auch", "HIER AUCH")
        .replace("Dritter", "DRITTER")
        .replace("Punkt", "PUNKT")
        .replace("Fortsetzung hier", "FORTSETZUNG HIER")
        .replace("erledigt", "ERLEDIGT")
        .replace("Absatz\n* ohne Liste", "ABSATZ * OHNE LISTE")
    )
    assert translated(source.encode(), "a.adoc").decode() == expected


def test_a_formula_among_letters_stays() -> None:
    source = "Wasser ist H~2~O und Soda CO~3~^2-^x hier."
    assert "H~2~O" in translated(source.encode(), "a.adoc").decode()
