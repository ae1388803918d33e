"""What has a translation already stays, unless it is asked to be translated anew."""

from __future__ import annotations

import json

import pytest

from serving.documents.unit import ReadingWishes
from tests.unit.serving.documents.fakes import written

PO = """msgid ""
msgstr "Language: en\\n"

#, fuzzy
#| msgid "ein Heim"
msgid "ein Haus"
msgstr "a home"

msgctxt "sign"
msgid "Tor"
msgstr "gate"

msgid "ein Tag"
msgid_plural "%d Tage"
msgstr[0] "a day"
msgstr[1] "%d days"

#~ msgid "alt"
#~ msgstr "old"
"""
PO_ANEW = (
    PO.replace('"a home"', '"EIN HAUS"')
    .replace('"gate"', '"TOR"')
    .replace('"a day"', '"EIN TAG"')
    .replace('"%d days"', '"%d TAGE"')
)


def xliff_1(house: str, gate: str, kept: str = "peace") -> str:
    return (
        '<xliff version="1.2"><file source-language="de" target-language="en"><body>'
        '<trans-unit id="1" approved="yes"><source>ein Haus</source>'
        f'<target state="final">{house}</target></trans-unit>'
        '<trans-unit id="2"><source>Tor</source>'
        f'<target state="needs-review-translation">{gate}</target></trans-unit>'
        '<trans-unit id="3" translate="no"><source>Ruhe</source>'
        f"<target>{kept}</target></trans-unit>"
        "</body></file></xliff>"
    )


def xliff_2(house: str, gate: str) -> str:
    return (
        '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="de" '
        'trgLang="en"><file id="f"><unit id="1"><segment state="final"><source>ein Haus</source>'
        f'<target>{house}</target></segment><segment state="reviewed"><source>Tor</source>'
        f"<target>{gate}</target></segment></unit></file></xliff>"
    )


def tmx(house: str, gate: str) -> str:
    units = "".join(
        f'<tu><tuv xml:lang="de"><seg>{german}</seg></tuv><tuv xml:lang="en"><seg>{english}</seg>'
        f'</tuv><tuv xml:lang="fr"><seg>{german}</seg></tuv></tu>'
        for german, english in (("ein Haus", house), ("Tor", gate))
    )
    return f'<tmx version="1.4"><header srclang="de"/><body>{units}</body></tmx>'


def xcstrings(house: str, gate: str, state: str) -> str:
    def entry(text: str) -> dict[str, object]:
        unit = {"stringUnit": {"state": state, "value": text}}
        french = {"stringUnit": {"state": "translated", "value": "fr"}}
        return {"localizations": {"en": unit, "fr": french}}

    strings = {
        "ein Haus": entry(house),
        "Tor": entry(gate),
        "Ruhe": {"shouldTranslate": False, **entry("peace")},
    }
    strings["Ruhe"]["localizations"] = {}
    tree = {"sourceLanguage": "de", "strings": strings, "version": "1.0"}
    return json.dumps(tree, indent=2, separators=(",", " : ")).replace("{}", "{\n\n      }")


CASES = {
    "a.po": (PO, PO_ANEW),
    "a.xlf": (xliff_1("a home", "gate"), xliff_1("EIN HAUS", "TOR")),
    "b.xlf": (xliff_2("a home", "gate"), xliff_2("EIN HAUS", "TOR")),
    "a.tmx": (tmx("a home", "gate"), tmx("EIN HAUS", "TOR")),
    "a.xcstrings": (
        xcstrings("a home", "gate", "translated"),
        xcstrings("EIN HAUS", "TOR", "needs_review"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_translations_stay_or_are_made_anew(name: str) -> None:
    source, anew = CASES[name]
    for retranslate, expected in ((False, source), (True, anew)):
        wishes = ReadingWishes(target="en", retranslate=retranslate)
        assert written(source.encode(), name, wishes=wishes).content.decode() == expected


def test_a_file_that_holds_no_translations_is_translated_as_ever() -> None:
    wishes = ReadingWishes(target="en", retranslate=True)
    assert written(b"ein Haus\n", "a.txt", wishes=wishes).content == b"EIN HAUS\n"
