from __future__ import annotations

import pytest

from serving.documents.recognition import recognised
from serving.documents.unit import Translated
from tests.unit.serving.documents.fakes import translated
from tests.unit.serving.text.fakes import backwards


def rst(text: str) -> str:
    return translated(text.encode(), "a.rst").decode()


PAGE = """\
.. _ziel: https://example.org/
.. Ein Kommentar, der bleibt

=====
Größe
=====

Ein Absatz über **zwei fette** Zeilen mit ``code_x`` und
einer `Seite <https://example.org/>`_, siehe :ref:`ziel` oder |datum|.

- erster Punkt
  geht weiter
- zweiter Punkt::

    bleibt = wie es ist

.. note:: Ein Hinweis
   in zwei Zeilen.

.. code-block:: python

   print("bleibt")

.. image:: bild.png
   :alt: bleibt

.. toctree::
   :maxdepth: 2

   kapitel/eins

Begriff
    Seine Erklärung.

:param x: der Wert
:type x: int

.. versionadded:: 1.2 Neu dabei.

.. [1] Eine Fußnote.

>>> bleibt()
1

| Zeile eins
| Zeile zwei
"""


def test_prose_is_translated_and_all_else_stays() -> None:
    expected = PAGE.replace("\n  geht", " geht").replace("\n   in zwei", " in zwei")
    for words in (
        "Ein Absatz über ",
        "zwei fette",
        " Zeilen mit ",
        " und\neiner ",
        "Seite",
        ", siehe ",
        " oder ",
        "erster Punkt geht weiter",
        "zweiter Punkt",
        "Ein Hinweis in zwei Zeilen",
        "Begriff",
        "Seine Erklärung",
        "der Wert",
        "Neu dabei",
        "Eine Fußnote",
        "Zeile eins",
        "Zeile zwei",
    ):
        assert words in expected
        expected = expected.replace(words, words.upper())
    expected = expected.replace("=====\nGröße\n=====", "======\nGRÖSSE\n======")
    expected = expected.replace(
        "UND\nEINER `SEITE <https://example.org/>`_,",
        "UND EINER `SEITE <https://example.org/>`_,\n",
    ).replace("\n SIEHE", "\nSIEHE")
    assert rst(PAGE) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("**das** rote Haus\n", "HAUS ROTE **DAS**\n"),
        ("ein ``a b`` Haus\n", "HAUS ``a b`` EIN\n"),
        (r"ein \*Stern" + "\n", r"\*STERN EIN" + "\n"),
        ("Wert 5 * 3 oder x_\n", None),
    ],
)
def test_inline_markup_goes_with_its_words(source: str, expected: str | None) -> None:
    result = translated(source.encode(), "a.rst", backwards).decode()
    if expected:
        assert result.upper() == expected.upper()
    assert result.count("``") == source.count("``")


def test_a_title_of_wide_letters_has_a_line_as_wide() -> None:
    result = translated(b"Titel\n=====\n", "a.rst", lambda _: Translated("見出し語")).decode()
    assert result == "見出し語\n========\n"


@pytest.mark.parametrize(
    "table",
    [
        "===  ===\nab   cd\n===  ===\n",
        "+----+----+\n| ab | cd |\n+----+----+\n| ab cd   |\n+---------+\n",
        "+----+----+\n| ab | cd |\n|    +----+\n|    | ef |\n+----+----+\n",
        "+----+\n| ab\n+----+\n",
        "+-----+\n| 見  |\n+-----+\n",
    ],
    ids=["lines of =", "a wide cell", "a high cell", "broken", "wide letters"],
)
def test_other_tables_stay_with_a_warning(table: str) -> None:
    source = f"{table}\nText\n"
    assert rst(source) == source.replace("Text", "TEXT")
    assert "Tables" in recognised(source.encode(), "a.rst").read(source.encode()).warnings[0]


def test_cells_of_a_drawn_table_are_translated_and_its_lines_fit() -> None:
    source = (
        ".. table:: Titel\n\n"
        "   +------+----------+\n"
        "   | Kopf | **zwei** |\n"
        "   +======+==========+\n"
        "   | groß | - ein    |\n"
        "   |      |   Punkt  |\n"
        "   |      | - ``da`` |\n"
        "   +------+----------+\n"
        "   | 12   |          |\n"
        "   +------+----------+\n\nText\n"
    )
    assert rst(source) == (
        ".. table:: TITEL\n\n"
        "   +-------+----------+\n"
        "   | KOPF  | **ZWEI** |\n"
        "   +=======+==========+\n"
        "   | GROSS | - EIN    |\n"
        "   |       |   PUNKT  |\n"
        "   |       | - ``da`` |\n"
        "   +-------+----------+\n"
        "   | 12    |          |\n"
        "   +-------+----------+\n\nTEXT\n"
    )
    assert not recognised(source.encode(), "a.rst").read(source.encode()).warnings


def test_a_drawn_table_whose_words_stay_is_as_it_was() -> None:
    source = "+-----+\r\n|  A1 |\r\n|     |\r\n+-----+\r\n"
    assert rst(source) == source


def test_bars_in_a_translation_do_not_divide_a_drawn_cell() -> None:
    result = translated(b"+----+\n| ab |\n+----+\n", "a.rst", lambda _: Translated("x | y"))
    assert result.decode() == "+--------+\n| x \\| y |\n+--------+\n"


def test_cells_of_a_table_that_is_a_list_stay_apart() -> None:
    source = (
        ".. list-table:: Titel\n\n   * - Kopf eins\n     - Kopf zwei\n"
        "   * - Zelle\n       weiter\n     - *da*\n"
    )
    assert translated(source.encode(), "a.rst").decode() == (
        ".. list-table:: TITEL\n\n   * - KOPF EINS\n     - KOPF ZWEI\n"
        "   * - ZELLE WEITER\n     - *DA*\n"
    )


def test_directives_and_fields_are_read_with_any_line_end() -> None:
    source = (
        "Titel\n=====\n\n.. note::\n\n   Ein Hinweis.\n\n:Feld:\n   ein Wert\n\n"
        ".. code::\n\n   x = 1\n"
    )
    expected = source.replace("Titel", "TITEL").replace("Ein Hinweis", "EIN HINWEIS")
    expected = expected.replace("ein Wert", "EIN WERT")
    assert translated(source.encode(), "a.rst").decode() == expected
    result = translated(source.replace("\n", "\r\n").encode(), "a.rst").decode()
    assert result == expected.replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        # What stands in angle brackets alone is a text of its own, not the target of a link.
        ("Ein `<w:a/>` und :code:`<b>` Ende.\n", "EIN `<w:a/>` UND :code:`<b>` ENDE.\n"),
        # A blank before the colons says that none is shown.
        ("Ein Beispiel ... ::\n\n    bleibt\n", "EIN BEISPIEL ... ::\n\n    bleibt\n"),
        # What is further in than an item's text defines it.
        (
            "- Klasse:\n        - eins\n        - zwei\n- drei\n",
            "- KLASSE:\n        - EINS\n        - ZWEI\n- DREI\n",
        ),
        # A name is a reference only before a sign that may stand behind one.
        ("Alle show_* sind da.\n", "ALLE SHOW\\_\\* SIND DA.\n"),
    ],
    ids=["brackets", "colons", "definition", "reference"],
)
def test_what_docutils_reads_otherwise_stays_what_it_is(source: str, expected: str) -> None:
    assert rst(source) == expected
