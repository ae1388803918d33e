"""API keys, rate limits and CORS."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from serving.errors import OverloadedError, RateLimitedError, SettingsError
from serving.server.access.gate import MOST_CLIENTS, RateLimit
from serving.server.access.keys import Keys
from serving.server.http.settings import Settings
from serving.store.records.key import digest_of
from tests.unit.serving.echo import served

GOOD = {"q": "Hallo", "source": "de", "target": "en"}
KEY, OTHER = "first-key-1234", "second-key-5678"
GUARDED = Settings(api_keys=f"{KEY}, {OTHER}")


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {KEY}"},
        {"Authorization": f"bearer  {OTHER}"},
        {"Authorization": f"DeepL-Auth-Key {KEY}"},
        {"X-API-Key": OTHER},
    ],
)
def test_a_key_opens_wherever_clients_put_it(headers: dict[str, str]) -> None:
    with served(settings=GUARDED) as (client, _):
        assert client.post("/translate", json=GOOD, headers=headers).status_code == 200
        assert client.get("/models", headers=headers).status_code == 200


def test_the_body_may_carry_the_key() -> None:
    with served(settings=GUARDED) as (client, _):
        assert client.post("/translate", json={**GOOD, "api_key": KEY}).status_code == 200
        # What stands in the head counts alone.
        refused = client.post(
            "/translate", json={**GOOD, "api_key": KEY}, headers={"X-API-Key": "wrong-key"}
        )
        assert refused.status_code == 401


@pytest.mark.parametrize(
    ("headers", "fields", "message"),
    [
        ({}, {}, "an API key is needed"),
        ({"Authorization": "Bearer "}, {}, "an API key is needed"),
        ({"Authorization": f"Basic {KEY}"}, {}, "an API key is needed"),
        ({"Authorization": f"Bearer {KEY}x"}, {}, "not known"),
        ({"X-API-Key": KEY[:-1]}, {}, "not known"),
        ({"X-API-Key": "\xe9" * 20}, {}, "not known"),
        ({}, {"api_key": ""}, "an API key is needed"),
    ],
)
def test_without_a_key_nothing_is_done(
    headers: dict[str, str], fields: dict[str, str], message: str
) -> None:
    with served(settings=GUARDED) as (client, registry):
        sent = {name: value.encode("latin-1") for name, value in headers.items()}
        response = client.post("/translate", json={**GOOD, **fields}, headers=sent)
        assert (response.status_code, response.json()["code"]) == (401, "unauthorized")
        assert message in response.json()["error"]
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert b"macaron_decoded_total{" in registry.metrics.text()
        assert b'macaron_decoded_total{model="echo-de-en"} 0.0' in registry.metrics.text()


def test_every_other_route_is_shut_and_errors_keep_their_shape() -> None:
    with served(settings=GUARDED) as (client, _):
        for path in ("/models", "/limits", "/v1/models", "/nowhere"):
            assert client.get(path).status_code == 401, path
        for path in ("/v1/completions", "/tokenize", "/detokenize"):
            error = client.post(path, json={}).json()["error"]
            assert (error["type"], error["code"]) == ("invalid_request_error", "unauthorized")


def test_probes_scrapes_and_the_page_need_no_key() -> None:
    with served(settings=GUARDED) as (client, _):
        for path in ("/", "/livez", "/readyz", "/metrics", "/openapi.json", "/languages"):
            assert client.get(path).status_code == 200, path


def test_keys_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# ours\n{KEY}  # of the web site\n\n{OTHER}\n")
    keys = Keys(Settings(api_keys_file=file, api_keys="third-key-90"))
    names = {keys.owner(digest_of(key)) for key in (KEY, OTHER, "third-key-90")}
    assert len(names) == 3
    assert names == set(keys.owners)
    assert keys.owner(digest_of("another-key")) == ""
    assert not any(KEY[:4] in name for name in names)
    assert Keys(Settings()).owners == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "MACARON_API_KEYS_FILE = .* cannot be read"),
        (b"# nothing\n", "MACARON_API_KEYS_FILE = .* must hold a key"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"short\n", "at least 8 characters"),
    ],
)
def test_keys_that_cannot_be_used_are_refused(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match=message) as caught:
        Keys(Settings(api_keys_file=file))
    assert "short" not in str(caught.value).partition("got")[0]


def test_settings_do_not_print_keys() -> None:
    assert KEY not in repr(GUARDED)


def test_requests_over_the_rate_are_refused_with_the_time_to_wait() -> None:
    with served(settings=Settings(max_requests_per_minute=3)) as (client, _):
        statuses = [client.post("/translate", json=GOOD).status_code for _ in range(3)]
        assert statuses == [200] * 3
        refused = client.post("/translate", json=GOOD)
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert "3 requests in a minute (MACARON_MAX_REQUESTS_PER_MINUTE)" in refused.json()["error"]
        assert 1 <= int(refused.headers["Retry-After"]) <= 20
        assert client.get("/livez").status_code == 200  # probes are not counted


def test_keys_have_rates_of_their_own() -> None:
    settings = Settings(api_keys=f"{KEY} {OTHER}", max_requests_per_minute=1)
    with served(settings=settings) as (client, _):

        def ask(key: str) -> int:
            return client.get("/models", headers={"X-API-Key": key}).status_code

        assert [ask(KEY), ask(KEY), ask(OTHER), ask(OTHER)] == [200, 429, 200, 429]


def test_characters_over_the_rate_are_refused() -> None:
    with served(settings=Settings(max_chars_per_minute=10)) as (client, _):
        assert client.post("/translate", json={**GOOD, "q": ["abcdef"] * 3}).status_code == 200
        refused = client.post("/translate", json=GOOD)
        assert refused.status_code == 429
        # The debt of 8 is paid at ten a minute, and then there must be one.
        assert 50 <= int(refused.headers["Retry-After"]) <= 54


def test_characters_that_are_not_accepted_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(settings=Settings(max_chars_per_minute=5)) as (client, registry):
        scheduler = registry.translators[0].scheduler

        def refuse(*_: object, **__: object) -> None:
            raise OverloadedError("the queue is full; try again later")

        with monkeypatch.context() as full:
            full.setattr(scheduler, "submit_all", refuse)
            assert client.post("/translate", json=GOOD).status_code == 503
        assert client.post("/translate", json=GOOD).status_code == 200
        assert client.post("/translate", json=GOOD).status_code == 429


def test_threads_that_charge_a_client_at_once_take_all_that_they_are_asked() -> None:
    rate = RateLimit("characters", None, 10**9, clock=lambda: 0.0)
    threads = [
        threading.Thread(target=lambda: [rate.charge("a", 1) for _ in range(20_000)])
        for _ in range(4)
    ]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    rate.charge("a", 10**9 - 80_000)
    with pytest.raises(RateLimitedError):
        rate.charge("a", 1)


def test_a_bucket_fills_up_steadily() -> None:
    now = 0.0
    rate = RateLimit("requests", "max_requests_per_minute", 60, clock=lambda: now)
    for _ in range(60):
        rate.charge("a", 1)
    with pytest.raises(RateLimitedError) as caught:
        rate.charge("a", 1)
    assert caught.value.retry_after_s == pytest.approx(1)
    rate.charge("b", 1)
    now = 2.5
    rate.charge("a", 1)
    rate.charge("a", 1)
    with pytest.raises(RateLimitedError) as caught:
        rate.charge("a", 1)
    assert caught.value.retry_after_s == pytest.approx(0.5)


def test_the_table_of_clients_is_bounded() -> None:
    rate = RateLimit("requests", "max_requests_per_minute", 1)
    for number in range(MOST_CLIENTS + 10):
        rate.charge(str(number), 1)
    assert len(rate._buckets) == MOST_CLIENTS
    with pytest.raises(RateLimitedError):
        rate.charge(str(MOST_CLIENTS), 1)


def test_pages_of_other_origins_are_let_in_where_the_setting_says_so() -> None:
    origin = {"Origin": "https://example.org"}
    with served(settings=Settings(cors_origins="*", api_keys=KEY)) as (client, _):
        refused = client.post("/translate", json=GOOD, headers=origin)
        assert refused.status_code == 401
        assert refused.headers["Access-Control-Allow-Origin"] == "*"
        exposed = refused.headers["Access-Control-Expose-Headers"]
        assert {"X-Request-ID", "Retry-After"} == set(exposed.split(", "))
        asked = {"Access-Control-Request-Method": "POST"}
        asked["Access-Control-Request-Headers"] = "authorization,content-type"
        preflight = client.options("/translate", headers={**origin, **asked})
        assert preflight.status_code == 200
        assert "authorization" in preflight.headers["Access-Control-Allow-Headers"].lower()
    with served(settings=Settings(cors_origins="https://a.org,https://b.org")) as (client, _):
        allowed = client.get("/livez", headers={"Origin": "https://b.org"})
        assert allowed.headers["Access-Control-Allow-Origin"] == "https://b.org"
        other = client.get("/livez", headers=origin)
        assert "Access-Control-Allow-Origin" not in other.headers
    with served() as (client, _):
        assert "Access-Control-Allow-Origin" not in client.get("/livez", headers=origin).headers
