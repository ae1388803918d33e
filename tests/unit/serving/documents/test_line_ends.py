"""Files of lines that end with a carriage return and a line feed."""

from __future__ import annotations

import pytest

from tests.unit.serving.documents.fakes import translated

FILES = {
    "a.txt": "Erste Zeile.\n\nZweite Zeile.\n",
    "a.md": "---\nname: x\n---\n\n::: tip\nEin Satz\n:::\n\n"
    "| a | b |\n|---|---|\n| `x|y` da | *ja* |\n",
    "a.html": "<p>Erste Zeile.<br>\nZweite.</p>\n<pre>\nx\n</pre>\n",
    "a.ipynb": '{\n "cells": [\n  {\n   "cell_type": "markdown",\n   "source": [\n'
    '    "Ein *Wort*\\n"\n'
    '   ]\n  }\n ]\n}\n',
    "a.srt": "1\n00:00:01,000 --> 00:00:03,000\nEin Satz.\n- Zwei.\n\n",
    "a.vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\nEin Satz.\n",
    "a.po": 'msgid "eins\\n"\n"zwei"\nmsgstr ""\n\nmsgid "drei"\nmsgstr ""\n',
    "a.xlf": '<xliff><trans-unit>\n <source>eins</source>\n</trans-unit></xliff>\n',
    "a.properties": "a = eins\\\n  zwei\nb: drei\n# nicht\n",
    "a.strings": '/* nicht */\n"a" = "eins";\nb = "zwei";\n',
    "a.yml": "a: eins\nb: |\n  zwei\n  drei\n\nc: >-\n  vier\n",
    "a.json": '{\n  "a": "eins"\n}\n',
    "a.xcstrings": '{\n  "sourceLanguage" : "de",\n  "strings" : {\n    "eins" : {\n      '
    '"localizations" : {\n        "en" : {\n          "stringUnit" : {\n            '
    '"state" : "new",\n            "value" : ""\n          }\n        }\n      }\n    }\n  },\n  '
    '"version" : "1.0"\n}\n',
    "a.rst": "Titel\n=====\n\n" + "Ein Satz mit vielen Worten, " * 3 + "\nder weitergeht,\n"
    + "und noch einmal so viele Worte. " * 3 + "\n\n.. note::\n\n   Da.\n\n| eins\n| zwei\n",
    "a.adoc": "= Titel\n\nEins +\nZwei.\n\n* Punkt\n+\nmehr\n\nBegriff::\n  Erklärung\n",
    "a.tex": "\\section{Titel}\n\nEin Absatz % nicht\nhier.\n\nNoch einer.\n\n  \n Ende.\n",
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_keep_them_and_are_read_as_others(name: str) -> None:
    source = FILES[name]
    expected = translated(source.encode(), name).decode()
    assert expected != source
    result = translated(source.replace("\n", "\r\n").encode(), name).decode()
    assert result == expected.replace("\n", "\r\n")
