"""Settings from the environment."""

from __future__ import annotations

import pytest

from serving.docstrings import field_docstrings
from serving.errors import SettingsError
from serving.server.http.settings import ROOT, Settings, variable
from serving.threads import default_threads


def test_defaults() -> None:
    settings = Settings.from_environment({})
    assert settings.bundles == ROOT / "models"
    assert settings.threads == default_threads()
    assert settings == Settings()


def test_workers_share_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.server.http.settings.default_threads", lambda: 8)
    assert [Settings(workers=n).threads for n in (1, 2, 3, 8, 9)] == [8, 4, 2, 1, 1]
    assert Settings(workers=2, threads=8).threads == 8


def test_every_field_has_a_variable_and_a_description() -> None:
    for name in Settings.model_fields:
        assert variable(name) == "MACARON_" + name.upper()
    assert set(field_docstrings(Settings)) == set(Settings.model_fields)


def test_values_come_from_the_environment() -> None:
    settings = Settings.from_environment(
        {"MACARON_MAX_TEXTS": " 7 ", "MACARON_MAX_TIMEOUT_S": "45.5", "MACARON_BUNDLES": "/b"}
    )
    assert (settings.max_texts, settings.max_timeout_s) == (7, 45.5)
    assert str(settings.bundles) == "/b"
    assert Settings.from_environment({"MACARON_BUNDLES": "mine"}).bundles == ROOT / "mine"


def test_an_empty_variable_is_not_set() -> None:
    assert Settings.from_environment({"MACARON_MAX_TEXTS": ""}) == Settings()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("MACARON_MAX_TEXTS", "many", "MACARON_MAX_TEXTS must be a valid integer, .*got 'many'"),
        ("MACARON_MAX_TEXTS", "0", "MACARON_MAX_TEXTS must be greater than or equal to 1, got '0'"),
        ("MACARON_MAX_BEAM_SIZE", "65", "MACARON_MAX_BEAM_SIZE must be less than or equal to 64"),
        ("MACARON_MAX_TIMEOUT_S", "nan", "MACARON_MAX_TIMEOUT_S must be .*, got 'nan'"),
        ("MACARON_MAX_TIMEOUT_S", "5", "DEFAULT_TIMEOUT_S = 30.0 must be at most .*MAX_TIMEOUT_S"),
        ("MACARON_MAX_QUEUE", "5", "MACARON_MAX_TEXTS = 128 must be at most MACARON_MAX_QUEUE = 5"),
        ("MACARON_ZERO_SHOT", "maybe", "^MACARON_ZERO_SHOT must be on or off, got 'maybe'$"),
        ("MACARON_ROOT_PATH", "macaron/", "MACARON_ROOT_PATH must be empty or a path such as /mac"),
        ("MACARON_WORKERS", "0", "^MACARON_WORKERS must be greater than or equal to 1, got '0'$"),
        ("MACARON_CORS_ORIGINS", "https://a.org b.org", "must be .*https://example.*got 'b.org'"),
        ("MACARON_CORS_ORIGINS", "https://a.org/", "MACARON_CORS_ORIGINS must be .*got 'https://a"),
        ("MACARON_MAX_BEEM_SIZE", "5", "MACARON_MAX_BEEM_SIZE; did you mean MACARON_MAX_BEAM_SIZE"),
    ],
)
def test_a_bad_value_is_one_line_that_names_the_variable(
    name: str, value: str, message: str
) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        Settings.from_environment({name: value})
    assert "\n" not in str(caught.value)


def test_names_that_others_set_pass() -> None:
    # Kubernetes describes a service called macaron to every pod; the test suite has its own.
    environment = {"MACARON_PORT": "tcp://10.0.0.1:80", "MACARON_SERVICE_HOST": "10.0.0.1"}
    assert Settings.from_environment({**environment, "MACARON_DATA": "/data"}) == Settings()
