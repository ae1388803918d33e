"""Files that hold several languages, and Apple's plurals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving.documents.files import FileWishes, translate_file
from serving.documents.recognition import recognised
from serving.errors import DocumentError
from tests.unit.serving.documents.fakes import rendered, translated


def into(content: str, name: str, language: str, folder: Path) -> str:
    source, target = folder / name, folder / f"out.{name}"
    source.write_text(content)
    wishes = FileWishes(force=True, target_language=language)
    translate_file(source, target, lambda units: ([rendered(u) for u in units], []), wishes)
    return target.read_text()


def tmx(units: str) -> str:
    return f'<tmx version="1.4"><header srclang="de"/><body>{units}</body></tmx>'


DE = '<tuv xml:lang="de"><seg>ein Haus</seg></tuv>'


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (f"<tu>{DE}</tu>", f'<tu>{DE}<tuv xml:lang="en"><seg>EIN HAUS</seg></tuv></tu>'),
        (
            f'<tu>{DE}<tuv xml:lang="en-GB"><seg/></tuv></tu>',
            f'<tu>{DE}<tuv xml:lang="en-GB"><seg>EIN HAUS</seg></tuv></tu>',
        ),
        (f'<tu>{DE}<tuv xml:lang="EN"><seg>x</seg></tuv></tu>', None),
        ('<tu><tuv xml:lang="fr"><seg>une maison</seg></tuv></tu>', None),
    ],
    ids=["missing", "empty", "there", "of another source"],
)
def test_variants_of_a_memory_are_filled(unit: str, expected: str | None, tmp_path: Path) -> None:
    assert into(tmx(unit), "a.tmx", "en", tmp_path) == tmx(expected or unit)


def test_without_a_language_asked_for_the_only_other_one_is_filled() -> None:
    source = tmx(f'<tu>{DE}<tuv xml:lang="en"><seg></seg></tuv></tu>').encode()
    assert b"<seg>EIN HAUS</seg>" in translated(source, "a.tmx")
    alone = tmx(f"<tu>{DE}</tu>").encode()
    with pytest.raises(DocumentError, match="got none; name the target language"):
        recognised(alone, "a.tmx").read(alone)


CATALOGUE = """{
  "sourceLanguage" : "en",
  "strings" : {
    "Done" : {
      "localizations" : {
        "de" : {
          "stringUnit" : {
            "state" : "translated",
            "value" : "Fertig"
          }
        }
      }
    },
    "Hello %@" : {

    },
    "Keep" : {
      "shouldTranslate" : false
    }
  },
  "version" : "1.0"
}"""


def test_a_catalogue_of_xcode_gets_what_is_missing_in_the_layout_that_it_has(
    tmp_path: Path,
) -> None:
    added = (
        '"Hello %@" : {\n      "localizations" : {\n        "de" : {\n          "stringUnit" : {\n'
        '            "state" : "needs_review",\n            "value" : "HELLO %@"\n          }\n'
        "        }\n      }\n    }"
    )
    expected = CATALOGUE.replace('"Hello %@" : {\n\n    }', added)
    assert into(CATALOGUE, "a.xcstrings", "de", tmp_path) == expected


def test_each_form_of_a_plural_of_xcode_is_translated(tmp_path: Path) -> None:
    forms = {
        form: {"stringUnit": {"state": "translated", "value": f"%d file {form}"}}
        for form in ("one", "other")
    }
    entry = {"localizations": {"en": {"variations": {"plural": forms}}}}
    tree = {"sourceLanguage": "en", "strings": {"%d files": entry}, "version": "1.0"}
    result = json.loads(into(json.dumps(tree), "a.xcstrings", "fr", tmp_path))
    french = result["strings"]["%d files"]["localizations"]["fr"]["variations"]["plural"]
    assert french["one"]["stringUnit"] == {"state": "needs_review", "value": "%d FILE ONE"}
    assert french["other"]["stringUnit"]["value"] == "%d FILE OTHER"


@pytest.mark.parametrize(
    ("own", "filled", "expected"),
    [
        (
            {"plural": {"one": "ein Tag", "other": "%lld Tage"}},
            {"plural": {"one": ("translated", "a day"), "few": ("new", ""), "other": ("new", "x")}},
            {"one": "a day", "few": "%lld TAGE", "other": "%lld TAGE"},
        ),
        (
            {"device": {"mac": "Klicken", "other": "Tippen"}},
            {"device": {"mac": ("new", ""), "ipad": ("new", ""), "other": ("translated", "Tap")}},
            {"mac": "KLICKEN", "ipad": "TIPPEN", "other": "Tap"},
        ),
        (
            None,
            {"plural": {"one": ("needs_review", "a day"), "other": ("new", "Schlüssel")}},
            {"one": "a day", "other": "SCHLÜSSEL"},
        ),
        (
            {"device": {"mac": "Klicken"}},
            {"plural": {"one": ("translated", "a day"), "other": ("new", "")}},
            {"one": "a day", "other": ""},
        ),
    ],
    ids=["plural", "devices", "of one text", "of other kinds"],
)
def test_new_forms_beside_others_are_translated(
    own: dict[str, dict[str, str]] | None,
    filled: dict[str, dict[str, tuple[str, str]]],
    expected: dict[str, str],
    tmp_path: Path,
) -> None:
    def unit(state: str, value: str) -> dict[str, object]:
        return {"stringUnit": {"state": state, "value": value}}

    def forms(of: dict[str, dict[str, tuple[str, str]]]) -> dict[str, object]:
        kinds = {
            kind: {name: unit(*form) for name, form in named.items()} for kind, named in of.items()
        }
        return {"variations": kinds}

    localizations = {"en": forms(filled)}
    for kind, named in (own or {}).items():
        localizations["de"] = forms({kind: {n: ("translated", text) for n, text in named.items()}})
    tree = {"sourceLanguage": "de", "strings": {"Schlüssel": {"localizations": localizations}}}
    result = json.loads(into(json.dumps(tree), "a.xcstrings", "en", tmp_path))
    written = result["strings"]["Schlüssel"]["localizations"]["en"]["variations"]
    (kind,) = filled
    for name, text in expected.items():
        before = filled[kind][name]
        state = before[0] if text == before[1] else "needs_review"
        assert written[kind][name] == unit(state, text)


def test_forms_of_apples_plurals_are_translated_and_what_names_them_stays() -> None:
    def dictionary(one: str, other: str, key: str) -> str:
        return (
            '<?xml version="1.0"?>\n<plist version="1.0"><dict><key>files</key><dict>'
            f"<key>NSStringLocalizedFormatKey</key><string>{key}</string><key>n</key><dict>"
            "<key>NSStringFormatSpecTypeKey</key><string>NSStringPluralRuleType</string>"
            "<key>NSStringFormatValueTypeKey</key><string>d</string>"
            f"<key>one</key><string>{one}</string><key>other</key><string>{other}</string>"
            "</dict></dict></dict></plist>\n"
        )

    source = dictionary("%d file", "%d files", "%#@n@")
    result = translated(source.encode(), "a.stringsdict").decode()
    assert result == dictionary("%d FILE", "%d FILES", "%#@n@")


def test_forms_for_widths_and_devices_are_translated_and_variables_stay() -> None:
    head = '<plist version="1.0"><dict><key>a</key><dict>'
    forms = (
        "<key>NSStringLocalizedFormatKey</key><string>Hier %#@orte@ und %2$#@mehr@</string>"
        "<key>20</key><string>kurz</string><key>iphone</key><string>Tippen</string>"
        "<key>NSStringFormatValueTypeKey</key><string>d</string>"
    )
    source = f"{head}{forms}</dict></dict></plist>"
    expected = source
    for word in ("Hier", "und", "kurz", "Tippen"):
        expected = expected.replace(f"{word}", word.upper())
    assert translated(source.encode(), "a.stringsdict").decode() == expected
