"""Translation memories on the page, in a real Chromium, with a store in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.system.browser import NAMES, Visit, find_chromium, said, visit
from tests.system.server import Server, running_with_store

if find_chromium() is None:
    pytest.skip(
        f"the page is not tested: none of {', '.join(NAMES)} is on the PATH",
        allow_module_level=True,
    )

TMX = (
    '<tmx version="1.4"><header srclang="de"/><body><tu><tuv xml:lang="de"><seg>Es schneit.</seg>'
    '</tuv><tuv xml:lang="en"><seg>Snow is falling.</seg></tuv></tu></body></tmx>'
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


def origins(page: Page) -> list[list[str]]:
    """The cells of the rows that tell where the sentences come from."""
    rows = page.get_by_role("region", name="Origins").locator("tbody tr")
    return [row.locator("td").all_inner_texts() for row in rows.all()]


def test_a_memory_is_made_filled_used_and_deleted(
    visited: Visit, server: Server, tmp_path: Path
) -> None:
    page = visited.page
    page.goto(server.url)
    text = "Das Haus ist blau. Es schneit."
    page.get_by_label("Text to translate").fill(text)
    said(page, "The house is blue. It snows.")
    expect(page.get_by_role("region", name="Origins")).to_be_hidden()
    page.get_by_text("Translation memories", exact=True).click()
    page.get_by_label("Title").fill("<b>mine</b>")
    page.get_by_label("Sentences").fill("Das Haus ist rot. = The building is red.")
    page.get_by_role("button", name="Save the memory").click()
    said(page, "The building is red. It snows.")
    chosen = page.get_by_role("combobox", name="Memory", exact=True)
    expect(chosen.locator("option:checked")).to_have_text("<b>mine</b> (1)")
    assert origins(page) == [
        ["Das Haus ist blau.", "memory", "78 %", "Das Haus ist rot.", "–"],
        ["Es schneit.", "model", "–", "–", "–"],
    ]

    page.get_by_label("similar sentence gives only the beginning").check()
    said(page, "The building is blue. It snows.")
    expect(page.get_by_role("region", name="Origins")).to_contain_text("The building is")
    assert origins(page)[0][-1] == "The building is"
    page.get_by_label("Match threshold in percent").fill("90")
    page.get_by_label("Match threshold in percent").blur()
    said(page, "The house is blue. It snows.")

    (tmp_path / "snow.tmx").write_text(TMX)
    page.get_by_label("TMX file").set_input_files(tmp_path / "snow.tmx")
    page.get_by_role("button", name="Save the memory").click()
    said(page, "The house is blue. Snow is falling.")
    expect(page.get_by_text("1 sentences added, 0 left out").last).to_be_visible()
    expect(chosen.locator("option:checked")).to_have_text("<b>mine</b> (2)")

    # Another beginning that a reader chooses counts for more.
    page.get_by_role("button", name="house").click()
    page.get_by_role("menuitem").nth(1).click()
    expect(page.get_by_role("region", name="Origins")).to_be_hidden()

    page.goto(server.url)  # it is there for another visit
    expect(chosen.locator("option")).to_have_text(["No memory", "<b>mine</b> (2)"])
    page.get_by_text("Translation memories", exact=True).click()
    page.get_by_label("Memory to fill").select_option("<b>mine</b> (2)")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete the memory").click()
    expect(chosen.locator("option")).to_have_text(["No memory"])


def test_what_is_chosen_counts_for_documents_and_for_a_language_that_is_detected(
    visited: Visit, server: Server
) -> None:
    page = visited.page
    page.goto(server.url)
    text = "Das Haus ist heute blau."
    page.get_by_label("Text to translate").fill(text)
    page.get_by_text("Translation memories", exact=True).click()
    page.get_by_label("Title").fill("for documents")
    page.get_by_label("Sentences").fill(f"{text} = What a building!")
    page.get_by_role("button", name="Save the memory").click()
    said(page, "What a building!")
    page.get_by_label("Translate a document").set_input_files(
        {"name": "brief.txt", "mimeType": "text/plain", "buffer": text.encode()}
    )
    with page.expect_download() as download:
        page.get_by_role("button", name="Download brief.en.txt").click()
    assert download.value.path().read_text() == "What a building!"

    page.get_by_label("From").select_option("Detect language")
    chosen = page.get_by_role("combobox", name="Memory", exact=True)
    expect(chosen.locator("option:checked")).to_have_text("for documents (1)")
    said(page, "What a building!")
    page.get_by_label("Memory to fill").select_option("for documents (1)")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete the memory").click()
    expect(chosen.locator("option")).to_have_text(["No memory"])


def test_a_file_that_cannot_be_read_leaves_no_memory(
    visited: Visit, server: Server, tmp_path: Path
) -> None:
    page = visited.page
    page.goto(server.url)
    page.get_by_text("Translation memories", exact=True).click()
    (tmp_path / "broken.tmx").write_text(TMX[:-20])
    page.get_by_label("TMX file").set_input_files(tmp_path / "broken.tmx")
    page.get_by_role("button", name="Save the memory").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("alert")).not_to_contain_text("undefined")
    page.goto(server.url)
    chosen = page.get_by_role("combobox", name="Memory", exact=True)
    expect(chosen.locator("option")).to_have_text(["No memory"])
    assert visited.complaints  # the browser tells of the refusal too
    visited.complaints.clear()
