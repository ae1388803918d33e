"""Administration over HTTP: keys, usage, models; and what keys of the store may do."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from serving.errors import SettingsError, StoreUnavailableError
from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from serving.translation.ticket import Request
from tests.days import today
from tests.stores import fresh_database
from tests.unit.serving.echo import EchoTranslator, served, several, wait_until

ADMIN_KEY = "an-admin-key-of-the-tests"
ADMIN = {"Authorization": f"Bearer {ADMIN_KEY}"}
GOOD = {"q": "Hallo", "source": "de", "target": "en"}
SPAN = {"from": "2026-11-01", "to": "2026-11-28"}


@pytest.fixture(autouse=True)
def day() -> str:
    """The day that all requests of a test are counted on."""
    return today()


def with_store(folder: Path, **fields: Any) -> Settings:
    """Settings of a server with a store and an admin key."""
    return Settings(
        store=SecretStr(f"sqlite:///{folder / 'store.db'}"),
        admin_key=SecretStr(ADMIN_KEY),
        **fields,
    )


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    settings = with_store(tmp_path, api_keys=SecretStr("a-key-of-the-settings"), max_keys=20)
    with served(settings=settings) as (client, _):
        yield client


def made(client: TestClient, **fields: Any) -> tuple[str, dict[str, str]]:
    """The id of a new key, and the head of requests that have it."""
    response = client.post("/admin/keys", json=fields, headers=ADMIN)
    assert response.status_code == 201, response.text
    return response.json()["id"], {"X-API-Key": response.json()["key"]}


def asked(client: TestClient, headers: dict[str, str], text: str = "Hallo") -> int:
    return client.post("/translate", json={**GOOD, "q": text}, headers=headers).status_code


def this_month() -> dict[str, str]:
    """The span of a query from the first of this month to this day."""
    day = today(0)
    return {"from": day[:8] + "01", "to": day}


def used(client: TestClient, **query: str) -> list[tuple[str, str, int, int]]:
    """Key, task, requests and characters of each row of this month."""
    report = client.get("/admin/usage", params={**this_month(), **query}, headers=ADMIN).json()
    return [
        (row["key"], row["task"], row["requests"], row["characters"]) for row in report["usage"]
    ]


def test_a_key_is_made_used_changed_and_deleted(client: TestClient, day: str) -> None:
    id, key = made(client, label="Ours", characters_a_month=1000)
    assert asked(client, key) == 200
    known = client.get(f"/admin/keys/{id}", headers=ADMIN).json()
    assert known == client.get("/admin/keys", headers=ADMIN).json()["keys"][0]
    assert key["X-API-Key"] not in str(known)
    assert (known["label"], known["disabled"], known["characters_a_month"]) == ("Ours", None, 1000)

    def patch(**fields: Any) -> Any:
        return client.patch(f"/admin/keys/{id}", json=fields, headers=ADMIN).json()

    assert patch(label="Theirs")["characters_a_month"] == 1000
    assert patch(characters_a_month=None)["characters_a_month"] is None
    disabled = patch(disabled=True)
    assert disabled["disabled"].startswith(day)
    assert patch(disabled=True) == disabled
    assert asked(client, key) == 401
    assert patch(disabled=False)["disabled"] is None
    assert asked(client, key) == 200
    assert client.delete(f"/admin/keys/{id}", headers=ADMIN).status_code == 204
    assert client.delete(f"/admin/keys/{id}", headers=ADMIN).status_code == 404
    assert asked(client, key) == 401
    assert used(client) == [(id, "translate", 2, 10)]
    acts = client.get("/admin/audit", headers=ADMIN).json()["acts"]
    assert [act["act"] for act in acts] == ["delete_key", *["change_key"] * 5, "create_key"]
    assert client.get("/admin/keys/nobody", headers=ADMIN).json()["code"] == "unknown_key"


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"label": "\0"}, 400, "label"),
        ({"label": "\ud800"}, 400, "JSON"),
        ({"label": "x" * 201}, 413, "at most 200 characters (MACARON_MAX_LABEL_CHARS)"),
        ({"characters_a_month": -1}, 400, "characters_a_month"),
        ({"characters_a_month": 2**63}, 400, "characters_a_month"),
        ({"requests_a_minute": 0}, 400, "requests_a_minute"),
        ({"label": 7}, 400, "label"),
    ],
)
def test_what_cannot_be_kept_is_refused(
    client: TestClient, fields: dict[str, Any], status: int, message: str
) -> None:
    id, _ = made(client, label="Ours")
    for method, path in (("POST", "/admin/keys"), ("PATCH", f"/admin/keys/{id}")):
        headers = {**ADMIN, "Content-Type": "application/json"}
        response = client.request(method, path, content=json.dumps(fields), headers=headers)
        assert response.status_code == status, response.text
        assert message in response.json()["error"]
    assert len(client.get("/admin/keys", headers=ADMIN).json()["keys"]) == 1


def test_sql_in_names_is_a_name(client: TestClient) -> None:
    nasty = ["'; DROP TABLE api_keys; --", "' OR '1'='1", '"; DELETE FROM usage'] * 5
    for label in nasty:
        made(client, label=label)
    page = client.get("/admin/keys", params={"limit": 7}, headers=ADMIN).json()
    rest = client.get("/admin/keys", params={"after": page["next"]}, headers=ADMIN).json()
    assert [key["label"] for key in page["keys"] + rest["keys"]] == nasty
    assert rest["next"] is None
    for text in nasty:
        assert client.get(f"/admin/keys/{text}", headers=ADMIN).status_code == 404
        assert used(client, key=text) == []


def test_only_the_admin_key_opens_administration(client: TestClient) -> None:
    _, key = made(client)
    paths = ("/admin/keys", "/admin/audit", "/admin/models", "/v2/admin/developer-keys")
    for path in paths:
        assert client.get(path).status_code in (401, 403), path
        refused = client.get(path, headers=key)
        assert refused.status_code in (401, 403), path
        assert "not the admin key" in refused.text
    # It opens nothing else.
    assert client.get("/models", headers=ADMIN).status_code == 401


def test_the_admin_key_cannot_be_guessed(client: TestClient) -> None:
    statuses = [
        client.get("/admin/keys", headers={"X-API-Key": f"guess-{n:020}"}).status_code
        for n in range(30)
    ]
    assert statuses == [401] * 10 + [429] * 20
    refused = client.get("/admin/keys", headers=ADMIN)  # even the right one, from this address
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) <= 6
    assert asked(client, {"X-API-Key": "a-key-of-the-settings"}) == 200


def test_unknown_keys_are_looked_up_so_often_and_known_ones_always(client: TestClient) -> None:
    _, key = made(client)
    assert asked(client, key) == 200
    statuses = [asked(client, {"X-API-Key": f"guess-{n:040}"}) for n in range(80)]
    assert statuses[:60] == [401] * 60
    assert set(statuses[62:]) == {429}
    assert asked(client, key) == 200
    assert asked(client, {"X-API-Key": "a-key-of-the-settings"}) == 200


def test_without_an_admin_key_nobody_administers() -> None:
    with served() as (client, registry):
        for path in ("/admin/keys", "/admin/models", "/v2/admin/developer-keys"):
            refused = client.get(path, headers=ADMIN)
            assert refused.status_code == 404
            assert "MACARON_ADMIN_KEY" in refused.text
        assert client.post("/admin/drain", headers=ADMIN).status_code == 404
        assert registry.ready


def test_without_a_store_models_are_administered_and_keys_are_not() -> None:
    with served(settings=Settings(admin_key=SecretStr(ADMIN_KEY))) as (client, registry):
        assert asked(client, {}) == 200  # as ever: nobody has a key
        refused = client.get("/admin/keys", headers=ADMIN)
        assert (refused.status_code, refused.json()["code"]) == (501, "no_store")
        assert "MACARON_STORE" in refused.json()["error"]
        (model,) = client.get("/admin/models", headers=ADMIN).json()["models"]
        assert (model["name"], model["loaded"]) == ("echo-de-en", True)
        assert client.post("/admin/drain", headers=ADMIN).json() == {"status": "draining"}
        assert client.get("/readyz").status_code == 503
        assert asked(client, {}) == 200
        assert not registry.ready


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"admin_key": "short"}, "MACARON_ADMIN_KEY must have at least 16 characters, got 5"),
        ({"admin_key": ADMIN_KEY, "api_keys": ADMIN_KEY}, "must be a key of its own"),
    ],
)
def test_an_admin_key_that_cannot_be_used_is_refused(fields: dict[str, str], message: str) -> None:
    settings = Settings(**{name: SecretStr(value) for name, value in fields.items()})  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=message):
        create_app(Registry(settings), settings)


def test_the_month_of_a_key_has_a_limit_in_every_dialect(tmp_path: Path) -> None:
    with served(settings=with_store(tmp_path, character_limit=8)) as (client, _):
        id, key = made(client, characters_a_month=12)
        _, usual = made(client)
        deepl = {"text": ["Hallo"], "source_lang": "DE", "target_lang": "EN"}
        assert asked(client, key) == 200
        assert client.post("/v2/translate", json=deepl, headers=key).status_code == 200
        refused = client.post("/translate", json=GOOD, headers=key)
        assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
        assert "at most 12 characters a month" in refused.json()["error"]
        assert int(refused.headers["Retry-After"]) <= 31 * 86_400
        assert client.post("/v2/translate", json=deepl, headers=key).status_code == 456
        told = {"character_count": 10, "character_limit": 12}
        assert client.get("/v2/usage", headers=key).json() == told
        assert [asked(client, usual), asked(client, usual)] == [200, 429]  # by the setting
        client.patch(f"/admin/keys/{id}", json={"characters_a_month": 15}, headers=ADMIN)
        assert asked(client, key) == 200
    with served(settings=with_store(tmp_path)) as (client, _):  # after a restart
        told = {"character_count": 15, "character_limit": 15}
        assert client.get("/v2/usage", headers=key).json() == told
        assert asked(client, key) == 429


@pytest.mark.parametrize(
    ("more", "codes"),
    [
        ("I have no time today, my friend, and I never will have any.", (429, 456)),
        ("I have no time, " * 30, (413, 413)),  # more than the model reads
    ],
)
def test_a_refused_request_of_several_routes_counts_nothing(
    tmp_path: Path, more: str, codes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = EchoTranslator(languages=several("en-de", "fr-en"))

    def prepare(request: Request, prepare: Callable[..., Any] = many.texts.prepare) -> Any:
        if request.text == more.strip():
            time.sleep(0.1)  # so long the other text, which is no fault, could be decoded
        return prepare(request)

    monkeypatch.setattr(many.texts, "prepare", prepare)
    with served(many, settings=with_store(tmp_path)) as (client, _):
        _, key = made(client, characters_a_month=50 if codes[1] == 456 else 1000)
        texts, begun = ["Je ne sais pas où il habite.", more], len(many.stepper.states)
        native = {"q": texts, "source": "auto", "target": "de", "split_sentences": False}
        for stream in (False, True):
            answer = client.post("/translate", json=native | {"stream": stream}, headers=key)
            assert answer.status_code == codes[0]
        deepl = {"text": texts, "target_lang": "DE", "split_sentences": "0"}
        assert client.post("/v2/translate", json=deepl, headers=key).status_code == codes[1]
        assert client.get("/v2/usage", headers=key).json()["character_count"] == 0
        assert len(many.stepper.states) == begun  # nothing was decoded
        first = client.post("/v2/translate", json=deepl | {"text": texts[:1]}, headers=key)
        assert first.json()["translations"][0]["detected_source_language"] == "FR"
        assert client.get("/v2/usage", headers=key).json()["character_count"] == len(texts[0])


def test_the_minute_of_a_key_has_a_limit(tmp_path: Path) -> None:
    with served(settings=with_store(tmp_path, max_requests_per_minute=3)) as (client, _):
        _, key = made(client, requests_a_minute=5)
        _, usual = made(client)
        assert [asked(client, key) for _ in range(6)] == [200] * 5 + [429]
        assert [asked(client, usual) for _ in range(4)] == [200] * 3 + [429]


def test_a_request_is_counted_once_and_only_where_it_is_accepted(client: TestClient) -> None:
    id, key = made(client)
    body = {**GOOD, "q": ["Hallo Welt", "Guten Morgen"]}
    assert client.post("/translate", json=body, headers=key).status_code == 200
    wrong = {**GOOD, "target": "xx"}
    assert client.post("/translate", json=wrong, headers=key).status_code == 400
    assert client.get("/models", headers=key).status_code == 200  # nothing is decoded
    assert used(client, key=id) == [(id, "translate", 1, 22)]


def test_a_key_that_is_deleted_while_its_request_runs_has_it_finished(tmp_path: Path) -> None:
    echo = EchoTranslator()
    with served(echo, settings=with_store(tmp_path)) as (client, registry):
        id, key = made(client)
        echo.stepper.gate.clear()
        statuses: list[int] = []
        thread = threading.Thread(target=lambda: statuses.append(asked(client, key)))
        thread.start()
        wait_until(lambda: registry.translators[0].scheduler.num_held == 1)  # type: ignore[attr-defined]
        assert client.delete(f"/admin/keys/{id}", headers=ADMIN).status_code == 204
        assert asked(client, key) == 401
        echo.stepper.gate.set()
        thread.join(20)
        assert statuses == [200]
        assert used(client) == [(id, "translate", 1, 5)]


@contextlib.contextmanager
def two_servers(url: str) -> Iterator[tuple[TestClient, TestClient]]:
    settings = Settings(store=SecretStr(url), admin_key=SecretStr(ADMIN_KEY))
    with served(settings=settings) as (first, _), served(settings=settings) as (second, _):
        yield first, second


def test_two_servers_share_keys_and_usage(postgresql: str | None) -> None:
    if postgresql is None:
        pytest.skip("needs the programs of PostgreSQL")
    url = fresh_database(postgresql)
    with two_servers(url) as (first, second):
        id, key = made(first, characters_a_month=100)
        for client in (first, second, second):
            assert asked(client, key) == 200  # at once, on both
        told = {"character_count": 15, "character_limit": 100}
        wait_until(lambda: first.get("/v2/usage", headers=key).json() == told, 5)
        assert asked(second, key, "x" * 85) == 200
        time.sleep(1.2)
        assert asked(second, key) == 429
        first.get("/v2/usage", headers=key)
        assert asked(first, key) == 429
        assert used(first) == used(second) == [(id, "translate", 4, 100)]
        begin = time.monotonic()
        first.patch(f"/admin/keys/{id}", json={"disabled": True}, headers=ADMIN)
        wait_until(lambda: asked(second, key) == 401, 5)
        assert time.monotonic() - begin < 2.5
        acts = second.get("/admin/audit", headers=ADMIN).json()["acts"]
        assert [act["act"] for act in acts] == ["change_key", "create_key"]


def test_translation_goes_on_while_the_store_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = with_store(tmp_path, api_keys=SecretStr("a-key-of-the-settings"))
    with served(settings=settings) as (client, _):
        store = client.app.state.backend.store  # type: ignore[attr-defined]
        id, key = made(client)
        _, unused = made(client)
        assert asked(client, key) == 200

        def away(*_: Any) -> Any:
            raise StoreUnavailableError("the store does not answer (a test)")

        with monkeypatch.context() as gone:
            for module, name in (
                (store.keys, "find"),
                (store.keys, "listed"),
                (store.usage, "add"),
            ):
                gone.setattr(module, name, away)
            time.sleep(1.1)
            assert [asked(client, key) for _ in range(5)] == [200] * 5
            assert asked(client, {"X-API-Key": "a-key-of-the-settings"}) == 200
            answers = [
                client.post("/translate", json=GOOD, headers=unused),
                client.get("/admin/keys", headers=ADMIN),
                client.get("/v2/usage", headers=key),
            ]
            assert [answer.status_code for answer in answers] == [503] * 3
            assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers)
        assert asked(client, unused) == 200
        (row,) = used(client, key=id)
        assert row == (id, "translate", 6, 30)  # nothing is lost


def test_usage_is_reported_in_pages_with_the_sums_of_all(client: TestClient) -> None:
    keys = [made(client) for _ in range(3)]
    for _, key in keys:
        asked(client, key)
    query = {**this_month(), "limit": "2"}
    first = client.get("/admin/usage", params=query, headers=ADMIN).json()
    query["after"] = first["next"]
    second = client.get("/admin/usage", params=query, headers=ADMIN).json()
    found = [row["key"] for row in first["usage"] + second["usage"]]
    assert found == sorted(id for id, _ in keys)
    assert second["next"] is None
    totals = [{"task": "translate", "requests": 3, "characters": 15}]
    assert first["totals"] == second["totals"] == totals


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"to": SPAN["to"]}, "from"),
        ({**SPAN, "from": "yesterday"}, "from must be a day like 2026-11-28"),
        ({"from": "2026-11-02", "to": "2026-11-01"}, "must be 1 to 366 days, got 0"),
        ({"from": "2024-01-01", "to": "2026-11-01"}, "must be 1 to 366 days"),
        ({**SPAN, "limit": "0"}, "limit"),
        ({**SPAN, "after": "x"}, "after must be `next` of the previous page"),
    ],
)
def test_usage_of_what_is_no_span_is_refused(
    client: TestClient, query: dict[str, str], message: str
) -> None:
    response = client.get("/admin/usage", params=query, headers=ADMIN)
    assert response.status_code == 400
    assert message in response.json()["error"]


def test_a_server_without_keys_counts_under_no_name(tmp_path: Path) -> None:
    open_server = Settings(store=SecretStr(f"sqlite:///{tmp_path / 'store.db'}"))
    with served(settings=open_server) as (client, _):
        assert asked(client, {}) == 200
        assert client.get("/v2/usage").json()["character_count"] == 5
    with served(settings=with_store(tmp_path)) as (client, _):
        assert used(client) == [("", "translate", 1, 5)]
        assert asked(client, {}) == 401  # who administers keys asks for one
        made(client)
    with served(settings=open_server) as (client, _):
        assert asked(client, {}) == 401  # there are keys


def test_what_cannot_be_done_with_a_model_is_refused(client: TestClient) -> None:
    def act(name: str, action: str) -> tuple[int, str]:
        body = {"action": action}
        response = client.post(f"/admin/models/{name}", json=body, headers=ADMIN)
        return response.status_code, response.text

    assert act("echo-de-en", "load")[0] == 200
    assert act("nobody", "load")[0] == 404
    assert act("echo-de-en", "sell")[0] == 400
    status, text = act("echo-de-en", "unload")
    assert status == 400
    assert "has no bundle; it stays" in text
    acts = client.get("/admin/audit", headers=ADMIN).json()["acts"]
    assert [(each["act"], each["subject"]) for each in acts] == [("load_model", "echo-de-en")]
    far = client.get("/admin/audit", headers=ADMIN, params={"before": 10**20})
    assert far.status_code == 400
