"""A dialect plugs into the server by the list of dialects alone; errors carry their parameter."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient

from serving.errors import RequestError, ServingError
from serving.server.access.gate import KeyRule
from serving.server.api.dialect import Dialect, DialectRoute
from serving.server.app import create_app
from serving.server.dialects import DIALECTS
from serving.server.dialects.deepl.routes import DEEPL
from serving.server.dialects.deeplx.routes import DEEPLX
from serving.server.dialects.google.routes import GOOGLE
from serving.server.dialects.libretranslate.routes import LIBRETRANSLATE
from serving.server.dialects.mtran.routes import MTRAN
from serving.server.dialects.native.routes import NATIVE
from serving.server.dialects.openai.routes import OPENAI
from serving.server.dialects.tei.routes import TEI
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_json
from serving.server.http.settings import Settings
from serving.server.http.wire import Wire, json_response
from serving.server.models.registry import Registry
from serving.server.openapi import document
from serving.server.work.backend import Backend
from serving.server.work.translating.job import TranslationJob
from serving.server.work.translating.jobs import Jobs
from tests.unit.serving.echo import EchoTranslator

KEY = "first-key-1234"
UNAUTHORIZED = {"no": "unauthorized"}


class ShoutRequest(Wire):
    """A text to shout."""

    word: str
    secret: str = ""


class ShoutAnswer(Wire):
    """What was shouted."""

    shouted: str


class ShoutError(Wire):
    """Why nothing was shouted."""

    no: str


class _ToyEndpoints:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._jobs = Jobs(backend.registry, backend.settings, backend.gatekeeper)

    async def shout(self, request: Request, context: RequestContext) -> Response:
        body = await read_json(request, ShoutRequest, self._backend.settings.max_body_bytes)
        await self._backend.gatekeeper.admit(context, body.secret or None)
        return await self._translated(body.word, request, context)

    async def shout_unasked(self, request: Request, context: RequestContext) -> Response:
        return await self._translated("unasked", request, context)

    async def loudness(self, request: Request, _: RequestContext) -> Response:
        return json_response([ShoutAnswer(shouted=request.path_params["unit"])])

    async def _translated(self, word: str, request: Request, context: RequestContext) -> Response:
        job = TranslationJob(texts=[word], source="de", target="en")
        result = await self._jobs.translate(job, context, request.receive)
        return json_response(ShoutAnswer(shouted=result.translations[0].text.upper()))


def _toy_error(error: ServingError) -> Response:
    return json_response(ShoutError(no=error.code), status=418)


TOY = Dialect(
    endpoints=_ToyEndpoints,
    routes=(
        DialectRoute(
            "/toy/shout",
            _ToyEndpoints.shout,
            "toy_shout",
            "Shout a word",
            ShoutAnswer,
            methods=("POST",),
            request=ShoutRequest,
            form=("word",),
            errors=(400, 418),
            key=KeyRule.HEAD_OR_BODY,
        ),
        DialectRoute(
            "/toy/unasked",
            _ToyEndpoints.shout_unasked,
            "toy_unasked",
            "Shout before anybody has asked",
            ShoutAnswer,
            methods=("POST",),
            key=KeyRule.HEAD_OR_BODY,
        ),
        DialectRoute(
            "/toy/loudness/{unit}",
            _ToyEndpoints.loudness,
            "toy_loudness",
            "How loud it was",
            list[ShoutAnswer],
            methods=("GET", "POST"),
            query={"of": ("first", "last"), "note": ()},
            key=KeyRule.NONE,
        ),
    ),
    error=ShoutError,
    render_error=_toy_error,
    reasons={418: "Nothing is shouted"},
    key_schemes=("whisper",),
)
"""All that a new dialect brings along."""


@contextmanager
def serving(*dialects: Dialect[Any], settings: Settings | None = None) -> Iterator[TestClient]:
    settings = settings or Settings()
    registry = Registry(settings)
    registry.start([EchoTranslator()])
    try:
        with TestClient(create_app(registry, settings, dialects)) as client:
            yield client
    finally:
        registry.close()


def test_a_dialect_in_the_list_is_served_and_described() -> None:
    with serving(*DIALECTS, TOY) as client:
        answer = client.post("/toy/shout", json={"word": "hallo"})
        assert (answer.status_code, answer.json()) == (200, {"shouted": "HALLO"})
        described = client.get("/openapi.json").json()
        assert described["paths"]["/toy/shout"]["post"]["operationId"] == "toy_shout"
        assert {"ShoutRequest", "ShoutAnswer", "ShoutError"} <= set(
            described["components"]["schemas"]
        )


def test_what_a_route_says_of_itself_is_in_the_document() -> None:
    described = json.loads(document([TOY]))
    assert set(described["components"]["schemas"]) == {"ShoutRequest", "ShoutAnswer", "ShoutError"}
    shout = described["paths"]["/toy/shout"]["post"]
    assert shout["summary"] == "Shout a word"
    assert list(shout["responses"]) == ["200", "400", "418"]
    refused = shout["responses"]["418"]
    assert refused["description"] == "Nothing is shouted"
    schema = refused["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/ShoutError"}
    form = shout["requestBody"]["content"]["application/x-www-form-urlencoded"]["schema"]
    assert (list(form["properties"]), form["required"]) == (["word"], ["word"])
    loudness = described["paths"]["/toy/loudness/{unit}"]
    assert {method: found["operationId"] for method, found in loudness.items()} == {
        "get": "toy_loudness_get",
        "post": "toy_loudness_post",
    }
    assert [(p["name"], p["in"], p["required"]) for p in loudness["get"]["parameters"]] == [
        ("unit", "path", True),
        ("of", "query", False),
        ("note", "query", False),
    ]
    answer = loudness["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert (answer["type"], answer["items"]) == (
        "array",
        {"$ref": "#/components/schemas/ShoutAnswer"},
    )


@pytest.mark.parametrize(
    ("dialect", "beginnings"),
    [
        (TOY, {"/toy/"}),
        (DEEPL, {"/v2/", "/v3/"}),
        (OPENAI, {"/v1/", "/tokenizer_info", "/tokenize", "/detokenize"}),
        (GOOGLE, {"/language/"}),
        (DEEPLX, {"/v1/translate"}),
        (MTRAN, {"/mtran/", "/translate/", "/imme", "/kiss", "/hcfy", "/version"}),
        (TEI, {"/embed", "/similarity", "/rerank", "/v1/rerank", "/predict"}),
    ],
)
def test_the_paths_whose_errors_are_a_dialects_follow_from_its_routes(
    dialect: Dialect[Any], beginnings: set[str]
) -> None:
    assert set(dialect.error_paths) == beginnings


def test_a_dialect_that_is_not_in_the_list_is_not_there() -> None:
    with serving(*DIALECTS) as client:
        missing = client.post("/toy/shout", json={"word": "hallo"})
        assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
        assert "/toy/shout" not in client.get("/openapi.json").json()["paths"]
    with serving(TOY) as client:
        assert client.post("/toy/shout", json={"word": "hallo"}).status_code == 200
        assert client.get("/livez").status_code == 404
    assert "/livez" not in json.loads(document([TOY]))["paths"]


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "/toy/shout", {}, "invalid_request"),
        ("POST", "/toy/shout", {"word": "x" * 30_000}, "too_long"),
        ("GET", "/toy/shout", None, "method_not_allowed"),
        ("GET", "/toy/nowhere", None, "not_found"),
    ],
)
def test_every_error_below_a_dialects_paths_has_its_shape(
    method: str, path: str, body: object, code: str
) -> None:
    with serving(*DIALECTS, TOY) as client:
        refused = client.request(method, path, json=body)
        assert (refused.status_code, refused.json()) == (418, {"no": code})
        other = client.get("/nowhere")
        assert (other.status_code, set(other.json())) == (404, {"error", "code"})


def test_the_gate_asks_the_dialect_where_its_key_may_stand() -> None:
    settings = Settings(api_keys=KEY)
    word = {"word": "hallo"}
    with serving(*DIALECTS, TOY, settings=settings) as client:
        assert client.post("/toy/shout", json={**word, "secret": KEY}).status_code == 200
        assert client.post("/toy/shout", json=word, headers={"X-API-Key": KEY}).status_code == 200
        for body in (word, {**word, "secret": "another-key"}):
            assert client.post("/toy/shout", json=body).json() == UNAUTHORIZED
        whispered = {"Authorization": f"Whisper {KEY}"}
        assert client.post("/toy/shout", json=word, headers=whispered).status_code == 200
        assert client.get("/toy/loudness/dB").json() == [{"shouted": "dB"}]
    routes = tuple(dataclasses.replace(route, key=KeyRule.HEAD) for route in TOY.routes)
    with serving(dataclasses.replace(TOY, routes=routes), settings=settings) as client:
        assert client.post("/toy/shout", json={**word, "secret": KEY}).json() == UNAUTHORIZED
        assert client.get("/toy/loudness/dB").json() == UNAUTHORIZED
    with serving(*DIALECTS, settings=settings) as client:
        assert client.get("/models", headers=whispered).status_code == 401


def test_a_body_tells_whose_request_is_meant_where_a_path_is_shared() -> None:
    shout, *others = TOY.routes
    shared = dataclasses.replace(shout, shares={"/translate": frozenset({"word", "secret"})})
    toy = dataclasses.replace(TOY, routes=(shared, *others))
    with serving(*DIALECTS, toy, settings=Settings(api_keys=KEY)) as client:

        def ask(body: object, **headers: str) -> Any:
            return client.post("/translate", json=body, headers=headers).json()

        assert ask({"word": "hallo", "secret": KEY}) == {"shouted": "HALLO"}
        assert ask({"word": "hallo", "secret": "another-key"}) == UNAUTHORIZED
        assert ask({"word": 5, "secret": KEY}) == {"no": "invalid_request"}
        native = {**GOOD_NATIVE, "api_key": KEY}
        assert ask(native)["translatedText"] == "Hallo"
        # A word that is no field of the body tells nothing.
        assert ask({**native, "q": '"word", "secret"'})["translatedText"] == '"word", "secret"'
        assert ask({"word": "hallo"})["error"] == "Invalid request: missing q parameter"
        told = client.get("/metrics").text
        assert 'route="/toy/shout",status="200"' in told


def test_a_get_has_its_form_in_the_query() -> None:
    shout, *_ = TOY.routes
    asked = dataclasses.replace(shout, methods=("GET", "POST"))
    toy = dataclasses.replace(TOY, routes=(asked,))
    described = json.loads(document([toy]))["paths"]["/toy/shout"]
    assert [(p["name"], p["in"]) for p in described["get"]["parameters"]] == [("word", "query")]
    assert "requestBody" not in described["get"]
    assert "parameters" not in described["post"]
    assert "requestBody" in described["post"]


def test_an_endpoint_that_lets_nobody_in_decodes_nothing() -> None:
    with serving(*DIALECTS, TOY, settings=Settings(api_keys=KEY)) as client:
        assert client.post("/toy/unasked").json() == UNAUTHORIZED
        assert 'macaron_decoded_total{model="echo-de-en"} 0.0' in client.get("/metrics").text


GOOD_NATIVE = {"q": "Hallo", "source": "de", "target": "en"}
GOOD_MTRAN = {"texts": ["Hallo"], "from": "de", "to": "en"}
GOOD_DEEPL = {"text": "Hallo", "target_lang": "en"}


@pytest.mark.parametrize(
    ("dialect", "path", "body", "parameter"),
    [
        (NATIVE, "/translate", {"source": "de", "target": "en"}, "q"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "q": 5}, "q"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "q": "x" * 30_000}, "q"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "q": ["a", "\0"]}, "q"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "q": "a, " * 300, "split_sentences": False}, "q"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "q": ["a"] * 200}, "q"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "q": "<" * 60_000, "format": "html"}, "q"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "source": "xx"}, "source"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "target": "xx"}, "target"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "model": "none"}, "model"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "timeout_s": 999}, "timeout_s"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "alternatives": 99}, "alternatives"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "target_prefix": ["a"]}, "target_prefix"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "target_prefix": "a" * 300}, "target_prefix"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "target_prefix": "x" * 30_000}, "target_prefix"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "target_prefix": "\0"}, "target_prefix"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "options": {"beam": 1}}, "beam"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "options": {"beam_size": 17}}, "beam_size"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "options": {"loop_guard": 1}}, "loop_guard"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "forbidden": [" "]}, "forbidden"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "required": ["x" * 200]}, "required"),
        (NATIVE, "/translate", {**GOOD_NATIVE, "q": "Eins. Zwei.", "required": ["x"]}, "required"),
        (LIBRETRANSLATE, "/detect", {}, "q"),
        (LIBRETRANSLATE, "/detect", {"q": "x" * 30_000}, "q"),
        (DEEPL, "/v2/translate", {"text": "a"}, "target_lang"),
        (DEEPL, "/v2/translate", {**GOOD_DEEPL, "text": ["a", "x" * 30_000]}, "text"),
        (DEEPL, "/v2/translate", {**GOOD_DEEPL, "target_lang": "XX"}, "target_lang"),
        (DEEPL, "/v2/translate", {**GOOD_DEEPL, "source_lang": "XX"}, "source_lang"),
        (DEEPL, "/v2/translate", {**GOOD_DEEPL, "glossary_id": "1"}, "source_lang"),
        (DEEPL, "/v2/translate", {**GOOD_DEEPL, "formality": "more"}, "formality"),
        (DEEPL, "/v2/translate", {**GOOD_DEEPL, "formality": "most"}, "formality"),
        (GOOGLE, "/language/translate/v2", {**GOOD_NATIVE, "q": ["a", "\0"]}, "q"),
        (GOOGLE, "/language/translate/v2", {**GOOD_NATIVE, "target": "xx"}, "target"),
        (GOOGLE, "/language/translate/v2", {**GOOD_NATIVE, "cid": "a"}, "cid"),
        (GOOGLE, "/language/translate/v2/detect", {}, "q"),
        (DEEPLX, "/v1/translate", {**GOOD_DEEPL, "target_lang": "XX"}, "target_lang"),
        (DEEPLX, "/v1/translate", {**GOOD_DEEPL, "source_lang": "XX"}, "source_lang"),
        (MTRAN, "/translate/batch", {**GOOD_MTRAN, "texts": ["a", "\0"]}, "texts"),
        (MTRAN, "/translate/batch", {**GOOD_MTRAN, "to": "xx"}, "to"),
        (MTRAN, "/hcfy", {"text": "Hallo", "destination": ["xx"]}, "destination"),
        (TOY, "/toy/shout", {}, "word"),
        (OPENAI, "/v1/completions", {"prompt": "a"}, "model"),
        (OPENAI, "/v1/completions", {"model": "none", "prompt": "a"}, "model"),
        (OPENAI, "/v1/completions", {"model": "none", "prompt": 5}, "prompt"),
        (OPENAI, "/v1/completions", {"model": "none", "max_tokens": -1}, "max_tokens"),
        (OPENAI, "/tokenize", {}, "prompt"),
        (OPENAI, "/detokenize", {"tokens": "a"}, "tokens"),
    ],
)
def test_errors_carry_the_parameter_that_is_at_fault(
    dialect: Dialect[Any], path: str, body: Mapping[str, object], parameter: str
) -> None:
    refused: list[ServingError] = []

    def render(error: ServingError) -> Response:
        refused.append(error)
        return dialect.render_error(error)

    watched = dataclasses.replace(dialect, render_error=render)
    with serving(watched) as client:
        answer = client.post(path, json=body)
    assert answer.status_code >= 400
    (error,) = refused
    assert error.parameter == parameter
    if dialect is OPENAI:  # the only one whose body has a place for it
        assert answer.json()["error"]["param"] == parameter


def test_an_error_that_is_no_parameters_fault_names_none() -> None:
    assert RequestError("the body must be a JSON object").parameter is None
    assert ServingError("failed").parameter is None


def test_an_error_may_name_its_parameter_as_a_dialect_does() -> None:
    error = RequestError("xx is not supported", parameter="target")
    error.hint = "there are some"
    named = error.naming({"target": "to"})
    assert (str(named), named.parameter, named.hint) == (
        "to: xx is not supported",
        "to",
        "there are some",
    )
    assert error.naming({"source": "from"}) is error


def test_an_error_of_one_text_keeps_its_parameter() -> None:
    error = RequestError("text is bad", parameter="text")
    error.index = 3
    within = error.within("q")
    assert (str(within), within.parameter) == ("q[3]: text is bad", "text")
    assert within.renamed({"text": "q"}).parameter == "q"
    assert within.renamed({"other": "x"}).parameter == "q"
