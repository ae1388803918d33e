"""Google's client of Translation v2, unmodified, against `bentoml serve`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from serving import Translator
from tests.system.server import Server, running

translate_v2 = pytest.importorskip(
    "google.cloud.translate_v2", reason="the package google-cloud-translate is not installed"
)
api_key = pytest.importorskip("google.auth.api_key")
exceptions = pytest.importorskip("google.api_core.exceptions")

GERMAN = "Das ist ein ganz einfacher Satz."
KEY = "a-key-of-the-tests"


@pytest.fixture(scope="module")
def server(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    bundles = tmp_path_factory.mktemp("bundles")
    shutil.copytree(tiny_bundle, bundles / "tiny")
    scratch = tmp_path_factory.mktemp("server")
    with running(bundles, scratch, MACARON_API_KEYS=KEY) as server:
        yield server


@pytest.fixture(scope="module")
def wanted(tiny_bundle: Path) -> dict[str, str]:
    """What the model makes of some texts, by the Python interface."""
    texts = [GERMAN, "Guten Morgen!"]
    found = Translator(tiny_bundle, threads=1).translate(texts)
    return {text: translation.text for text, translation in zip(texts, found, strict=True)}


@pytest.fixture
def connected(server: Server) -> Iterator[Callable[[str], Any]]:
    """Clients of the server, by key, which are closed at the end."""
    with ExitStack() as stack:

        def connect(key: str) -> Any:
            options = {"api_endpoint": server.url}
            credentials = api_key.Credentials(key)
            client = translate_v2.Client(credentials=credentials, client_options=options)
            return stack.enter_context(closing(client))

        yield connect


@pytest.fixture
def client(connected: Callable[[str], Any]) -> Any:
    return connected(KEY)


def test_it_translates(client: Any, wanted: dict[str, str]) -> None:
    options = {"source_language": "de", "target_language": "en-GB"}
    for text, translation in wanted.items():
        found = client.translate(text, format_="text", model="nmt", **options)
        assert found == {"translatedText": translation, "input": text, "model": "nmt"}
    several = client.translate(list(wanted), format_="text", **options)
    assert [found["translatedText"] for found in several] == list(wanted.values())


def test_it_detects(client: Any, wanted: dict[str, str]) -> None:
    translated = client.translate(GERMAN, format_="text")
    assert translated["detectedSourceLanguage"] == "de"
    assert translated["translatedText"] == wanted[GERMAN]
    [german, number] = client.detect_language([GERMAN, "123"])
    assert (german["language"], german["input"]) == ("de", GERMAN)
    assert number["language"] == "und"
    assert client.detect_language(GERMAN)["confidence"] > 0.5


def test_it_sends_html_where_no_format_is_given(client: Any) -> None:
    found = client.translate("<p>Guten <b>Morgen</b>!</p>", source_language="de")
    text = found["translatedText"]
    assert text.startswith("<p>")
    assert text.endswith("</p>")
    assert text.count("<b>") == text.count("</b>") == 1


def test_it_lists_languages(client: Any) -> None:
    assert client.get_languages() == [
        {"language": "de", "name": "German"},
        {"language": "en", "name": "English"},
    ]


def test_it_raises_googles_errors(client: Any, connected: Callable[[str], Any]) -> None:
    with pytest.raises(exceptions.BadRequest, match="target must be one of"):
        client.translate("Hallo", target_language="xx")
    with pytest.raises(exceptions.BadRequest, match="'cid' is not supported"):
        client.translate("Hallo", customization_ids="mine")
    with pytest.raises(exceptions.NotFound, match="model must be one of"):
        client.translate("Hallo", model="best")
    with pytest.raises(exceptions.Unauthorized, match="not known to this server"):
        connected("another-key").translate("Hallo")
