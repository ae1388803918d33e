"""LibreTranslate's wire format, with models that echo."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from serving.server.openapi import document
from serving.text.detection import detect
from tests.unit.serving.echo import EchoTranslator, served

FIELDS = {"q": "Hallo Welt", "source": "de", "target": "en"}
URLENCODED = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    translators = [EchoTranslator(), EchoTranslator("echo-en-de", "en", "de")]
    with served(*translators, settings=Settings(max_body_bytes=65536)) as (client, _):
        yield client


def as_json(fields: dict[str, Any]) -> dict[str, Any]:
    return {"json": fields}


def as_urlencoded(fields: dict[str, Any]) -> dict[str, Any]:
    return {"data": fields}


def as_multipart(fields: dict[str, Any]) -> dict[str, Any]:
    return {"files": {name: (None, value) for name, value in fields.items()}}


def as_query(fields: dict[str, Any]) -> dict[str, Any]:
    return {"params": fields}


ALL = [as_json, as_urlencoded, as_multipart, as_query]
FORMS = ALL[1:]


def error(response: httpx.Response, status: int = 400) -> str:
    assert response.status_code == status, response.text
    assert set(response.json()) - {"hint"} == {"error", "code"}
    text: str = response.json()["error"]
    return text


@pytest.mark.parametrize("form", ALL)
def test_one_text_in_every_kind_of_body(client: TestClient, form: Any) -> None:
    response = client.post("/translate", **form({**FIELDS, "q": "Grüße & Küsse 👋+%"}))
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["translatedText"] == "Grüße & Küsse 👋+%"
    assert "detectedLanguage" not in answer
    assert "alternatives" not in answer


@pytest.mark.parametrize("form", FORMS)
def test_numbers_in_forms(client: TestClient, form: Any) -> None:
    fields = {**FIELDS, "alternatives": "2", "format": "text", "api_key": ""}
    answer = client.post("/translate", **form(fields)).json()
    assert len(answer["alternatives"]) == 2
    refused = client.post("/translate", **form({**FIELDS, "alternatives": "many"}))
    assert "alternatives must be a valid integer" in error(refused)


@pytest.mark.parametrize("form", FORMS)
def test_a_field_that_is_repeated_is_a_list(client: TestClient, form: Any) -> None:
    fields = form({**FIELDS, "q": "zwei"})
    if form is as_query:
        response = client.post("/translate?q=eins", params=None, data={**FIELDS, "q": "zwei"})
    else:
        response = client.post("/translate?q=eins", **fields)
    assert response.json()["translatedText"] == ["eins", "zwei"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({"q[]": "eins"}, ["eins"]),
        ({"q[0]": "eins"}, ["eins"]),
        ({"q[1]": "zwei", "q[0]": "eins"}, ["eins", "zwei"]),
        ({"q[10]": "drei", "q[9]": "zwei", "q[]": "vier"}, ["zwei", "drei", "vier"]),
    ],
)
def test_a_list_may_be_written_with_brackets(
    client: TestClient, form: Any, fields: dict[str, str], texts: list[str]
) -> None:
    languages = {"source": "de", "target": "en"}
    response = client.post("/translate", **form({**languages, **fields}))
    assert response.json()["translatedText"] == texts
    assert client.post("/detect", **form(fields)).status_code == 200
    refused = client.post("/translate", **form({"q": "a", "source[]": "de", "target": "en"}))
    assert "source must be a valid string, got a list" in error(refused)


@pytest.mark.parametrize("form", ALL)
@pytest.mark.parametrize("name", ["q", "source", "target"])
def test_missing_fields(client: TestClient, form: Any, name: str) -> None:
    fields = {key: value for key, value in FIELDS.items() if key != name}
    assert error(client.post("/translate", **form(fields))) == (
        f"Invalid request: missing {name} parameter"
    )


@pytest.mark.parametrize("form", ALL)
def test_unknown_languages_and_formats(client: TestClient, form: Any) -> None:
    ask = lambda **fields: client.post("/translate", **form({**FIELDS, **fields}))  # noqa: E731
    assert error(ask(target="zz")) == "zz is not supported"
    assert error(ask(source="zz")) == "zz is not supported"
    assert "target must be one of" in ask(target="zz").json()["hint"]
    assert "format must be" in error(ask(format="pdf"))


@pytest.mark.parametrize("form", [as_urlencoded, as_multipart])
def test_line_ends_of_forms(client: TestClient, form: Any) -> None:
    """Browsers send \\r\\n; LibreTranslate answers with \\n and drops the last."""
    ask = lambda q: client.post("/translate", **form({**FIELDS, "q": q}))  # noqa: E731
    assert ask("eins\r\nzwei\rdrei\n").json()["translatedText"] == "eins\nzwei\ndrei"


@pytest.mark.parametrize(
    "body",
    [b"q=%ff&source=de&target=en", b"q=\xff&source=de&target=en", b"&".join([b"a=b"] * 10_001)],
)
def test_bad_forms(client: TestClient, body: bytes) -> None:
    refused = client.post("/translate", content=body, headers=URLENCODED)
    assert "must be forms in UTF-8" in error(refused)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", b"--x\r\n"),
        ("multipart/form-data; boundary=x", b"nonsense"),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n\xff\r\n--x--\r\n',
        ),
        (
            "multipart/form-data; boundary=x",
            b"--x\r\nContent-Disposition: form-data\r\n\r\na\r\n--x--\r\n",
        ),
        ("multipart/form-data; boundary=" + "x" * 300, b"--x--"),
        ("multipart/form-data; boundary=x", b""),
        ("multipart/mixed; boundary=x", b"--x--"),
    ],
)
def test_bad_multipart(client: TestClient, content_type: str, body: bytes) -> None:
    headers = {"Content-Type": content_type}
    response = client.post("/translate", content=body, headers=headers)
    assert response.status_code in (400, 415), response.text
    assert set(response.json()) - {"hint"} == {"error", "code"}


def test_a_file_is_refused(client: TestClient) -> None:
    refused = client.post("/translate", data=FIELDS, files={"q": ("a.txt", b"Hallo")})
    assert error(refused) == "no field may be a file; send its text"


def test_a_form_over_the_limit(client: TestClient) -> None:
    error(client.post("/translate", data={**FIELDS, "q": "x" * 70_000}), 413)
    error(client.post("/translate", **as_multipart({**FIELDS, "q": "x" * 70_000})), 413)


def test_json_declared_as_a_form_is_reported(client: TestClient) -> None:
    refused = client.post("/translate", content=b' {"q": "Hallo"}', headers=URLENCODED)
    assert "send Content-Type: application/json" in error(refused, 415)


def test_languages_over_get_with_a_body(client: TestClient) -> None:
    found = client.request("GET", "/languages", content=b"api_key=a", headers=URLENCODED).json()
    assert [(entry["code"], entry["targets"]) for entry in found] == [
        ("de", ["en"]),
        ("en", ["de"]),
    ]


@pytest.mark.parametrize("form", ALL)
def test_html(client: TestClient, form: Any) -> None:
    q = '<p>Hallo <b class="x">Welt</b> &amp; <code>a &lt; b</code></p>'
    fields = {**FIELDS, "q": q, "format": "html"}
    assert client.post("/translate", **form(fields)).json()["translatedText"] == q


def test_detected_language_is_reported_where_it_was_left_open(client: TestClient) -> None:
    german, english = "Das ist ein ganz einfacher Satz.", "This is a very simple sentence."
    ask = lambda q: client.post("/translate", json={"q": q, "source": "auto", "target": "en"})  # noqa: E731
    single = ask(german).json()["detectedLanguage"]
    assert single["language"] == "de"
    assert 50 < single["confidence"] <= 100
    (found,) = ask([german]).json()["detectedLanguage"]
    assert found == single
    form = {"q": english, "source": "auto", "target": "de"}
    assert client.post("/translate", data=form).json()["detectedLanguage"]["language"] == "en"
    listed = ask([german, "", "12"]).json()
    assert len(listed["detectedLanguage"]) == 3


@pytest.mark.parametrize("form", ALL)
def test_detect(client: TestClient, form: Any) -> None:
    response = client.post("/detect", **form({"q": "Das ist ein ganz einfacher Satz."}))
    best, *others = response.json()
    assert set(best) == {"language", "confidence"}
    assert best["language"] == "de"
    assert 50 < best["confidence"] <= 100
    assert all(other["confidence"] <= best["confidence"] for other in others)


def test_a_text_without_letters_has_no_language(client: TestClient) -> None:
    found = client.post("/detect", json={"q": "12 + 3"}).json()
    assert found == [{"language": "en", "confidence": 0.0}]


def test_detect_takes_several_texts_as_one(client: TestClient) -> None:
    texts = ["12", "Das ist ein ganz einfacher Satz."]
    assert client.post("/detect", json={"q": texts}).json()[0]["language"] == "de"


def test_detect_reports_source_languages_for_a_word_and_any_language_when_sure(
    client: TestClient,
) -> None:
    read = {language["code"] for language in client.get("/languages").json()}
    assert detect("Danke")[0][0] not in read
    found = client.post("/detect", json={"q": "Danke"}).json()
    assert found[0]["language"] == "de"
    assert {each["language"] for each in found} <= read
    assert client.post("/detect", json={"q": "こんにちは"}).json()[0]["language"] == "ja"


def test_detect_refuses(client: TestClient) -> None:
    assert error(client.post("/detect", json={})) == "Invalid request: missing q parameter"
    error(client.get("/detect"), 405)
    error(client.post("/detect", json={"q": "x " * 10_001}), 413)


@pytest.mark.parametrize("form", ALL)
@pytest.mark.parametrize("path", ["/translate", "/detect"])
def test_keys_stand_in_the_body(form: Any, path: str) -> None:
    key = "one-of-the-keys"
    with served(settings=Settings(api_keys=SecretStr(key))) as (client, _):
        ask = lambda **fields: client.post(path, **form({**FIELDS, **fields}))  # noqa: E731
        assert ask(api_key=key).status_code == 200
        assert "an API key is needed" in error(ask(), 401)
        assert "an API key is needed" in error(ask(api_key=""), 401)
        assert "not known" in error(ask(api_key="another-key"), 403)
        assert client.get("/frontend/settings").json()["keyRequired"] is True


def test_frontend_settings(client: TestClient) -> None:
    settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == Settings().max_text_chars
    assert settings["keyRequired"] is False
    assert settings["filesTranslation"] is True
    assert settings["language"]["source"]["code"] == "auto"
    assert settings["language"]["target"] in [
        {"code": "de", "name": "German"},
        {"code": "en", "name": "English"},
    ]


def test_a_server_without_translation_models_has_settings_too() -> None:
    registry = Registry(Settings())
    registry.start([])
    with TestClient(create_app(registry, Settings())) as client:
        target = client.get("/frontend/settings").json()["language"]["target"]
        assert target == {"code": "en", "name": "English"}
        assert client.get("/v2/languages?type=target").json() == []
        refused = client.post("/translate", json=FIELDS)
        assert error(refused) == "en is not supported"
        assert "target must be one of []" in refused.json()["hint"]


def test_health_follows_readiness(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    with TestClient(create_app(Registry(Settings()), Settings())) as starting:
        assert error(starting.get("/health"), 503)


def test_spec_is_the_openapi_document(client: TestClient) -> None:
    assert client.get("/spec").text == document()


# What LibreTranslate's own tests of its API expect, word for word (its tests/test_api)


@pytest.mark.parametrize("form", ALL)
def test_their_translation(client: TestClient, form: Any) -> None:
    fields = {"q": "Hallo", "source": "de", "target": "en", "format": "text"}
    response = client.post("/translate", **form(fields))
    assert response.status_code == 200
    assert "translatedText" in response.json()
    response = client.post("/translate", **form({**fields, "target": "zz"}))
    assert (response.status_code, response.json()["error"]) == (400, "zz is not supported")
    del fields["q"]
    response = client.post("/translate", **form(fields))
    assert response.status_code == 400
    assert response.json()["error"] == "Invalid request: missing q parameter"


def test_their_batch(client: TestClient) -> None:
    body = {"q": ["Hallo", "Welt"], "source": "de", "target": "en", "format": "text"}
    response = client.post("/translate", json=body)
    assert response.status_code == 200
    assert isinstance(response.json()["translatedText"], list)


def test_their_detection_and_languages(client: TestClient) -> None:
    found = client.post("/detect", data={"q": "Hallo"})
    assert found.status_code == 200
    assert {"confidence", "language"} <= set(found.json()[0])
    missing = client.post("/detect", data={})
    assert missing.status_code == 400
    assert missing.json()["error"] == "Invalid request: missing q parameter"
    assert len(client.get("/languages").json()) >= 1
    assert client.post("/languages").status_code == 405


# Bodies as clients write them


@pytest.mark.parametrize("value", [None, "", "text"])
def test_no_format_is_text(client: TestClient, value: str | None) -> None:
    body = {**FIELDS, "q": "a <b>c</b>", "format": value}
    assert client.post("/translate", json=body).json()["translatedText"] == "a <b>c</b>"


@pytest.mark.parametrize(("value", "sentences"), [(1, 2), (True, 2), (0, 1), (False, 1)])
def test_numbers_say_whether_to_split(client: TestClient, value: object, sentences: int) -> None:
    body = {**FIELDS, "q": "Eins und zwei. Drei und vier.", "split_sentences": value}
    translation = client.post("/translate", json=body).json()["translations"][0]
    tokens = translation["hypotheses"][0]["tokens"]
    assert translation["text"] == "Eins und zwei. Drei und vier."
    assert len(translation["hypotheses"][0]["token_scores"]) == len(tokens) + sentences
    refused = client.post("/translate", json={**body, "split_sentences": 2})
    assert "split_sentences must be" in error(refused)


@pytest.mark.parametrize("field", ["split_sentences", "alignments", "stream"])
def test_a_boolean_may_be_a_number_or_a_text(client: TestClient, field: str) -> None:
    body = {**FIELDS, "q": "Eins und zwei. Drei und vier."}

    def answered(value: object) -> str:
        response = client.post("/translate", json={**body, field: value})
        assert response.status_code == 200, response.text
        if field == "stream":
            return response.headers["content-type"]
        return re.sub(r'"(queue|encode|decode)_ms":[^,]*|"batch_size":\d+', "", response.text)

    for true in (True, 1, "1", "true", "True"):
        assert answered(true) == answered(True)
    for false in (False, 0, "0", "false"):
        assert answered(false) == answered(False)
    refused = client.post("/translate", json={**body, field: "maybe"})
    assert f"{field} must be a valid boolean, got 'maybe'" in error(refused)


def test_null_is_what_is_left_out(client: TestClient) -> None:
    optional = (
        "model format split_sentences alternatives target_prefix timeout_s api_key alignments "
        "glossary required forbidden stream options"
    )
    body = {**FIELDS, "q": "Hallo", **dict.fromkeys(optional.split())}
    assert client.post("/translate", json=body).json()["translatedText"] == "Hallo"
    assert client.post("/detect", json={"q": "Hallo", "api_key": None}).status_code == 200
    for value in (None, ""):
        for name in ("source", "target"):
            refused = client.post("/translate", json={**body, name: value})
            assert error(refused) == f"Invalid request: missing {name} parameter"


@pytest.mark.parametrize("value", [2, 2.0, "2"])
def test_a_number_of_alternatives_may_be_a_text(client: TestClient, value: object) -> None:
    answer = client.post("/translate", json={**FIELDS, "q": "Hallo", "alternatives": value})
    assert len(answer.json()["alternatives"]) == 2
    for other in ("-1", "x", "", True, 1.5):
        refused = client.post("/translate", json={**FIELDS, "q": "Hallo", "alternatives": other})
        assert "alternatives must be" in error(refused)


def test_a_byte_order_mark_before_json(client: TestClient) -> None:
    body = b"\xef\xbb\xbf" + b'{"q": "Hallo", "source": "de", "target": "en"}'
    headers = {"Content-Type": "application/json"}
    assert client.post("/translate", content=body, headers=headers).status_code == 200
    assert "EOF" in error(client.post("/translate", content=body[:3], headers=headers))


def test_no_text_comes_twice_among_alternatives(client: TestClient) -> None:
    body = {**FIELDS, "alternatives": 7, "options": {"num_hypotheses": 8, "beam_size": 8}}
    answer = client.post("/translate", json=body).json()
    texts = [hypothesis["text"] for hypothesis in answer["translations"][0]["hypotheses"]]
    assert len(texts) == len(set(texts)) > 1
    assert answer["alternatives"] == texts[1:]
    assert answer["translatedText"] == texts[0]
