"""Markdown: what is read of it, and what comes back."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.unit.serving.text.fakes import TRANSLATORS, Translator, backwards, read, same, translated

ROOT = Path(__file__).resolve().parents[5]
WORD = r"(?<![\w.`/-])[A-Za-z][a-z]{2,}(?![\w`/-])"


@pytest.mark.parametrize(
    ("source", "sentences", "result"),
    [
        ("# Ein Titel #\n", ["Ein Titel"], "# EIN TITEL #\n"),
        ("Titel\n=====\n", ["Titel"], "TITEL\n=====\n"),
        ("Das ist **sehr** gut.", ["Das ist sehr gut."], "DAS IST **SEHR** GUT."),
        ("***Beides*** und ~~weg~~", ["Beides und weg"], "***BEIDES*** UND ~~WEG~~"),
        ("_Hier_ ist 5 * 3", ["Hier ist 5 3"], "_HIER_ IST 5 * 3"),
        ("Der [rote Hund](/x \"Titel\")", ["Der rote Hund"], "DER [ROTE HUND](/x \"Titel\")"),
        ("[A **b**][r]!\n\n[r]: /u \"T\"\n", ["A b!"], "[A **B**][r]!\n\n[r]: /u \"T\"\n"),
        ("Siehe [r] da\n\n[r]: /u\n", ["Siehe Tom da"], "SIEHE [r] DA\n\n[r]: /u\n"),
        ("Siehe [die Hilfe][hilfe] da", ["Siehe die Hilfe da"], "SIEHE [DIE HILFE][hilfe] DA"),
        ("Siehe [Hilfe][] da", ["Siehe Tom da"], "SIEHE [Hilfe][] DA"),
        ("Siehe [Hilfe **da**][h]", ["Siehe Hilfe da"], "SIEHE [HILFE **DA**][h]"),
        ("Das [ganz neue] Haus", ["Das ganz neue Haus"], "DAS [GANZ NEUE] HAUS"),
        ("[![Bild][b] Text][t] da", ["Text da"], "[![Bild][b] TEXT][t] DA"),
        ("[a [Wort] c](/y) [1][2]", ["a Wort c"], "[A [WORT] C](/y) [1][2]"),
        ("Das ist [b]gut[/b] [url=/x]da[/url]", ["Das ist gut da"],
         "DAS IST [b]GUT[/b] [url=/x]DA[/url]"),
        ("\\[kein Bild\\] ![Bild] da", ["[kein Bild] !", "[Bild] da"],
         "\\[KEIN BILD\\] ![BILD] DA"),
        ("Ein ![Bild](b.png) hier", ["Ein hier"], "EIN ![Bild](b.png) HIER"),
        ("Nimm `x = 1` da", ["Nimm Tom da"], "NIMM `x = 1` DA"),
        ("```py\nein = 1\n```\n\n    code hier\n\nWort", ["Wort"], None),
        ("Auf <https://x.org/a> da", ["Auf Tom da"], "AUF <https://x.org/a> DA"),
        ("- Eins\n- [x] Zwei\n  1. X", ["Eins", "Zwei", "X"], "- EINS\n- [x] ZWEI\n  1. X"),
        ("> Ein Satz\n> geht weiter. Neu", ["Ein Satz geht weiter.", "Neu"], None),
        ("Eins  \nZwei\\\nDrei", ["Eins", "Zwei", "Drei"], "EINS  \nZWEI\\\nDREI"),
        ("| a b | 5 |\n|--|:-:|\n| x\\|y | **z** |", ["a b", "x y", "z"],
         "| A B | 5 |\n|--|:-:|\n| X\\|Y | **Z** |"),
        ("---\ntitle: Wort\n---\n\nText", ["Text"], "---\ntitle: Wort\n---\n\nTEXT"),
        ("Ein <b>Wort</b> <kbd>X</kbd> da", ["Ein Wort Tom da"], "EIN <b>WORT</b> <kbd>X</kbd> DA"),
        ("<div>\nEin <i>Text</i>\n</div>\n", ["Ein Text"], "<div>\nEIN <i>TEXT</i>\n</div>\n"),
        ("Wort[^1] da\n\n[^1]: Ein Text", ["Wort da", "Ein Text"], "WORT[^1] DA\n\n[^1]: EIN TEXT"),
        ("Ein \\*Wort\\* &nbsp; da", ["Ein Wort da"], "EIN \\*WORT\\* &nbsp; DA"),
        ("Ein <![CDATA[x > y]]> Wort", ["Ein Wort"], "EIN <![CDATA[x > y]]> WORT"),
        ("## Teil {#id}\n", ["Teil"], "## TEIL {#id}\n"),
        ("> [!NOTE]\n> Ein Hinweis", ["Ein Hinweis"], "> [!NOTE]\n> EIN HINWEIS"),
    ],
)  # fmt: skip
def test_what_is_read_and_what_stays(source: str, sentences: list[str], result: str | None) -> None:
    assert read(source, "markdown").sentences == sentences
    assert translated(source, same, "markdown") == source
    if result is not None:
        assert translated(source, format="markdown") == result


def test_marks_go_with_their_words() -> None:
    assert (
        translated("Ein **alter** [Hund](/x)", backwards, "markdown") == "[HUND](/x) **ALTER** EIN"
    )


@pytest.mark.parametrize("translator", TRANSLATORS)
def test_marks_come_out_once(translator: Translator) -> None:
    source = "Ein **alter** [Hund](/x) frisst `code` und ![b](c.png) *hier*"
    result = translated(source, translator, "markdown")
    for mark in ("[", "](/x)", "`code`", "![b](c.png)"):
        assert result.count(mark) == source.count(mark)
    assert result.count("*") == source.count("*")


@pytest.mark.parametrize(
    ("source", "sentences"),
    [
        ("::: tip Hinweis\nDas ist gut.\n:::\n\nMehr", ["Hinweis", "Das ist gut.", "Mehr"]),
        (":::note[Der Titel]\n\nDas ist gut.\n\n:::", ["Der Titel", "Das ist gut."]),
        ("::: warning\nVorsicht\n:::", ["Vorsicht"]),
        ("::::: {.cls}\nHund\n:::::", ["Hund"]),
        (
            '!!! note "Titel"\n    Das ist gut.\n\n    Mehr **davon**.\n\nEnde',
            ["Titel", "Das ist gut.", "Mehr davon.", "Ende"],
        ),
        ("??? tip\n    Das ist gut.\n", ["Das ist gut."]),
        ('=== "Der Hund"\n\n    Das ist gut.\n', ["Der Hund", "Das ist gut."]),
        ('Ja\n\n{{< figure src="a.png" title="Hund" >}}\nDa', ["Ja", "Da"]),
        ("{{% notice %}}\nDas ist gut.\n{{% /notice %}}", ["Das ist gut."]),
        (
            "import X from './x'\nexport const a = {\n  b: 1\n}\n\n# Titel\n\n<X a={1}>Hund</X>",
            ["Titel", "Hund"],
        ),
        ("Sei $x \\in A$ und $$y = 2$$ dann $a * b * c$ da", ["Sei Tom und Boston dann Paris da"]),
        ("Es kostet $5 und dann $10 heute.", ["Es kostet 27 und dann 38 heute."]),
        ("Siehe [[wiki|Der Link]] und [[Seite]] hier", ["Siehe Der Link und Tom hier"]),
        ("| a | b |\n|---|---|\n| Hund `a\\|b` da | Katze |", ["a", "b", "Hund Tom da", "Katze"]),
        ("| a | b |\n|---|---|\n| Hund `a|b` da | Katze |", ["a", "b", "Hund Tom da", "Katze"]),
        (
            "| `a|b` | ja |\n|:-:|---|\n|  ``|`` | Katze |",
            ["ja", "Katze"],
        ),
        ("> Hund `|` da | b\n> -|-\n> `||` ja | nein", ["Hund Tom da", "b", "Boston ja", "nein"]),
        ("Hund `a|b` da | dort", ["Hund Tom da", "dort"]),
        ("$$\nx = y\n$$\n\nDer Hund", ["Der Hund"]),
        ("\\begin{align}\nx\n\\end{align}\nDer Hund", ["Der Hund"]),
        ("Wort\n: Der Hund\n", ["Wort", "Der Hund"]),
        ("```\n::: tip\n!!! note\n$$\n```\nDer Hund", ["Der Hund"]),
        ("[TOC]\n\nHund\n{: .klasse}\n", ["Hund"]),
        (
            "Ja[^1]\n[^1]: Siehe das Buch\n[^2]: Hund\n[d]: https://x.de/d 'Die Doku'\n[b]: b.md\n"
            "*[HTML]: Eine Sprache\n*[CSS]: Noch eine\nMehr",
            ["Ja", "Siehe das Buch", "Hund", "Eine Sprache", "Noch eine", "Mehr"],
        ),
        ("> Ja\n> [^1]: Der Hund\n> [d]: /d\n> Mehr", ["Ja", "Der Hund", "Mehr"]),
        (
            "[^1]: Der Hund\n\n    Er bellt.\n\n        code\n\nEnde[^1]\n[d]: /d\n\n    code\n",
            ["Der Hund", "Er bellt.", "Ende"],
        ),
        ("Siehe [haus] da\n[haus]: /haus", ["Siehe Tom da"]),
    ],
)
def test_what_is_beyond_commonmark(source: str, sentences: list[str]) -> None:
    assert read(source, "markdown").sentences == sentences
    result = translated(source, format="markdown")
    for sentence in sentences:
        source = source.replace(sentence, sentence.upper())
    if not {"Tom", "27"} & set(" ".join(sentences).split()) and "**" not in source:
        assert result == source
    assert result.lower() == source.lower()


@pytest.mark.parametrize(
    ("source", "sentences"),
    [
        ("---\r\nname: Wort\r\n---\r\n\r\nText\r\n", ["Text"]),
        ("+++\nname = 'Wort'\n+++\nText", ["Text"]),
        ("---\n\nEin Satz\n\n---\n\nText", ["Ein Satz", "Text"]),
    ],
    ids=["with CRLF", "TOML", "two rules"],
)
def test_front_matter_stays_and_rules_are_none(source: str, sentences: list[str]) -> None:
    assert read(source, "markdown").sentences == sentences


_DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", _DOCUMENTS, ids=lambda path: path.stem)
def test_all_prose_of_the_documentation_is_read(path: Path) -> None:
    """By another reader's text between the marks, without code; codes in it may stay."""
    source = path.read_text(encoding="utf-8")
    sentences = Counter(re.findall(WORD, " ".join(read(source, "markdown", "en").sentences)))
    blocks = MarkdownIt("commonmark").enable("table").parse(source)
    for block in blocks:
        texts = (child.content for child in block.children or [] if child.type == "text")
        words = Counter(re.findall(WORD, " ".join(texts)))
        # Fewer words are often codes alone; a container may have options.
        if words.total() > 3 and not block.content.startswith(":::"):
            assert (words - sentences).total() < words.total() / 2, block.content


def test_colons_within_lines_are_no_definitions() -> None:
    # A bar in code has all lines looked at for what CommonMark does not know.
    text = "Ein Haus: `a|b`\nund mehr: ja\n\nWort\n: Der Hund: er bellt\n\n- Ein\n  Satz: da\n"
    expected = ["Ein Haus: Tom und mehr: ja", "Wort", "Der Hund: er bellt", "Ein Satz: da"]
    assert read(text, "markdown").sentences == expected


def test_words_behind_the_name_of_a_speaker_are_no_address() -> None:
    text = "Ein Satz\n[Anna]: Ja, sicher.\n[Ben]: Nein."
    expected = ["Ein Satz [Anna]: Ja, sicher.", "[Ben]: Nein."]
    assert read(text, "markdown").sentences == expected


def test_containers_of_other_lines_are_text() -> None:
    assert read("Er sagte:\nDas ist: gut!", "markdown").sentences == ["Er sagte: Das ist: gut!"]
    assert read("import goods from China", "markdown").sentences == ["import goods from China"]
