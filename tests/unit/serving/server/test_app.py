"""Routes, bodies and errors of the ASGI app, without a model's help."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import Message

from serving.errors import SettingsError
from serving.runtime.session import DeviceUse
from serving.server.app import create_app
from serving.server.http.settings import ROOT, Settings, variable
from serving.server.models.registry import Registry
from tests.unit.serving.echo import EchoTranslator, all_routes, send_in_parts, served

JSON = {"Content-Type": "application/json"}
GOOD = {"q": "Hallo", "source": "de", "target": "en"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    translators = [EchoTranslator(), EchoTranslator("echo-en-xx", "en", "xx")]
    with served(*translators, settings=Settings(max_body_bytes=4096)) as (client, _):
        yield client


def test_languages_have_librettanslates_shape_and_attribution(client: TestClient) -> None:
    languages = client.get("/languages").json()
    assert [(entry["code"], entry["name"], entry["targets"]) for entry in languages] == [
        ("de", "German", ["en", "xx"]),  # by way of English
        ("en", "English", ["xx"]),
        ("xx", "xx", []),  # can be a target only, and has no name here
    ]
    assert languages[0]["models"] == [
        {"name": "echo-de-en", "targets": ["en"], "attribution": "made up"}
    ]


def test_models(client: TestClient) -> None:
    first, second = client.get("/models").json()["models"]
    assert (first["name"], second["name"]) == ("echo-de-en", "echo-en-xx")
    assert first["task"] == "translate"
    assert first["defaults"]["beam_size"] == 4
    assert first["num_parameters"] == 1000


def test_limits_lists_every_limit_and_no_path(client: TestClient) -> None:
    limits = {limit["name"]: limit for limit in client.get("/limits").json()["limits"]}
    no_limits = {"bundles", "preset", "decode_in", "api_keys", "api_keys_file", "cors_origins"}
    no_limits |= {"log_level", "log_format", "root_path", "zero_shot", "load", "store", "documents"}
    no_limits |= {"admin_key", "files", "webhook_hosts", "model_imports"}
    assert set(limits) == set(Settings.model_fields) - no_limits
    assert limits["max_body_bytes"]["value"] == 4096
    assert limits["max_batch_rows"]["value"] is None
    assert all(limit["variable"] == variable(name) for name, limit in limits.items())
    assert all(limit["description"] for limit in limits.values())


@pytest.mark.parametrize(
    ("device", "given", "wanted"),
    [
        ("cpu", {}, (32, 2048)),
        ("cuda", {}, (256, 16_384)),
        ("tensorrt", {}, (32, 2048)),
        ("cuda", {"max_batch_rows": 8}, (8, 16_384)),
        ("cpu", {"max_batch_rows": 64, "max_batch_tokens": 4096}, (64, 4096)),
    ],
)
def test_batches_are_as_large_as_a_model_s_device_takes(
    device: str, given: dict[str, int], wanted: tuple[int, int]
) -> None:
    settings = Settings(**given)
    registry = Registry(settings)
    translator = EchoTranslator()
    translator.device = DeviceUse(device, "a test")
    registry.start([translator])
    with TestClient(create_app(registry, settings)) as client:
        (batch,) = client.get("/limits").json()["batches"]
    assert (batch["model"], batch["device"]) == ("echo-de-en", device)
    assert (batch["max_rows"], batch["max_tokens"]) == wanted
    assert batch["max_cache_bytes"] == settings.max_cache_bytes


def test_live_and_ready() -> None:
    registry = Registry(Settings())
    with TestClient(create_app(registry, Settings())) as client:
        assert client.get("/livez").json() == {"status": "alive"}
        for path in ("/readyz", "/languages", "/models"):
            response = client.get(path)
            assert response.status_code == 503
            assert response.json()["code"] == "not_ready"
            assert response.headers["Retry-After"]
        assert client.post("/translate", json=GOOD).status_code == 503
        registry.start([EchoTranslator()])
        assert client.get("/readyz").json() == {"status": "ready"}
        registry.drain()
        assert client.get("/readyz").status_code == 503
        assert client.post("/translate", json=GOOD).status_code == 200
        registry.close()


def test_the_page_needs_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "//" not in page.text
    assert {"web/app.js", "web/style.css"} <= set(re.findall('(?:src|href)="([^"]+)', page.text))
    for file in (ROOT / "serving/web").iterdir():
        response = client.get(f"/web/{file.name}")
        assert response.status_code == 200
        assert "http" not in response.text
        assert response.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/web/../service.py", 404),
        ("GET", "/web/none.js", 404),
        ("GET", "/web/", 404),
        ("POST", "/translate/", 404),
        ("GET", "/%00%ff", 404),
        ("GET", "/translate", 405),
        ("DELETE", "/translate", 405),
        ("POST", "/languages", 405),
        ("POST", "/", 405),
        ("BREW", "/translate", 405),
    ],
)
def test_no_such_route_is_json(client: TestClient, method: str, path: str, status: int) -> None:
    response = client.request(method, path)
    assert response.status_code == status
    assert set(response.json()) == {"error", "code"}
    assert status != 405 or response.headers["allow"]


def nested(depth: int) -> bytes:
    return b'{"q": ' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "EOF"),
        (b"{", "EOF"),
        (b"q=Hallo", "expected value"),
        (b"[1]", "must be a JSON object, got a list"),
        (b"null", "must be a JSON object, got null"),
        (b'{"q": "a"} x', "trailing"),
        (b'{"q": NaN}', "expected value"),
        (b'{"q": -Infinity}', "invalid number"),
        (b'{"other": Infinity}', "expected value"),
        (b'{"q": "\xff"}', "unicode"),
        (b'{"q": "\xed\xa0\x80"}', "unicode"),
        (rb'{"q": "\ud800"}', "hex escape"),
        (rb'{"q": "\udc00 end"}', "surrogate"),
        (b'{"q": "a\nb"}', "control character"),
        (nested(2000), "recursion limit"),
        (nested(150), "q"),
        (json.dumps(GOOD)[:-1].encode() + b', "timeout_s": ' + b"9" * 3900 + b"}", "timeout_s"),
        (json.dumps(GOOD)[:-1].encode() + b', "timeout_s": 1e999}', "timeout_s"),
        (json.dumps(GOOD)[:-1].encode() + b', "alternatives": ' + b"9" * 3900 + b"}", "alternat"),
        (
            json.dumps(GOOD)[:-1].encode() + b', "options": {"beam_size": ' + b"9" * 3900 + b"}}",
            "beam_size",
        ),
        (
            json.dumps(GOOD)[:-1].encode() + b', "options": {"length_penalty": 1e999}}',
            "length_penalty",
        ),
    ],
)
def test_bad_bodies(client: TestClient, body: bytes, message: str) -> None:
    response = client.post("/translate", content=body, headers=JSON)
    assert response.status_code == 400, response.text
    assert message in response.json()["error"]
    assert len(response.content) < 1000


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
def test_other_media_types(client: TestClient, headers: dict[str, str]) -> None:
    response = client.post("/translate", content=json.dumps(GOOD).encode(), headers=headers)
    assert response.status_code == 415
    assert response.json()["code"] == "unsupported_media_type"


def test_media_type_is_read_as_the_standard_says(client: TestClient) -> None:
    for value in ("Application/JSON", 'application/json;charset="UTF-8"', "application/json ; a=b"):
        headers = {"Content-Type": value}
        response = client.post("/translate", content=json.dumps(GOOD).encode(), headers=headers)
        assert response.status_code == 200


def test_a_body_over_the_limit(client: TestClient) -> None:
    body = json.dumps({**GOOD, "other": "x" * 5000}).encode()
    response = client.post("/translate", content=body, headers=JSON)
    assert response.status_code == 413
    assert "4096 bytes (MACARON_MAX_BODY_BYTES)" in response.json()["error"]
    assert client.post("/translate", json=GOOD).status_code == 200


def test_a_lying_content_length_does_not_help(client: TestClient) -> None:
    headers = {**JSON, "Content-Length": "10"}
    response = client.post("/translate", content=b" " * 5000, headers=headers)
    assert response.status_code == 413
    headers["Content-Length"] = "9" * 40
    assert client.post("/translate", content=b"{}", headers=headers).status_code == 413


@pytest.mark.parametrize(
    ("parts", "declared", "read"),
    [
        (3, None, 3),  # the rest of a body that is a little too large is read before the answer
        (1000, None, 259),  # but not for ever
        (1000, 65_536_000, 0),
    ],
)
def test_a_refused_body_is_read_to_its_end_within_reason(
    client: TestClient, parts: int, declared: int | None, read: int
) -> None:
    headers = JSON | ({"Content-Length": str(declared)} if declared else {})
    answer = send_in_parts(client.app, "POST", "/translate", headers, b" " * 65536, parts)
    assert answer.status == 413
    assert answer.parts_read == pytest.approx(read, abs=2)


# Paths as clients and proxies write them


@pytest.mark.parametrize(
    "path",
    [
        "/translate",
        "//translate",
        "///translate",
        "http://127.0.0.1:3000/translate",
        "HTTP://h//translate",
    ],
)
def test_paths_are_read_as_they_are_meant(client: TestClient, path: str) -> None:
    assert asyncio.run(status_of(client.app, path)) == 200


@pytest.mark.parametrize(("path", "status"), [("", 404), ("/", 404), ("/translated", 404)])
def test_other_paths_are_not_taken_for_routes(client: TestClient, path: str, status: int) -> None:
    assert asyncio.run(status_of(client.app, "/x" + path)) == status


def test_a_prefix_of_a_proxy_may_stay_on_the_path() -> None:
    with served(settings=Settings(root_path="/macaron")) as (client, _):
        assert client.post("/macaron/translate", json=GOOD).status_code == 200
        assert client.post("/translate", json=GOOD).status_code == 200
        assert client.get("/macaron").status_code == 200
        assert client.get("/macarons/languages").status_code == 404
        assert client.get("/macaron/openapi.json").json()["servers"] == [{"url": "/macaron"}]


@pytest.mark.parametrize("path", ["macaron", "/macaron/", "/a b", "/a?b"])
def test_a_prefix_is_a_path(path: str) -> None:
    with pytest.raises(SettingsError, match="MACARON_ROOT_PATH"):
        Settings.from_environment({"MACARON_ROOT_PATH": path})


async def status_of(app: Any, path: str) -> int:
    """What the app answers to a POST, called as a server calls it, with any path at all."""
    sent: list[Message] = []
    body = json.dumps(GOOD).encode()
    received: list[bool] = []

    async def receive() -> Message:
        if received:
            await asyncio.Event().wait()  # the client stays
        received.append(True)
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 3000),
    }
    await app(scope, receive, send)
    return int(sent[0]["status"])


# Pages of other origins


@pytest.mark.parametrize(("origins", "allowed"), [("*", True), ("https://one.example", False)])
def test_a_page_may_ask_a_private_network_where_every_page_may_ask(
    origins: str, *, allowed: bool
) -> None:
    with served(settings=Settings(cors_origins=origins)) as (client, _):
        asked = {
            "Origin": "https://one.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Private-Network": "true",
        }
        answer = client.options("/translate", headers=asked)
        said = answer.headers.get("Access-Control-Allow-Private-Network")
        assert (said == "true") == allowed


def test_get_with_a_json_type_and_no_body(client: TestClient) -> None:
    answer = client.get("/v2/languages?type=target", headers=JSON)
    assert [language["language"] for language in answer.json()] == ["EN-GB", "EN-US", "XX"]


def test_no_fixed_path_is_also_one_with_parameters() -> None:
    # Fixed paths are looked up first, whatever the order of the dialects.
    routes = all_routes(create_app(Registry(Settings()), Settings()))
    fixed = [route for route in routes if isinstance(route, Route) and not route.param_convertors]
    others = [route for route in routes if isinstance(route, Route) and route.param_convertors]
    assert len(fixed) > 60
    assert len(others) > 10
    for route in fixed:
        same = [other for other in others if other.path_regex.match(route.path)]
        assert not [other for other in same if (route.methods or set()) & (other.methods or set())]


@pytest.mark.parametrize("path", ["/translate%0A", "/translate/", "/Translate"])
def test_a_path_is_fixed_to_the_letter(client: TestClient, path: str) -> None:
    assert client.post(path, json=GOOD).status_code == 404
