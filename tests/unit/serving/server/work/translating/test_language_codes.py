"""Codes of languages as clients write them, and texts that are in their target language already:
the same in every dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from serving.bundle.languages import Languages
from serving.server.http.settings import Settings
from tests.unit.serving.echo import EchoTranslator, served, several

CODES = [
    ("de", "en"),
    ("DE", "EN"),
    ("de-AT", "en-GB"),
    ("de_CH", "en_US"),
    ("De-de", "EN-us"),
]
TEXTS = [
    ("text", "Hallo,  Welt!\n\n 1.5 % < 2\u00a0& <b>"),
    ("text", ""),
    ("html", '<P CLASS=a>Hallo&nbsp;<br>Welt &amp; "a" <!-- x --><b>b</P>  \n'),
    ("html", "Ein Satz. Noch einer."),
    ("xml", '<a b = "c" >Hallo&#33; <d/> </a >'),
    ("markdown", "# Hallo\n\n*  eins `zwei`\n"),
]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    translators = [
        EchoTranslator("many", languages=several("de-en", "en-fr", "en-pt")),
        EchoTranslator("chinese", "en", "zh-Hans"),
        EchoTranslator("brazil", "en", "pt-BR"),
    ]
    with served(*translators) as (client, _):
        yield client


def native(client: TestClient, **fields: Any) -> Any:
    return client.post("/translate", json={"q": "Hallo", **fields})


def deepl(client: TestClient, **fields: Any) -> Any:
    return client.post("/v2/translate", json={"text": ["Hallo"], **fields})


@pytest.mark.parametrize(("source", "target"), CODES)
def test_codes_are_matched_and_the_answer_names_what_was_asked(
    client: TestClient, source: str, target: str
) -> None:
    answer = native(client, source=source, target=target).json()
    assert answer["translatedText"] == "[en]Hallo"
    assert (answer["source"], answer["target"]) == (source, target)
    assert answer["translations"][0]["source"] == source
    fields = {"q": "Hallo", "source": source, "target": target}
    for request in ({"data": fields}, {"params": fields}):
        assert client.post("/translate", **request).json()["translatedText"] == "[en]Hallo"
    streamed = native(client, source=source, target=target, stream=True).text
    done = json.loads(streamed.rpartition("data: ")[2])
    assert (done["translatedText"], done["source"]) == ("[en]Hallo", source)
    found = deepl(client, source_lang=source, target_lang=target).json()["translations"][0]
    assert (found["text"], found["detected_source_language"]) == ("[en]Hallo", "DE")


def test_codes_are_matched_in_python_too() -> None:
    translator = EchoTranslator("many", languages=several("de-en", "en-fr"))
    (found,) = translator.translate("Hallo", source="DE-at", target="en_GB")
    assert found.text == "[en]Hallo"


@pytest.mark.parametrize(
    ("target", "model"),
    [
        ("pt", "many"),
        ("PT-pt", "many"),
        ("pt-BR", "brazil"),
        ("PT-br", "brazil"),
        ("zh-hans", "chinese"),
        ("zh-Hans-CN", "chinese"),
    ],
)
def test_a_region_that_a_model_knows_counts(client: TestClient, target: str, model: str) -> None:
    assert native(client, source="EN", target=target).json()["model"] == model


def test_a_model_that_is_named_counts_for_its_own_codes(client: TestClient) -> None:
    fields = {"source": "EN-us", "target": "pt-BR", "model": "many"}
    assert native(client, **fields).json()["translatedText"] == "[pt]Hallo"


def test_codes_are_matched_on_the_way_through_a_third_language(client: TestClient) -> None:
    answer = native(client, source="DE", target="fr-CA").json()
    assert answer["translatedText"] == "[fr][en]Hallo"
    assert answer["source"] == "DE"


@pytest.mark.parametrize("auto", ["auto", "AUTO"])
def test_a_source_that_is_left_open_is_reported_as_it_was_found(
    client: TestClient, auto: str
) -> None:
    answer = native(client, q="Das ist ein Satz.", source=auto, target="EN").json()
    assert (answer["source"], answer["detectedLanguage"]["language"]) == ("de", "de")


@pytest.mark.parametrize(
    ("fields", "error", "hint"),
    [
        ({"source": "XX-yy", "target": "EN"}, "XX-yy is not supported", "got 'XX-yy'"),
        ({"source": "de", "target": "zh-TW"}, "zh-TW is not supported", "got 'zh-TW'"),
        ({"source": "zh", "target": "en"}, "zh is not supported", "got 'zh'"),
        ({"source": "FR-ca", "target": "en-GB"}, "FR-ca is not supported", "got 'FR-ca'"),
    ],
)
def test_an_error_names_what_was_asked(
    client: TestClient, fields: dict[str, str], error: str, hint: str
) -> None:
    refused = native(client, **fields)
    assert refused.status_code == 400, refused.text
    assert error in refused.json()["error"]
    assert hint in refused.json()["hint"]
    named = {f"{side}_lang": code for side, code in fields.items()}
    refused = deepl(client, **named)
    assert refused.status_code == 400, refused.text
    assert any(code in refused.json()["message"] for code in fields.values())


def test_an_error_of_a_pair_names_what_was_asked() -> None:
    with served(EchoTranslator("apart", languages=several("fr-en", "es-de"))) as (client, _):
        refused = native(client, source="FR-ca", target="de").json()
        assert (
            "German (de) is not available as a target language from French (fr)"
            in (refused["error"])
        )
        assert refused["hint"].endswith("; 'FR-ca' was taken for 'fr'")
        message = deepl(client, source_lang="FR", target_lang="DE-at").json()["message"]
        assert "from French (fr)" in message


@pytest.mark.parametrize(("format", "text"), TEXTS)
@pytest.mark.parametrize(
    ("source", "target"),
    [("de", "de"), ("en", "EN-gb"), ("pt-BR", "pt-br"), ("zh-Hans", "zh-Hans")],
)
def test_texts_in_the_target_language_stay_as_they_are(
    client: TestClient, source: str, target: str, format: str, text: str
) -> None:
    fields = {"source": source, "target": target, "format": format}
    answer = native(client, q=text, **fields).json()
    assert answer["translatedText"] == text
    assert (answer["source"], answer["target"]) == (source, target)
    assert answer["translations"][0]["warnings"] == []
    assert native(client, q=[text, text], **fields).json()["translatedText"] == [text, text]
    streamed = native(client, q=text, stream=True, **fields).text
    assert json.loads(streamed.rpartition("data: ")[2])["translatedText"] == text
    if format != "markdown":
        handling = {} if format == "text" else {"tag_handling": format}
        languages = {"source_lang": source, "target_lang": target}
        found = deepl(client, text=[text], **languages, **handling).json()["translations"]
        assert found[0]["text"] == text


def test_that_holds_in_forms_as_well(client: TestClient) -> None:
    fields = {"q": "<p>Hallo</p>", "source": "en", "target": "en", "format": "html"}
    for request in ({"data": fields}, {"params": fields}):
        assert client.post("/translate", **request).json()["translatedText"] == "<p>Hallo</p>"


def test_a_text_that_is_not_translated_is_checked_all_the_same(client: TestClient) -> None:
    fields = {"source": "en", "target": "en"}
    assert native(client, q="a\0b", **fields).status_code == 400
    assert native(client, q="<a>", format="xml", **fields).status_code == 400
    assert native(client, q="a", model="none", **fields).status_code == 404
    assert "xx is not supported" in native(client, source="xx", target="xx").json()["error"]


def test_long_texts_that_stay_as_they_are_have_the_limit_of_others() -> None:
    with served(settings=Settings(max_text_chars=5)) as (client, _):
        assert native(client, q="Hallo!", source="en", target="en").status_code == 413


def test_a_model_that_was_trained_on_one_language_alone_has_its_texts() -> None:
    """One that shortens, or corrects."""
    same = Languages(source=("en",), target=("en",))
    with served(EchoTranslator("shortens", languages=same)) as (client, _):
        answer = native(client, q="Hello", source="EN", target="en-GB").json()
        assert len(answer["translations"][0]["hypotheses"]) > 0
