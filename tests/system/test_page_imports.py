"""The page's first sentence, and models imported by name from the page, in a real Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.system.browser import NAMES, Visit, find_chromium, visit
from tests.system.faults import seconds_until
from tests.system.server import ROOT, Server, is_ready, running
from tests.toy.hub import ToyHub, environment, toy_hub

if find_chromium() is None:
    pytest.skip(
        f"the page is not tested: none of {', '.join(NAMES)} is on the PATH",
        allow_module_level=True,
    )

KEY = "the-admin-key-of-this-test"


@dataclass(frozen=True)
class Place:
    """A server with one German model that may import others, and the hub that it knows."""

    server: Server
    hub: ToyHub
    bundles: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    bundles, scratch = tmp_path_factory.mktemp("bundles"), tmp_path_factory.mktemp("server")
    shutil.copytree(ROOT / "models" / "macaron-de-en", bundles / "macaron-de-en")
    with toy_hub() as hub:
        hub.add("toy/intents", ROOT / "models" / "intents")
        hub.add("toy/closed", ROOT / "models" / "intents", gated=True)
        settings = {"MACARON_ADMIN_KEY": KEY, "MACARON_MODEL_IMPORTS": "on", "MACARON_WORKERS": "2"}
        with running(bundles, scratch, **settings, **environment(hub, scratch)) as server:
            # One worker may be ready before the other: either answers a connection.
            seconds_until(lambda: all(is_ready(server) for _ in range(20)), 60)
            yield Place(server, hub, bundles)


@pytest.fixture
def visited(browser: Browser) -> Iterator[Visit]:
    with visit(browser, viewport={"width": 1200, "height": 900}) as found:
        yield found
        assert found.complaints == []


EXAMPLE = "If I have time, I'll call you tomorrow afternoon."
"""The translation of the sentence that the page opens with."""


def asked_for(page: Page, name: str, key: str = KEY) -> None:
    """Ask for an import on the page."""
    # The page moves when the example has been translated, and a click would miss.
    expect(page.get_by_role("group", name="Translation")).to_have_text(EXAMPLE)
    page.get_by_text("Import a model", exact=True).click()
    page.get_by_label("Admin key").fill(key)
    page.get_by_label("Name of the model").fill(name)
    page.get_by_role("button", name="Import", exact=True).click()


def test_the_page_opens_with_a_sentence_that_typing_replaces(visited: Visit, place: Place) -> None:
    page = visited.page
    page.goto(place.server.url)
    output = page.get_by_role("group", name="Translation")
    expect(output).to_have_text(EXAMPLE)
    expect(page.locator("#demonstration")).to_contain_text("A small demonstration model.")
    page.get_by_label("Text to translate").press_sequentially("Guten Morgen!")
    expect(output).to_have_text("Good morning!")


def test_a_model_is_imported_from_the_page_and_served_at_once(visited: Visit, place: Place) -> None:
    page = visited.page
    page.goto(place.server.url)
    tab = page.get_by_role("tab", name="Classify and compare")
    expect(tab).to_be_hidden()
    asked_for(page, "toy/intents")
    expect(page.locator("#import-state")).to_have_text("toy/intents is served as intents.")
    expect(page.get_by_role("region", name="What the import says")).to_contain_text(
        "licence: cc-by-4.0"
    )
    tab.click()
    expect(page.locator("#encoder-demonstration")).to_contain_text("150 requests")
    page.get_by_label("First text").fill("what is my balance")
    page.get_by_role("button", name="Classify").click()
    expect(page.locator("#class-rows tr").first).to_contain_text("balance")
    assert (place.bundles / "toy--intents").is_symlink()
    for _ in range(20):  # by whichever worker
        body = {"q": "what is my balance", "model": "intents"}
        answer = httpx.post(f"{place.server.url}/classify", json=body, timeout=60)
        assert answer.status_code == 200, answer.text


def test_what_cannot_be_imported_is_reported(visited: Visit, place: Place) -> None:
    page = visited.page
    page.goto(place.server.url)
    asked_for(page, "toy/closed")
    expect(page.locator("#import-state")).to_contain_text("toy/closed: is gated; accept its terms")
    page.get_by_label("Admin key").fill("not-the-admin-key-at-all")
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("this is not the admin key")
    assert visited.complaints  # the browser tells of the refusal too
    visited.complaints.clear()
