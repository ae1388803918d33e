from __future__ import annotations

import pytest

from serving.documents.texts.beside import html_beside
from serving.documents.unit import ReadingWishes, Unit
from tests.unit.serving.documents.fakes import rendered, written
from tests.unit.serving.text.fakes import TRANSLATORS, Translator, upper


def beside(source: str, translate: Translator = upper) -> str:
    return html_beside(source, rendered(Unit(source, "html"), translate).text)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<p>Haus</p>\n<p>Tor.</p>", "<p>Haus<br/>HAUS</p>\n<p>Tor.<br/>TOR.</p>"),
        ("<ul>\n <li>eins\n <li>2\n</ul>", "<ul>\n <li>eins<br/>EINS\n <li>2\n</ul>"),
        ("<td>ein <b>Haus</b></td>", "<td>ein <b>Haus</b><br/>EIN <b>HAUS</b></td>"),
        ('<p><a href="x">Haus</a> </p>', '<p><a href="x">Haus<br/>HAUS</a> </p>'),
        ("<p><b><i>eins</i> zwei</b></p>", "<p><b><i>eins</i> zwei<br/><i>EINS</i> ZWEI</b></p>"),
        ("<p><b>a</b> und <b>b</b></p>", "<p><b>a</b> und <b>b</b><br/><b>A</b> UND <b>B</b></p>"),
        ('<p>a <img src="x"> b<!-- c --></p>', '<p>a <img src="x"> b<!-- c --><br/>A  B</p>'),
        (
            '<p>a <b id="x" class="y">b</b></p>',
            '<p>a <b id="x" class="y">b</b><br/>A <b class="y">B</b></p>',
        ),
        ("<p>nimm <code>x</code></p>", "<p>nimm <code>x</code><br/>NIMM <code>x</code></p>"),
        ("<p>eins<br>zwei</p>", "<p>eins<br/>EINS<br>zwei<br/>ZWEI</p>"),
        ("<title>Haus</title><option>Tor", "<title>Haus – HAUS</title><option>Tor – TOR"),
        ("<pre>Haus</pre><p>1 + 2</p>", "<pre>Haus</pre><p>1 + 2</p>"),
        ("Haus", "Haus<br/>HAUS"),
    ],
)
def test_each_paragraph_is_followed_by_its_translation(source: str, expected: str) -> None:
    assert beside(source) == expected


@pytest.mark.parametrize("translate", TRANSLATORS)
def test_wherever_words_go_the_source_stays(translate: Translator) -> None:
    source = (
        '<h1>Ein <em>altes</em> Haus</h1><p>Das <a href="x">erste</a> Tor. Es ist <b>alt'
        "<br>und</b> rot.<ul><li><p>Ja <img> doch</ul><div><span>Nein</span>&amp; <i>so</i></div>"
    )
    result = beside(source, translate)
    assert result.index("<h1>Ein <em>altes</em> Haus<br/>") == 0
    for part in ('Das <a href="x">erste</a> Tor. Es ist <b>alt<br/>', "<p>Ja <img> doch<br/>"):
        assert part in result
    for name in ("h1", "p", "ul", "li", "div", "img"):
        assert result.count(f"<{name}") == source.count(f"<{name}")


def test_a_page_is_bilingual() -> None:
    source = (
        '<html lang="de"><head><title>Haus</title></head><body><p alt="x">Tor</p><img alt="Tür">'
    )
    result = written(source.encode(), "a.html", bilingual=True).content.decode()
    assert result == (
        '<html lang="de"><head><title>Haus – HAUS</title></head><body><p alt="X">Tor<br/>TOR</p>'
        '<img alt="TÜR">'
    )


def test_a_page_runs_the_way_of_the_new_language_and_says_it() -> None:
    wishes = ReadingWishes(target="ar")
    result = written(b'<html lang="de"><p>Tor', "a.html", bilingual=True, wishes=wishes).content
    assert result.decode() == '<html lang="ar" dir="rtl"><p>Tor<br/>TOR'
