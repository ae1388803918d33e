"""What the page does when something goes wrong: nothing typed is lost, messages are plain."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.system.browser import NAMES, Visit, find_chromium, said, visit
from tests.system.server import Server, running_with_store

if find_chromium() is None:
    pytest.skip(
        f"the page is not tested: none of {', '.join(NAMES)} is on the PATH",
        allow_module_level=True,
    )

GERMAN = "Ich habe heute keine Zeit."
DENIED = """for (const name of ["localStorage", "sessionStorage"]) {
    const get = () => { throw new DOMException("denied", "SecurityError"); };
    Object.defineProperty(window, name, { get });
}"""
DROP = """([names, selector]) => {
    const dataTransfer = new DataTransfer();
    for (const name of names) dataTransfer.items.add(new File(["Guten Morgen!"], name));
    const events = ["dragover", "drop"].map(
        (name) => new DragEvent(name, { dataTransfer, bubbles: true, cancelable: true }));
    return events.map((event) => !document.querySelector(selector).dispatchEvent(event));
}"""
"""Drops files on an element; whether dragging over it and dropping was kept from the browser."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_with_store(tmp_path_factory, "macaron-de-en", "macaron-en-de") as server:
        yield server


@pytest.fixture
def visited(browser: Browser) -> Iterator[Visit]:
    with visit(browser, viewport={"width": 1200, "height": 700}) as found:
        yield found


@pytest.fixture
def page(visited: Visit, server: Server) -> Page:
    """The page, opened with a text that is translated."""
    visited.page.goto(f"{server.url}/?source=de&target=en&q=Guten+Morgen!")
    said(visited.page, "Good morning!")
    return visited.page


def test_a_text_that_is_not_translated_is_not_lost_by_a_swap(page: Page) -> None:
    page.route("**/translate", lambda route: route.abort())
    box = page.get_by_label("Text to translate")
    box.fill(GERMAN)
    page.get_by_role("button", name="Swap the languages").click()
    expect(box).to_have_value(GERMAN)
    expect(page.get_by_label("From")).to_have_value("en")
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    page.get_by_role("button", name="Swap the languages").click()
    expect(box).to_have_value(GERMAN)


def test_no_translation_stands_beside_another_text(page: Page) -> None:
    page.route("**/translate", lambda route: route.fulfill(body="<p>Log in", status=200))
    page.get_by_label("Text to translate").fill(GERMAN)
    expect(page.get_by_role("alert")).to_contain_text("not from this server")
    said(page, "")
    expect(page.get_by_role("region", name="Hypotheses")).to_be_hidden()


def test_a_page_that_is_loaded_again_goes_on_with_the_text(page: Page, server: Server) -> None:
    box = page.get_by_label("Text to translate")
    page.get_by_role("button", name="Swap the languages").click()
    box.fill("I have no time today.")
    for _ in range(2):
        page.reload()
        expect(box).to_have_value("I have no time today.")
        expect(page.get_by_label("From")).to_have_value("en")
        said(page, "Ich habe heute keine Zeit.")
    page.goto(f"{server.url}/?source=de&target=en&q=Guten+Abend!")  # an address counts for more
    said(page, "Good evening!")
    page.reload()
    said(page, "Good evening!")


def test_what_is_typed_replaces_the_example(visited: Visit, server: Server) -> None:
    visited.page.goto(server.url)
    expect(visited.page.get_by_label("Text to translate")).to_be_focused()
    visited.page.keyboard.type("Guten Abend!")
    said(visited.page, "Good evening!")


def test_a_page_that_may_keep_nothing_translates(visited: Visit, server: Server) -> None:
    visited.page.add_init_script(DENIED)
    visited.page.goto(f"{server.url}/?source=de&target=en&q=Guten+Morgen!")
    said(visited.page, "Good morning!")
    visited.page.get_by_role("button", name="Dark").click()
    assert visited.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert visited.complaints == []


def test_what_a_key_lacks_is_said_in_plain_words(page: Page) -> None:
    page.get_by_label("API key").fill("key“")
    page.get_by_label("API key").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("a character that no key has")
    page.route("**/languages", lambda route: route.fulfill(status=401, json={"error": "send it"}))
    page.get_by_label("API key").fill("")
    page.get_by_label("API key").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("needs an API key: type it at the top")
    page.get_by_label("API key").fill("wrong")
    page.get_by_label("API key").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("send it")


def test_an_error_is_seen_from_the_end_of_the_page(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 500})
    page.get_by_text("Glossaries", exact=True).click()
    page.get_by_label("Entries").fill("Haus")
    page.get_by_role("button", name="Save the glossary").click()
    expect(page.get_by_role("alert")).to_contain_text("Line 1 must be a text, = and its")
    assert page.evaluate("scrollY") > 0
    expect(page.get_by_role("alert")).to_be_in_viewport(ratio=1)


