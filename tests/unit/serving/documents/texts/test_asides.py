from __future__ import annotations

import json

import pytest

from tests.unit.serving.documents.fakes import translated
from tests.unit.serving.text.fakes import backwards


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('<img src="a.png" alt="ein Hund">', "ein Hund"),
        ("<a title='zum Haus' href=x>12</a>", "zum Haus"),
        ('<input placeholder="dein Name" value="x y">', "dein Name"),
        ('<button ARIA-LABEL = "zu">12</button>', "zu"),
        ('<img alt="du &amp; ich"/>', "du &amp; ich"),
        ('<meta name="Description" content="eine Seite">', "eine Seite"),
        ('<textarea placeholder="hier">bleibt</textarea>', "hier"),
        ('<svg aria-label="ein Bild"><text title="x y">z</text></svg>', "ein Bild"),
        ('<img alt="eins" alt="zwei">', "eins"),
    ],
)
def test_what_a_reader_of_a_page_sees_or_hears_is_translated(source: str, words: str) -> None:
    shown = words.upper().replace("&AMP;", "&amp;")
    assert translated(source.encode(), "a.html").decode() == source.replace(words, shown)


def test_a_value_without_quotation_marks_gets_some() -> None:
    assert translated(b"<img alt=Hund src=a>", "a.html") == b'<img alt="HUND" src=a>'


@pytest.mark.parametrize(
    "source",
    [
        '<meta name="author" content="Anna Muster">',
        '<img alt="" title="12" data-title="bleibt" :title="bleibt" class="bleibt">',
        '<p translate="no" title="bleibt"><img alt="bleibt"></p>',
        '<img class="notranslate" alt="bleibt">',
        "<script>x = '<img alt=\"bleibt\">'</script><!-- <img alt=\"bleibt\"> -->",
        "<pre><a title=\"bleibt\">x</a></pre>",
        '<img alt="{% trans ">',
    ],
)  # fmt: skip
def test_other_attributes_stay_as_they_are(source: str) -> None:
    assert translated(source.encode(), "a.html").decode() == source


def test_attributes_go_with_tags_that_change_places() -> None:
    source = '<p>Der <b title="sehr rot">rote</b> Hund <img alt="ein Hund"> da</p>'
    result = translated(source.encode(), "a.html", backwards).decode()
    assert '<b title="ROT SEHR">ROTE</b>' in result
    assert '<img alt="HUND EIN">' in result


def test_quotation_marks_of_a_translation_do_not_end_an_attribute() -> None:
    source = '<img alt="sie sagt &quot;nein&quot; &lt;1>"><i title=\'a "b" c&#39;s\'>Hund</i>'
    assert translated(source.encode(), "a.html").decode() == (
        '<img alt="SIE SAGT &quot;NEIN&quot; &lt;1&gt;"><i title=\'A "B" C&#39;S\'>HUND</i>'
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('Ein ![roter Hund](a.png "x y") da', 'EIN ![ROTER HUND](a.png "x y") DA'),
        ("[![das Haus](b.png)](c)", "[![DAS HAUS](b.png)](c)"),
        ("![die Katze][katze]\n\n[katze]: a.png", "![DIE KATZE][katze]\n\n[katze]: a.png"),
        ("![Katze] ![Katze][]\n\n[katze]: a.png", "![Katze] ![Katze][]\n\n[katze]: a.png"),
        ("| a1 |\n|---|\n| ![ein Hund](a) |", "| A1 |\n|---|\n| ![EIN HUND](a) |"),
        ("![*sehr* [rot]](a.png)", "![*SEHR* [ROT]](a.png)"),
        ("`![bleibt](a)`\n\n    ![bleibt](a)\n", "`![bleibt](a)`\n\n    ![bleibt](a)\n"),
        ("![](a.png) ![12](b.png)", "![](a.png) ![12](b.png)"),
    ],
)
def test_what_stands_for_a_picture_of_markdown_is_translated(source: str, expected: str) -> None:
    assert translated(source.encode(), "a.md").decode() == expected


def test_what_stands_for_a_picture_of_a_notebook_is_translated() -> None:
    cell = {"cell_type": "markdown", "metadata": {}, "source": "Ein ![Hund](a.png)"}
    tree = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    result = json.loads(translated(json.dumps(tree, indent=1).encode(), "a.ipynb"))
    assert result["cells"][0]["source"] == "EIN ![HUND](a.png)"
