"""Translated documents, opened by readers that had no part in translating them."""

from __future__ import annotations

import json

import pytest

from serving.documents.unit import ReadingWishes
from tests.integration.serving.document_readers import differences
from tests.unit.serving.documents.fakes import written
from tests.unit.serving.text.fakes import Translator, losing, same

SRT = """\
1
00:00:01,000 --> 00:00:03,000
{\\an8}Ich glaube, dass wir <i>heute</i>
nicht mehr nach Hause

2
00:00:03,100 --> 00:00:05,000
kommen werden.

3
00:00:06,000 --> 00:00:07,500
- Wirklich?
- <b>Ja</b>, <font color="#ff0000">sicher</font>.

4
00:00:08,000 --> 00:00:09,000
♪ ♪
"""
VTT = """\
WEBVTT - Kapitel
Kind: captions
Language: de

STYLE
::cue(v) {
  color: red
}

REGION
id:unten
width:40%
lines:3

NOTE Dies ist eine Bemerkung, die bleibt.

eins
00:01.000 --> 00:03.000 region:unten align:start
<v Anna>Guten Morgen &amp; <i>guten</i> Tag.

00:00:03.500 --> 00:00:05.000
Das <00:00:04.000>kommt <00:00:04.500>nach und nach.

NOTE
Noch eine
Bemerkung.

01:00:06.000 --> 01:00:07.000 line:0
<c.gelb>Ganz oben</c> steht es.
"""
SBV = """\
0:00:01.000,0:00:03.000
Der alte Hund
schläft im Garten.

0:00:04.500,0:00:06.000
Die Katze wacht.
"""
ASS = """\
[Script Info]
; Eine Bemerkung, die bleibt
Title: Ein Film
ScriptType: v4.00+
PlayResX: 640

[V4+ Styles]
Format: Name, Fontname, Fontsize, PrimaryColour, SecondaryColour, OutlineColour, BackColour, Bold, \
Italic, Underline, StrikeOut, ScaleX, ScaleY, Spacing, Angle, BorderStyle, Outline, Shadow, \
Alignment, MarginL, MarginR, MarginV, Encoding
Style: Default,Arial,20,&H00FFFFFF,&H0000FFFF,&H00000000,&H00000000,0,0,0,0,100,100,0,0,1,2,2,2,10,\
10,10,1
Style: Oben,Arial,24,&H00FFFFFF,&H0000FFFF,&H00000000,&H00000000,-1,0,0,0,100,100,0,0,1,2,2,8,10,\
10,10,1

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Comment: 0,0:00:00.00,0:00:01.00,Default,,0,0,0,,Hier beginnt der Film
Dialogue: 0,0:00:01.00,0:00:03.50,Default,Anna,0,0,0,,Guten {\\i1}Morgen{\\i0}, mein\\NFreund.
Dialogue: 1,0:00:04.00,0:00:05.00,Oben,,5,5,5,,{\\pos(320,40)}Ein Schild, oben
Dialogue: 0,0:00:05.00,0:00:06.00,Default,,0,0,0,,{\\p1}m 0 0 l 100 0 100 100{\\p0}
Dialogue: 0,0:00:06.00,0:00:08.00,Default,Bert,0,0,0,,Ich komme, sobald
Dialogue: 0,0:00:08.00,0:00:09.00,Default,Bert,0,0,0,,die Sonne scheint.
"""
PO = """\
# Kopf der Datei
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2);\\n"

# vom Übersetzer
#. vom Programm
#: a.py:3 b.py:12
#, python-format
msgctxt "Knopf"
msgid "Öffne die Datei %(name)s"
msgstr ""

#, fuzzy, python-format
#| msgid "alter Text"
msgid "%d Datei"
msgid_plural "%d Dateien hier"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

msgid ""
"Zwei Zeilen,\\n"
"mit \\"Anführung\\" und \\\\ darin\\n"
msgstr ""

#~ msgid "veraltet"
#~ msgstr "obsolet"
"""
RST = """\
.. _B2: https://example.org/
.. Ein Kommentar, der bleibt

====
Höhe
====

Ein Absatz mit **fetten Wörtern**, ``code_x``, :math:`a^2` und
einer `Seite hier <https://example.org/>`_, siehe B2_ und [#eins]_ sowie `<w:a/>` allein.

- erster Punkt
  geht weiter
- zweiter Punkt::

    bleibt = wie es ist

- Klasse:
      1. ein Glied
      2. noch ein Glied

Begriff
    seine Erklärung mit Worten

:param x: was das Feld bedeutet

    Ein Zitat von jemandem.

| eine Zeile
| noch eine Zeile

.. [#eins] Eine Fußnote mit Text.

.. warning:: Ein Hinweis
   in zwei Zeilen.

.. math::

   a + b

.. image:: bild.png
   :width: 40

Noch ein Teil
-------------

>>> print("bleibt so")
bleibt so
"""
TEX = r"""\documentclass[a4paper]{article}
\usepackage{graphicx}
% ein Kommentar, der bleibt
\begin{document}
\section{Die Überschrift hier}\label{sec:a}
Das ist \textbf{ganz fett} und \emph{ganz schräg}, siehe Abschnitt~\ref{sec:a}; es gilt
$a^2+b^2=c^2$, wie \cite{noether} sagt\footnote{Und zwar mit Recht.}.
\begin{equation}
  E = mc^2
\end{equation}
\begin{itemize}
  \item erster Punkt der Liste
  \item zweiter Punkt, 50\,\% davon
\end{itemize}
\begin{tabular}{ll}
  Name der Stadt & Land am Meer \\
\end{tabular}
\end{document}
"""
MARKDOWN = """\
# Die Überschrift

Ein Absatz mit **fetten Wörtern**, `code_x` und [einem Verweis](https://example.org/ "der Titel").

1. erster Punkt
    - ein innerer Punkt
2. zweiter Punkt

> Ein Zitat von jemandem.

```python
print("bleibt so")
```

| Name | Ort |
| ---- | --: |
| ein Haus | am Meer |

![ein Bild](bild.png)
"""
HTML = """\
<!DOCTYPE html>
<html><head><title>Ein schöner Titel</title><style>p { color: red }</style></head>
<body><!-- bleibt --><h1 id="a" class="x">Die Überschrift</h1>
<p>Ein <b>fettes</b> Wort, <a href="b.html" title="der Titel">ein Verweis</a> &amp;
mehr.<br>Neu.</p>
<ul><li>eins und zwei<li>drei</ul><pre>bleibt  so</pre><code>x_y</code>
<table><tr><td>eine Zelle<td>noch eine</table><script>let bleibt = "so";</script>
<p translate="no">Bleibt auch so</p></body></html>
"""
PROPERTIES = """\
# ein Kommentar, der bleibt
! noch einer

gruss = Guten Morgen, {0}
lang : Ein langer Text, \\
       der weitergeht
schlüssel\\ mit\\ blank=ein Wert
zeichen=Gr\\u00fc\\u00dfe und\\tTabulator
"""
STRINGS = """\
/* ein Kommentar, der bleibt */
"gruss" = "Guten Morgen, %@";
// noch einer
"lang" = "Zwei Zeilen\\nmit \\"Anführung\\"";
kurz = "Ja doch";
"""
YAML = """\
# ein Kommentar, der bleibt
de:
  gruss: Guten Morgen, %{name}
  anzahl: 3
  ja: true
  liste: [eins zwei, "drei: vier", 'fünf']
  lang: |
    Erste Zeile
    zweite Zeile
  gefaltet: >-
    ein Absatz
    geht weiter
"""
NOTEBOOK = json.dumps(
    {
        "cells": [
            {
                "cell_type": "markdown",
                "id": "a",
                "metadata": {"tags": ["x"]},
                "source": ["# Die Überschrift\n", "\n", "Ein **fettes** Wort mit $x^2$ darin."],
            },
            {
                "cell_type": "code",
                "execution_count": 1,
                "id": "b",
                "metadata": {},
                "outputs": [{"name": "stdout", "output_type": "stream", "text": ["bleibt so\n"]}],
                "source": ["# ein Kommentar, der bleibt\n", "print('bleibt so')"],
            },
        ],
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    },
    indent=1,
    ensure_ascii=False,
)
MADE = {
    "ass": ASS,
    "html": HTML,
    "ipynb": NOTEBOOK,
    "md": MARKDOWN,
    "po": PO,
    "properties": PROPERTIES,
    "rst": RST,
    "sbv": SBV,
    "srt": SRT,
    "strings": STRINGS,
    "tex": TEX,
    "vtt": VTT,
    "yaml": YAML,
}


@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("ending", MADE)
def test_another_reader_finds_everything_in_its_place_and_each_text_translated(
    ending: str, line_end: str
) -> None:
    content = MADE[ending].replace("\n", line_end).encode()
    result = written(content, f"a.{ending}", wishes=ReadingWishes(retranslate=True))
    assert differences(content, result.content, ending, most=1) == []


@pytest.mark.parametrize("translate", [same, losing])
@pytest.mark.parametrize("ending", MADE)
def test_a_reader_sees_what_is_lost_or_not_translated(ending: str, translate: Translator) -> None:
    content = MADE[ending].encode()
    result = written(content, f"a.{ending}", translate, wishes=ReadingWishes(retranslate=True))
    assert differences(content, result.content, ending, most=1)
