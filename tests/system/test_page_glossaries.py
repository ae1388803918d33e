"""Glossaries on the page, in a real Chromium, with a store in a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.system.browser import NAMES, Visit, find_chromium, said, visit
from tests.system.server import Server, running_with_store

if find_chromium() is None:
    pytest.skip(
        f"the page is not tested: none of {', '.join(NAMES)} is on the PATH",
        allow_module_level=True,
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_with_store(tmp_path_factory, "macaron-de-en") as server:
        yield server


@pytest.fixture
def visited(browser: Browser) -> Iterator[Visit]:
    with visit(browser, viewport={"width": 1200, "height": 900}) as found:
        yield found
        assert found.complaints == []


def test_a_glossary_is_made_used_changed_and_deleted(visited: Visit, server: Server) -> None:
    page = visited.page
    page.goto(server.url)
    page.get_by_label("Text to translate").fill("Die Pumpe ist neu.")
    said(page, "The pump is new.")
    page.get_by_text("Glossaries", exact=True).click()
    page.get_by_label("Name", exact=True).fill("pumps")
    page.get_by_label("Entries").fill("Pumpe = impeller\nVentil\tstopcock")
    page.get_by_role("button", name="Save the glossary").click()
    said(page, "The impeller is new.")

    chosen = page.get_by_role("combobox", name="Glossary", exact=True)
    expect(chosen.locator("option:checked")).to_have_text("pumps")
    expect(page.get_by_label("Entries")).to_have_value("Pumpe = impeller\nVentil = stopcock")
    page.get_by_label("Entries").fill("Pumpe = rotor")
    page.get_by_label("Name", exact=True).fill("<b>rotors</b>")
    page.get_by_role("button", name="Save the glossary").click()
    said(page, "The rotor is new.")
    expect(chosen.locator("option:checked")).to_have_text("<b>rotors</b>")
    chosen.select_option("No glossary")
    said(page, "The pump is new.")

    page.goto(server.url)  # it is there for another visit
    expect(chosen.locator("option")).to_have_text(["No glossary", "<b>rotors</b>"])
    page.get_by_text("Glossaries", exact=True).click()
    page.get_by_label("Glossary to change").select_option("<b>rotors</b>")
    expect(page.get_by_label("Entries")).to_have_value("Pumpe = rotor")
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Delete the glossary").click()
    page.wait_for_load_state("networkidle")
    expect(chosen.locator("option")).to_have_text(["No glossary", "<b>rotors</b>"])
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete the glossary").click()
    expect(chosen.locator("option")).to_have_text(["No glossary"])


def test_what_the_server_refuses_is_reported(visited: Visit, server: Server) -> None:
    page = visited.page
    page.goto(server.url)
    page.get_by_text("Glossaries", exact=True).click()
    page.get_by_label("Name", exact=True).fill("broken")
    page.get_by_label("Entries").fill("a = b\na = c")
    page.get_by_role("button", name="Save the glossary").click()
    expect(page.get_by_role("alert")).to_contain_text("must have each term once, got 'a' again")
    assert visited.complaints  # the browser tells of the refusal too
    visited.complaints.clear()


def test_what_is_typed_before_the_lists_arrive_stays(visited: Visit, server: Server) -> None:
    page, held = visited.page, list[Route]()
    for listed in ("glossaries", "memories"):
        page.route(f"**/{listed}?limit=*", lambda route: held.append(route))
    page.goto(server.url)
    page.get_by_text("Glossaries", exact=True).click()
    page.get_by_text("Translation memories", exact=True).click()
    typed = {"Name": "pumps", "Entries": "Pumpe = impeller", "Title": "mine", "Sentences": "a = b"}
    for label, text in typed.items():
        page.get_by_label(label, exact=True).fill(text)
    for _ in range(100):
        if len(held) < 2:
            page.wait_for_timeout(100)
    assert len(held) == 2
    for route in held:
        with page.expect_response(route.request.url):
            route.continue_()
    page.wait_for_load_state("networkidle")
    for label, text in typed.items():
        expect(page.get_by_label(label, exact=True)).to_have_value(text)