def test_a_glossary_is_saved_once_and_keeps_what_is_typed(page: Page) -> None:
    page.get_by_text("Glossaries", exact=True).click()
    page.get_by_label("Name", exact=True).fill("houses")
    page.get_by_label("Entries").fill("Haus = house")
    page.get_by_role("button", name="Save the glossary").dblclick()
    edited = page.get_by_label("Glossary to change")
    expect(edited.locator("option:checked")).to_have_text("houses")
    page.wait_for_load_state("networkidle")
    expect(edited.locator("option")).to_have_text(["New glossary", "houses"])

    page.get_by_label("Entries").fill("Haus = house\nAuto = vehicle")
    for _ in range(2):  # it is closed and opened
        page.get_by_text("Glossaries", exact=True).click()
    page.wait_for_load_state("networkidle")
    expect(page.get_by_label("Entries")).to_have_value("Haus = house\nAuto = vehicle")


def test_unsaved_entries_stay_with_their_languages_and_glossary(page: Page) -> None:
    page.get_by_text("Glossaries", exact=True).click()
    name, entries = page.get_by_label("Name", exact=True), page.get_by_label("Entries")
    edited = page.get_by_label("Glossary to change")
    name.fill("tools")
    entries.fill("Hammer = mallet")
    page.get_by_role("button", name="Save the glossary").click()
    expect(edited.locator("option:checked")).to_have_text("tools")

    entries.fill("Hammer = mallet\nZange = tongs")
    swap = page.get_by_role("button", name="Swap the languages")
    swap.click()
    expect(entries).to_have_value("")
    entries.fill("tongs = Zange")
    swap.click()
    expect(entries).to_have_value("Hammer = mallet\nZange = tongs")
    edited.select_option("New glossary")
    expect(entries).to_have_value("")
    edited.select_option("tools")
    expect(entries).to_have_value("Hammer = mallet\nZange = tongs")
    page.get_by_role("button", name="Save the glossary").click()
    page.wait_for_load_state("networkidle")
    swap.click()
    expect(entries).to_have_value("tongs = Zange")


def test_entries_cannot_be_changed_while_they_are_saved_or_read(page: Page) -> None:
    page.get_by_text("Glossaries", exact=True).click()
    name, entries = page.get_by_label("Name", exact=True), page.get_by_label("Entries")
    waiting: list[Route] = []
    page.route("**/glossaries", lambda route: waiting.append(route))
    page.route("**/glossaries/*/entries?*", lambda route: waiting.append(route))
    name.fill("tools")
    entries.fill("Hammer = mallet")
    page.get_by_role("button", name="Save the glossary").click()
    for _ in ("saved", "read"):
        expect(entries).not_to_be_editable()
        expect(name).not_to_be_editable()
        for _ in range(1000):
            if not waiting:
                page.wait_for_timeout(20)
        waiting.pop().continue_()
    expect(entries).to_be_editable()
    expect(entries).to_have_value("Hammer = mallet")


def test_sentences_stay_if_the_file_beside_them_cannot_be_read(page: Page) -> None:
    page.get_by_text("Translation memories", exact=True).click()
    page.get_by_label("Title").fill("mine")
    page.get_by_label("Sentences").fill("Das Haus = the house")
    page.get_by_label("TMX file").set_input_files(
        {"name": "a.tmx", "mimeType": "text/xml", "buffer": b"no XML"}
    )
    page.get_by_role("button", name="Save the memory").click()
    expect(page.get_by_role("alert")).to_contain_text("not well-formed")
    expect(page.get_by_label("Sentences")).to_have_value("Das Haus = the house")


def test_a_document_outlives_a_server_that_is_away_for_a_moment(page: Page) -> None:
    page.route("**/documents/*", lambda route: route.abort(), times=1)
    page.get_by_label("Translate a document").set_input_files(
        {"name": "brief.txt", "mimeType": "text/plain", "buffer": GERMAN.encode()}
    )
    expect(page.get_by_role("button", name="Download brief.en.txt")).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()


def test_files_may_be_dropped_anywhere_on_the_page(visited: Visit, page: Page) -> None:
    assert page.evaluate(DROP, [["a.txt"], "header"]) == [True, True]
    expect(page.get_by_role("button", name="Download a.en.txt")).to_be_visible()
    assert page.evaluate(DROP, [["b.tmx"], "#memory-file"]) == [False, False]
    page.evaluate(DROP, [["c.txt", "d.txt"], "footer"])
    expect(page.get_by_role("alert")).to_contain_text("One document at a time")
    assert visited.bodies("/documents") == 1


def test_a_file_takes_the_place_of_one_that_is_still_being_sent(page: Page) -> None:
    held = list[Route]()
    page.route("**/documents", lambda route: held.append(route), times=1)
    page.evaluate(DROP, [["first.txt"], "footer"])
    expect(page.get_by_text("Sending first.txt").last).to_be_visible()
    page.evaluate(DROP, [["second.txt"], "footer"])
    expect(page.get_by_role("button", name="Download second.en.txt")).to_be_visible()
    assert len(held) == 1
    expect(page.get_by_role("alert")).to_be_hidden()
